"""Measures the cost of --verify-kv or --guard-kv in real processes on this machine.

    bench/verify_kv models/smollm2-135m-instruct [--tokens 2048] [--rounds 15]
                    [--option guard-kv] [--json FILE]

The figure is the time to first token of prompts, with and without the option. The prefill worker
has the KV of the prompts and the decode worker does not, so the hand-off dominates this time.

Two decode workers run at the same time, each behind its own router, and alternate. Each has KV
blocks for only one prompt, and two prompts alternate. All blocks of a prompt therefore move each
time.
"""

import argparse
import asyncio
import json
import os
import pathlib
import statistics
import subprocess
import time
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from random import Random

from bench_targets import Baton

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOADER = SourceFileLoader("cluster", str(ROOT / "tools" / "cluster"))
cluster = module_from_spec(spec_from_loader("cluster", LOADER))
LOADER.exec_module(cluster)


class Clusters:
    """One prefill worker, and a decode worker and a router for each setting."""

    def __init__(self, model, tokens, option):
        self.run, self.state = ROOT / "build" / "bench_verify_kv", {"processes": []}
        self.run.mkdir(parents=True, exist_ok=True)
        start = lambda *arguments: cluster.start(self.run, self.state, *map(str, arguments))  # noqa: E731
        worker = ["--model", model, "--threads", os.cpu_count(), "--metrics", "off"]
        blocks = tokens // 16
        prefill = start("prefill", "baton-prefill", *worker, "--kv-blocks", 3 * blocks)
        self.routers = {}
        for name, flags in (("off", []), ("on", [option])):
            decode = start(f"decode-{name}", "baton-decode", *worker, "--kv-blocks", blocks + 4, *flags)
            self.routers[name] = start(f"router-{name}", "baton-router", "--listen", "127.0.0.1:0", "--http", "off", "--metrics", "off",
                                       "--model", model, "--prefill-workers", prefill, "--decode-workers", decode)

    def stop(self):
        cluster.stop(self.run, self.state)


async def first_token_ms(target, ids):
    began = time.perf_counter()
    async for _ in target.generate(ids, 1):
        return (time.perf_counter() - began) * 1000


async def measure(routers, model, tokens, rounds):
    targets = {name: Baton(address, model) for name, address in routers.items()}
    vocabulary = (await targets["off"].info())["vocabulary"]
    random = Random(1)
    prompts = [[random.randrange(vocabulary) for _ in range(tokens)] for _ in range(2)]
    times = {name: [] for name in targets}
    # The first round computes the prompts and is left out of the figures.
    for round_ in range(-1, rounds):
        for prompt in prompts:
            for name, target in targets.items():
                took = await first_token_ms(target, prompt)
                if round_ >= 0:
                    times[name].append(took)
    for target in targets.values():
        await target.close()
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path, help="model directory")
    parser.add_argument("--tokens", type=int, default=2048, help="tokens of a prompt")
    parser.add_argument("--rounds", type=int, default=15, help="measurements of each of two prompts")
    parser.add_argument("--option", choices=["verify-kv", "guard-kv"], default="verify-kv", help="option of the decode workers")
    parser.add_argument("--json", type=pathlib.Path, help="write the figures to this file")
    options = parser.parse_args()
    clusters = Clusters(options.model.resolve(), options.tokens, f"--{options.option}")
    try:
        times = asyncio.run(measure(clusters.routers, options.model.name, options.tokens, options.rounds))
    finally:
        clusters.stop()
    median = {name: statistics.median(values) for name, values in times.items()}
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    figures = {"commit": commit, "option": options.option, "tokens": options.tokens, "rounds": 2 * options.rounds, "first_token_ms": median,
               "on_to_off": median["on"] / median["off"]}
    print(f"{options.tokens} tokens, medians of {2 * options.rounds}: first token after {median['off']:.1f} ms, with --{options.option} "
          f"{median['on']:.1f} ms: {median['on'] - median['off']:+.1f} ms, {figures['on_to_off']:.2f} times")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
