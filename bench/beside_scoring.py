"""Measures the time between a request's tokens while prompts are scored beside it.

    bench/beside_scoring models/smollm2-135m-instruct [--tokens 1024] [--rounds 5] [--json FILE]

Two clusters alternate: --score-step-ms is 0 (no bound) in one and the default in the other. In each
round, a request streams its output first alone. Then it streams while another caller has prompts
scored, one after another.
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

SETTINGS = {"no_bound": ["--score-step-ms", "0"], "bound": []}
OUTPUT = 200  # tokens of the request that streams


class Clusters:
    """One prefill worker, and a decode worker and a router for each setting."""

    def __init__(self, model):
        self.run, self.state = ROOT / "build" / "bench_beside_scoring", {"processes": []}
        self.run.mkdir(parents=True, exist_ok=True)
        start = lambda *arguments: cluster.start(self.run, self.state, *map(str, arguments))  # noqa: E731
        worker = ["--model", model, "--threads", os.cpu_count(), "--metrics", "off", "--kv-memory-mb", 256]
        prefill = start("prefill", "baton-prefill", *worker)
        self.routers = {}
        for name, flags in SETTINGS.items():
            decode = start(f"decode-{name}", "baton-decode", *worker, *flags)
            self.routers[name] = start(f"router-{name}", "baton-router", "--listen", "127.0.0.1:0", "--http", "off",
                                       "--metrics", "off", "--model", model, "--prefill-workers", prefill,
                                       "--decode-workers", decode)

    def stop(self):
        cluster.stop(self.run, self.state)


async def gaps_ms(target, ids):
    """Streams a request. Returns the times between its tokens."""
    times = []
    async for _ in target.generate(ids, OUTPUT):
        times.append(time.perf_counter())
    return [1000 * (b - a) for a, b in zip(times, times[1:])]


async def score_until(done, target, ids):
    """Has prompts scored until `done`. Returns the milliseconds that each complete prompt took."""
    request = target.types["GenerateRequest"](model=target.model)
    request.segments.segments.add().token_ids.ids.extend(ids)
    request.sampling.max_tokens = 1
    request.sampling.prompt_logprobs = 0
    took = []
    while not done.is_set():
        began = time.perf_counter()
        async for _ in target.call(request):
            pass
        if not done.is_set():
            took.append(1000 * (time.perf_counter() - began))
    return took


async def measure_round(target, prompt, scored):
    alone = await gaps_ms(target, prompt)
    done = asyncio.Event()
    scoring = asyncio.create_task(score_until(done, target, scored))
    await asyncio.sleep(0.2)  # so that the first prompt is being scored
    beside = await gaps_ms(target, prompt)
    done.set()
    return {"alone": alone, "beside": beside, "scored": await scoring}


async def measure(routers, model, tokens, rounds):
    targets = {name: Baton(address, model) for name, address in routers.items()}
    vocabulary = (await targets["bound"].info())["vocabulary"]
    random = Random(1)
    prompt, scored = ([random.randrange(vocabulary) for _ in range(n)] for n in (32, tokens))
    samples = {name: {"alone": [], "beside": [], "scored": []} for name in targets}
    # The first round warms up and is left out of the figures.
    for round_ in range(-1, rounds):
        for name, target in targets.items():
            for kind, values in (await measure_round(target, prompt, scored)).items():
                if round_ >= 0:
                    samples[name][kind] += values
    for target in targets.values():
        await target.close()
    return samples


def figures_of(samples):
    itl = {kind: {"p50": statistics.median(samples[kind]), "p90": statistics.quantiles(samples[kind], n=10)[-1]}
           for kind in ("alone", "beside")}
    return {"itl_ms": itl, "scored_prompt_ms": statistics.median(samples["scored"]), "prompts": len(samples["scored"])}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path, help="model directory")
    parser.add_argument("--tokens", type=int, default=1024, help="tokens of a prompt that is scored")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each setting")
    parser.add_argument("--json", type=pathlib.Path, help="write the figures to this file")
    options = parser.parse_args()
    clusters = Clusters(options.model.resolve())
    try:
        samples = asyncio.run(measure(clusters.routers, options.model.name, options.tokens, options.rounds))
    finally:
        clusters.stop()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    figures = {"commit": commit, "tokens": options.tokens, "output_tokens": OUTPUT, "rounds": options.rounds}
    figures |= {name: figures_of(values) for name, values in samples.items()}
    print(json.dumps(figures, indent=1))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
