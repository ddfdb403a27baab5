"""Checks that overlap does not change the answers of random agent graphs on a running cluster.

Each graph runs three times:
- overlapped: all agents at once. Each prompt streams while its upstream requests decode.
- again: the same agents once more, with all KV cached.
- sequential: one agent after another, without cached KV. Each prompt is whole. It has the tokens
  and the text of upstream outputs in place of the references.

The text, the tokens and the log probabilities of the 20 likeliest tokens must be equal bit for bit.
"""

import argparse
import itertools
import pathlib
import random
import sys
import time

from baton_client import Client, Options, Sampling, TokenIds
from tokenizers import Tokenizer

WORDS = "the sea boat and light of a red small house under wind song night over stone field river old sun".split()
TOP = 20


def words(rng, most):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, most))) + " "


def draw(rng):
    """Draws a graph: a list of agents (segments, join, upper bound on tokens, stop strings).

    A segment is a text or the index of an earlier agent. Some agents share their first segment.
    """
    shared = words(rng, 60)
    graph = []
    for index in range(rng.randint(2, 5)):
        segments = [shared if rng.random() < 0.5 else words(rng, 40)]
        for _ in range(rng.randint(0, 3)):
            upstream = index > 0 and rng.random() < 0.6
            segments.append(rng.randrange(index) if upstream else words(rng, 30))
        join = "arrival" if rng.random() < 0.3 else "order"
        graph.append((segments, join, rng.randint(4, 40), [" the"] if rng.random() < 0.3 else []))
    return graph


class Outputs:
    """Converts outputs of agents to parts of a prompt.

    An output becomes the tokens that end before the stop string, and the rest as text.
    """

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.special = {id for id, token in tokenizer.get_added_tokens_decoder().items() if token.special}

    def segments(self, agent):
        result, ids, end, length = agent.result(), [], 0, 0
        text = result.text.encode()
        # Number of `ids` that end at the end of a character.
        kept = 0
        for id in result.token_ids:
            if id in self.special:
                continue
            # Byte-level BPE writes one character for each byte.
            length += len(self.tokenizer.id_to_token(id))
            if length > len(text):
                break
            ids.append(id)
            if length == len(text) or text[length] & 0xC0 != 0x80:
                kept, end = len(ids), length
        return [part for part in (ids[:kept], text[end:].decode()) if part]


def start(flow, name, salt, agent, prompt):
    _, join, max_tokens, stop = agent
    sampling = Sampling(max_tokens=max_tokens, temperature=0, repetition_penalty=1, logprobs=TOP, stop=stop)
    return flow.agent(name, *prompt, sampling=sampling, options=Options(cache_salt=salt, join=join))


def outcome(agent):
    result = agent.result()
    assert all(len(token.top) == TOP for token in result.logprobs)
    return result.text, result.token_ids, result.logprobs, result.usage.prompt_tokens


class Comparison:
    def __init__(self, client, outputs, name):
        self.client, self.outputs, self.name = client, outputs, name
        # Outcomes of sequential requests, by prompt.
        self.alone = {}
        self.seconds = {"overlapped": 0.0, "again": 0.0, "sequential": 0.0}

    def overlapped(self, graph, kind):
        """Runs all agents at once.

        Both kinds share a cache salt, so `again` finds the KV of `overlapped`.
        """
        begin, flow = time.monotonic(), self.client.workflow(self.name)
        announced = [flow.announce("agent") for _ in graph]
        started = [start(flow, own, self.name, agent, [segment if isinstance(segment, str) else announced[segment]
                                                       for segment in agent[0]])
                   for own, agent in zip(announced, graph)]
        for agent in started:
            agent.result()
        self.seconds[kind] += time.monotonic() - begin
        return started

    def sequential(self, agent, filled):
        """Returns the outcome of a request that has `filled` outputs in place of references."""
        filled, prompt = iter(filled), []
        for segment in agent[0]:
            prompt += [segment] if isinstance(segment, str) else self.outputs.segments(next(filled))
        key = repr((prompt, agent[2:]))
        if key not in self.alone:
            begin = time.monotonic()
            flow = self.client.workflow(f"{self.name}-alone")
            # A new cache salt, so that the request finds no cached KV.
            self.alone[key] = outcome(start(flow, "agent", flow.id, agent,
                                            [part if isinstance(part, str) else TokenIds(part) for part in prompt]))
            self.seconds["sequential"] += time.monotonic() - begin
        return self.alone[key]

    def difference(self, graph, started, index):
        """Returns a text that shows how an agent's outcome differs, or None if it does not.

        With join by arrival, the client cannot determine the exact order of outputs. This method
        tries the order of the measured end times first, then all other orders.
        """
        upstreams = [started[segment] for segment in graph[index][0] if not isinstance(segment, str)]
        orders = [upstreams]
        if graph[index][1] == "arrival":
            orders = itertools.permutations(sorted(upstreams, key=lambda agent: agent.times["ended"]))
        got = outcome(started[index])
        for order in orders:
            expected = self.sequential(graph[index], order)
            if got == expected:
                return None
        return f"got      {got}\n  expected {expected}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=pathlib.Path, help="directory of the model, for the tokenizer")
    parser.add_argument("--server", default="127.0.0.1:7070")
    parser.add_argument("--graphs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="seed of the first graph; each next graph has the next seed")
    args = parser.parse_args()
    outputs = Outputs(Tokenizer.from_file(str(args.model / "tokenizer.json")))
    client, different, count, seconds = Client(args.server), 0, 0, {}
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
    print(f"agents: {args.graphs} random graphs of {count} agents, overlapped, again with cached KV, and sequentially: "
          f"{different} differ (seed {args.seed}; " + ", ".join(f"{kind} {spent:.1f} s" for kind, spent in seconds.items()) + ")")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
