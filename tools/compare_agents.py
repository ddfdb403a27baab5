"""Runs random agent graphs through a running cluster: all agents at once, each prompt growing while its upstreams decode,
then once more where the KV of all of it is cached, and at last one after the other, each with a whole prompt that has
the upstreams' tokens and text in place of the references, where nothing is cached. Text, tokens and the log
probabilities of the 20 likeliest tokens must be equal, bit for bit: overlap changes when things are computed, never
what."""

import argparse
import itertools
import pathlib
import random
import sys
import time

from tokenizers import Tokenizer

sys.path.insert(0, __file__.rsplit("/", 1)[0] + "/examples")
import agents  # noqa: E402

WORDS = "the sea boat and light of a red small house under wind song night over stone field river old sun".split()
TOP = 20


def words(rng, most):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, most))) + " "


def draw(rng):
    """Agents as (segments, join, most tokens, stop); a segment is a text, or the number of an earlier agent. Some share
    a beginning."""
    shared = words(rng, 60)
    graph = []
    for index in range(rng.randint(2, 5)):
        segments = [shared if rng.random() < 0.5 else words(rng, 40)]
        for _ in range(rng.randint(0, 3)):
            upstream = index > 0 and rng.random() < 0.6
            segments.append(rng.randrange(index) if upstream else words(rng, 30))
        join = "JOIN_ARRIVAL" if rng.random() < 0.3 else "JOIN_ORDER"
        graph.append((segments, join, rng.randint(4, 40), [" the"] if rng.random() < 0.3 else []))
    return graph


class Outputs:
    """What stands in a prompt for an output: the tokens that lie wholly before the stop string, and the rest as text."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.special = {id for id, token in tokenizer.get_added_tokens_decoder().items() if token.special}

    def segments(self, agent):
        text, ids, end, length = agent.text.encode(), [], 0, 0
        kept = 0  # of ids: where a character ends
        for id in agent.token_ids:
            if id in self.special:
                continue
            length += len(self.tokenizer.id_to_token(id))  # byte-level BPE: a character for each byte
            if length > len(text):
                break
            ids.append(id)
            if length == len(text) or text[length] & 0xC0 != 0x80:
                kept, end = len(ids), length
        return [part for part in (ids[:kept], text[end:].decode()) if part]


def new_request(id, salt, agent):
    _, join, max_tokens, stop = agent
    request = agents.MESSAGES["GenerateRequest"](request_id=id, cache_salt=salt, join=join)
    sampling = request.sampling
    sampling.max_tokens, sampling.temperature, sampling.repetition_penalty, sampling.logprobs = max_tokens, 0, 1, TOP
    sampling.stop.extend(stop)
    return request


def outcome(agent):
    agent.result()
    logprobs = [(entry.logprob, list(entry.top_ids), list(entry.top_logprobs)) for entry in agent.logprobs]
    assert all(len(top_ids) == TOP for _, top_ids, _ in logprobs)
    return agent.text, agent.token_ids, logprobs, agent.final.usage.prompt_tokens


class Comparison:
    def __init__(self, client, outputs, name):
        self.client, self.outputs, self.name = client, outputs, name
        self.alone = {}  # outcomes by prompt
        self.runs = itertools.count()
        self.seconds = {"overlapped": 0.0, "again": 0.0, "sequential": 0.0}

    def overlapped(self, graph, kind):
        """All agents at once. Both kinds have one salt: the second finds what the first computed."""
        begin, started, run = time.monotonic(), [], next(self.runs)
        for index, agent in enumerate(graph):
            request = new_request(f"{self.name}-{run}-{index}", self.name, agent)
            for segment in agent[0]:
                if isinstance(segment, str):
                    request.segments.segments.add(text=segment)
                else:
                    reference = request.segments.segments.add().output_of
                    reference.request_id, reference.announced = f"{self.name}-{run}-{segment}", True
            started.append(self.client.start_request(request))
        for agent in started:
            agent.result()
        self.seconds[kind] += time.monotonic() - begin
        return started

    def sequential(self, agent, filled):
        """The outcome with these outputs in the places of the references, by a request without references."""
        filled, prompt = iter(filled), []
        for segment in agent[0]:
            prompt += [segment] if isinstance(segment, str) else self.outputs.segments(next(filled))
        key = repr((prompt, agent[2:]))
        if key not in self.alone:
            begin = time.monotonic()
            id = f"{self.name}-alone-{len(self.alone)}"
            request = new_request(id, id, agent)  # a salt of its own: it finds nobody's KV
            for part in prompt:
                added = request.segments.segments.add()
                if isinstance(part, str):
                    added.text = part
                else:
                    added.token_ids.ids.extend(part)
            self.alone[key] = outcome(self.client.start_request(request))
            self.seconds["sequential"] += time.monotonic() - begin
        return self.alone[key]

    def difference(self, graph, started, index):
        """None, or how an agent differs. Who came first is not quite known from here: under JOIN_ARRIVAL the order in
        which the outputs seem to have ended is tried first, then the others."""
        upstreams = [started[segment] for segment in graph[index][0] if not isinstance(segment, str)]
        orders = [upstreams]
        if graph[index][1] == "JOIN_ARRIVAL":
            orders = itertools.permutations(sorted(upstreams, key=lambda agent: agent.ended_at))
        got = outcome(started[index])
        for order in orders:
            expected = self.sequential(graph[index], order)
            if got == expected:
                return None
        return f"got      {got}\n  expected {expected}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=pathlib.Path, help="its directory, for the tokenizer")
    parser.add_argument("--server", default="127.0.0.1:7070")
    parser.add_argument("--graphs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    args = parser.parse_args()
    outputs = Outputs(Tokenizer.from_file(str(args.model / "tokenizer.json")))
    client, different, count, seconds = agents.Client(args.server), 0, 0, {}
    for seed in range(args.seed, args.seed + args.graphs):
        graph = draw(random.Random(seed))
        comparison = Comparison(client, outputs, f"graph-{seed}")
        count += len(graph)
        for kind in ("overlapped", "again"):
            started = comparison.overlapped(graph, kind)
            for index in range(len(graph)):
                difference = comparison.difference(graph, started, index)
                if difference is not None:
                    different += 1
                    print(f"DIFFERENT: seed {seed}, {kind}, agent {index} of {graph}:\n  {difference}")
        for kind, spent in comparison.seconds.items():
            seconds[kind] = seconds.get(kind, 0) + spent
    print(f"agents: {args.graphs} random graphs of {count} agents, overlapped, again where all is cached, and sequentially: "
          f"{different} differ (seed {args.seed}; " + ", ".join(f"{kind} {spent:.1f} s" for kind, spent in seconds.items()) + ")")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
