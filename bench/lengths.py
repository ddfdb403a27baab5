"""Compares ten callers without max_tokens to ten callers with the right max_tokens.

    bench/lengths --simulated [--json FILE]
    bench/lengths MODEL [--before DIRECTORY] [--requests 12] [--rounds 9] [--json FILE]

Each caller sends its next request when its last answer has ended. All outputs end by themselves,
and are the same with and without limits. The decode worker has KV blocks for about half of the
callers. "Learned" begins after some outputs of each caller, and "cold" begins without any.

The first form runs the simulator (bench_simulator). The second form measures processes on this
machine. The model should have random weights: its outputs then end at random, on average after as
many tokens as its vocabulary has. The settings alternate within each round. With --before, a
directory of programs of another commit runs the callers with the right limits too.
"""

import argparse
import asyncio
import json
import os
import pathlib
import platform
import re
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from random import Random

import grpc
from baton_client.messages import MESSAGES

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOADER = SourceFileLoader("cluster", str(ROOT / "tools" / "cluster"))
cluster = module_from_spec(spec_from_loader("cluster", LOADER))
LOADER.exec_module(cluster)

CALLERS, BLOCK = 10, 16
PROGRAMS = cluster.BIN


# --- simulated -----------------------------------------------------------------------------------

PROMPT, WARM_UP, REQUESTS, SEEDS = 100, 5, 40, 5


def constant(mean, _):
    return mean


def exponential(mean, random):
    return 16 + round(min(random.expovariate(1 / (mean - 16)), 3 * mean))


def two_agents(mean, random, agent):
    return exponential(mean // 4 if agent == "judge" else 2 * mean - mean // 4, random)


# Name -> (mean length, draw, names of the agents).
CASES = {
    "20 tokens": (20, constant, [""]),
    "200 tokens": (200, constant, [""]),
    "1,000 tokens": (1000, constant, [""]),
    "random, mean 40": (40, exponential, [""]),
    "random, mean 200": (200, exponential, [""]),
    "random, mean 500": (500, exponential, [""]),
    "random, mean 200, two agents with names": (200, two_agents, ["judge", "writer"]),
    "random, mean 200, two agents without names": (200, two_agents, ["", ""]),
}


def simulated_run(case, seed, warm_up):
    mean, draw, agents = CASES[case]
    random = Random(seed)
    callers = []
    for caller in range(CALLERS):
        agent = agents[caller % len(agents)]
        role = ["judge", "writer"][caller % 2]
        length = (lambda: draw(mean, random, role)) if draw is two_agents else (lambda: draw(mean, random))
        callers.append({"agent": agent, "outputs": [length() for _ in range(warm_up + (REQUESTS if warm_up else 4))]})
    blocks = max(CALLERS // 2 * (PROMPT + mean + BLOCK) // BLOCK, 40)
    return {"model": "llama-3.1-8b", "device": "h200", "blocks": blocks, "prompt": PROMPT, "warm_up": warm_up, "callers": callers}


def simulated():
    built = sorted(ROOT.glob("build/*/bin/bench_simulator"), key=lambda path: path.stat().st_mtime)
    if not built:
        sys.exit("lengths: build/*/bin/bench_simulator is not built (cmake --build ... --target bench_simulator)")
    figures = {}
    for case in CASES:
        for name, warm_up in (("learned", WARM_UP), ("cold", 0)):
            runs = "".join(json.dumps(simulated_run(case, seed, warm_up)) + "\n" for seed in range(1, SEEDS + 1))
            out = subprocess.run([built[-1]], input=runs, capture_output=True, text=True, check=True).stdout
            results = [json.loads(line) for line in out.splitlines()]
            if not all(result["same_tokens"] for result in results):
                sys.exit(f"lengths: {case}: outputs differ without limits")
            requests = len(simulated_run(case, 1, warm_up)["callers"][0]["outputs"]) * CALLERS
            one = figures.setdefault(case, {})[name] = {}
            for setting in ("right", "none"):
                one[setting] = {"tokens_per_s": statistics.median(r[setting]["tokens_per_s"] for r in results),
                                "preemptions_per_request": statistics.mean(r[setting]["preemptions"] for r in results) / requests}
            one["ratio"] = statistics.median(r["none"]["tokens_per_s"] / r["right"]["tokens_per_s"] for r in results)
            print(f"{case}, {name}: {one['ratio']:.3f} of {one['right']['tokens_per_s']:.0f} tokens/s, preemptions per request "
                  f"{one['none']['preemptions_per_request']:.2f}, with limits {one['right']['preemptions_per_request']:.2f}")
    return figures


# --- processes -----------------------------------------------------------------------------------

# Ids that end an output, besides the model's own. Ten ids make outputs a tenth as long.
PROCESS_CASES = {"long": [], "short": list(range(20, 29))}


class Node:
    """One worker of each kind and a router."""

    def __init__(self, name, model, blocks, programs):
        self.run, self.state = ROOT / "build" / f"bench_lengths_{name}", {"processes": []}
        self.run.mkdir(parents=True, exist_ok=True)
        cluster.BIN = programs
        worker = ["--model", model, "--threads", 1]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.metrics = "127.0.0.1:%d" % free.getsockname()[1]
        decode = self.start("decode", "baton-decode", *worker, "--kv-blocks", blocks, "--metrics", self.metrics)
        prefill = self.start("prefill", "baton-prefill", *worker, "--metrics", "off")
        router = self.start("router", "baton-router", "--listen", "127.0.0.1:0", "--http", "off", "--metrics", "off", "--model", model,
                            "--prefill-workers", prefill, "--decode-workers", decode)
        self.model = model.name
        self.channel = grpc.aio.insecure_channel(router)
        self.call = self.channel.unary_stream("/baton.v1.Inference/Generate",
                                              request_serializer=MESSAGES["GenerateRequest"].SerializeToString,
                                              response_deserializer=MESSAGES["GenerateResponse"].FromString)

    def start(self, name, program, *arguments):
        return cluster.start(self.run, self.state, name, program, *map(str, arguments))

    def counts(self):
        """Returns the preemptions and the steps of the decode worker so far."""
        text = urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=10).read().decode()
        return [sum(float(value) for value in re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.M))
                for name in ("baton_preemptions_total", "baton_decode_steps_total")]

    async def generate(self, caller, number, limit, salt, stop_ids):
        """Returns the tokens of a request's output. `limit` is None for a request without one."""
        random = Random(f"{caller} {number}")
        request = MESSAGES["GenerateRequest"](model=self.model, cache_salt=salt)
        request.segments.segments.add().token_ids.ids.extend(random.randrange(10, 250) for _ in range(48))
        request.sampling.temperature = 1
        request.sampling.seed = random.getrandbits(40)
        request.sampling.stop_ids.extend(stop_ids)
        if limit is not None:
            request.sampling.max_tokens = limit
        tokens = []
        async for response in self.call(request):
            tokens += response.token_ids
        return tokens

    async def run_callers(self, numbers, lengths, salt, stop_ids):
        """Returns the outputs of the callers, and the figures."""
        outputs = {}

        async def loop(caller):
            for number in numbers:
                limit = None if lengths is None else lengths[caller, number]
                outputs[caller, number] = await self.generate(caller, number, limit, salt, stop_ids)

        before, began = self.counts(), time.perf_counter()
        await asyncio.gather(*(loop(caller) for caller in range(CALLERS)))
        took = time.perf_counter() - began
        preemptions, steps = (now - then for now, then in zip(self.counts(), before))
        tokens = sum(map(len, outputs.values()))
        return outputs, {"tokens_per_s": tokens / took, "tokens_per_step": tokens / steps, "preemptions": preemptions}


