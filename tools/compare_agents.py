"""Runs random agent graphs through a running cluster twice: all agents at once, each prompt growing while its upstreams
decode, and one after the other, each submitted when its upstreams are done. Tokens and log probabilities must be equal,
bit for bit: overlap changes when things are computed, never what."""

import argparse
import random
import sys
import time

sys.path.insert(0, __file__.rsplit("/", 1)[0] + "/examples")
import agents  # noqa: E402

WORDS = "the sea boat and light of a red small house under wind song night over stone field river old sun".split()


def words(rng, most):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, most))) + " "


def draw(rng):
    """Agents as lists of segments: a text, or the number of an earlier agent. Some share a beginning."""
    shared = words(rng, 60)
    graph = []
    for index in range(rng.randint(2, 5)):
        segments = [shared if rng.random() < 0.5 else words(rng, 40)]
        for _ in range(rng.randint(0, 3)):
            upstream = index > 0 and rng.random() < 0.6
            segments.append(rng.randrange(index) if upstream else words(rng, 30))
        graph.append((segments, rng.randint(4, 40), [" the"] if rng.random() < 0.3 else []))
    return graph


def request(name, index, agent):
    segments, max_tokens, stop = agent
    # A salt of its own for each run: neither finds the other's KV.
    made = agents.MESSAGES["GenerateRequest"](request_id=f"{name}-{index}", cache_salt=name)
    for segment in segments:
        if isinstance(segment, str):
            made.segments.segments.add(text=segment)
        else:
            reference = made.segments.segments.add().output_of
            reference.request_id, reference.announced = f"{name}-{segment}", True
    sampling = made.sampling
    sampling.max_tokens, sampling.temperature, sampling.repetition_penalty, sampling.logprobs = max_tokens, 0, 1, 1
    sampling.stop.extend(stop)
    return made


def run(client, name, graph, overlap):
    started = []
    for index, agent in enumerate(graph):
        started.append(client.start_request(request(name, index, agent)))
        if not overlap:
            started[-1].result()
    return [(agent.result(), agent.token_ids, agent.logprobs, agent.final.usage.prompt_tokens) for agent in started]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default="127.0.0.1:7070")
    parser.add_argument("--graphs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    args = parser.parse_args()
    client, different, count = agents.Client(args.server), 0, 0
    seconds = {True: 0.0, False: 0.0}
    for number in range(args.graphs):
        graph = draw(random.Random(args.seed + number))
        results = {}
        for overlap in random.Random(args.seed + number).sample([True, False], 2):
            begin = time.monotonic()
            results[overlap] = run(client, f"{args.seed}-{number}-{'overlap' if overlap else 'sequential'}", graph, overlap)
            seconds[overlap] += time.monotonic() - begin
        count += len(graph)
        for index, (one, other) in enumerate(zip(results[True], results[False])):
            if one != other:
                different += 1
                print(f"DIFFERENT: seed {args.seed + number}, agent {index}:\n  overlapped {one}\n  sequential {other}")
    print(f"agents: {args.graphs} random graphs of {count} agents, overlapped against sequential: {different} differ "
          f"(seed {args.seed}; {seconds[True]:.1f} s against {seconds[False]:.1f} s)")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