async def measure(model, stop_ids, options):
    """Returns the figures of each setting. Lengths are those of a first run without limits."""
    vocabulary = json.loads((model / "config.json").read_text())["vocab_size"]
    # Less than the context length, so that no request would fit with its limit.
    blocks = round(CALLERS / 2 * (48 + vocabulary / (1 + len(stop_ids)) + BLOCK) / BLOCK)
    nodes = {"after": Node("after", model, blocks, PROGRAMS)}
    if options.before:
        nodes["before"] = Node("before", model, blocks, options.before)
    settings = [("right", "after", True), ("none", "after", False)] + [("right, before", "before", True)] * bool(options.before)
    values = {kind: {name: [] for name, _, _ in settings} for kind in ("learned", "cold")}
    numbers = {"learned": range(options.requests), "cold": range(3)}
    try:
        whole, _ = await nodes["after"].run_callers(numbers["learned"], None, "lengths", stop_ids)
        lengths = {key: len(tokens) for key, tokens in whole.items()}
        for round_ in range(-1, options.rounds):
            for kind in values:
                for name, node, right in settings[::1 if round_ % 2 else -1]:
                    salt = name if kind == "learned" else f"{name} {round_}"
                    outputs, measured = await nodes[node].run_callers(numbers[kind], lengths if right else None, salt, stop_ids)
                    if any(whole[key] != tokens for key, tokens in outputs.items()):
                        sys.exit(f"lengths: {name}, {kind}: the outputs differ from those of the first run")
                    if round_ >= 0:
                        values[kind][name].append(measured)
    finally:
        for node in nodes.values():
            await node.channel.close()
            cluster.stop(node.run, node.state)
    figures = {"mean_output": statistics.mean(lengths.values()), "blocks": blocks}
    for kind, settings_of_kind in values.items():
        requests = CALLERS * len(numbers[kind])
        figures[kind] = {name: figures_of(rounds, requests) for name, rounds in settings_of_kind.items()}
        print(kind, json.dumps(figures[kind], indent=1))
    return figures


def figures_of(rounds, requests):
    """Returns medians of the rounds of a setting."""
    one = {name: statistics.median(r[name] for r in rounds) for name in ("tokens_per_s", "tokens_per_step")}
    one["tokens_per_s_range"] = [choose(r["tokens_per_s"] for r in rounds) for choose in (min, max)]
    one["preemptions_per_request"] = statistics.mean(r["preemptions"] for r in rounds) / requests
    return one


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path, nargs="?", help="directory of a model with random weights")
    parser.add_argument("--simulated", action="store_true", help="run the simulator")
    parser.add_argument("--before", type=pathlib.Path, help="directory of the programs of another commit")
    parser.add_argument("--requests", type=int, default=12, help="requests of each caller in a round")
    parser.add_argument("--rounds", type=int, default=9, help="measurements of each setting")
    parser.add_argument("--json", type=pathlib.Path, help="write the figures to this file")
    options = parser.parse_args()
    if options.simulated == bool(options.model):
        sys.exit("lengths: expected a model or --simulated")
    if options.simulated:
        figures = simulated()
    else:
        figures = {name: asyncio.run(measure(options.model.resolve(), stop_ids, options)) for name, stop_ids in PROCESS_CASES.items()}
    git = lambda *words: subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.strip()  # noqa: E731
    if options.json:
        machine = {"simulated": True} if options.simulated else {"machine": f"{os.cpu_count()} cores, {platform.processor() or platform.machine()}"}
        head = {"commit": git("rev-parse", "--short", "HEAD"), "date": time.strftime("%Y-%m-%d"), **machine}
        options.json.write_text(json.dumps(head | {"figures": figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
