"""Sends load to a running server and reports latencies and rates.

The load is open-loop by default: a slow server does not slow the arrivals. The report has time to
first token (TTFT), time between tokens (ITL) and end-to-end time at p50, p95 and p99, and tokens
per second. Examples:

- Poisson arrivals at a running Baton:
  bench/bench_serve --rate 2 --requests 100
- arrivals of a trace:
  bench/bench_serve --trace ../shared/data/traces/azure2023/AzureLLMInferenceTrace_conv.csv
  --speedup 0.1
- closed loop with 32 requests at a time:
  bench/bench_serve --concurrency 32 --requests 256
- an OpenAI-compatible server (/v1/completions):
  bench/bench_serve --url http://127.0.0.1:8000 --model NAME ...
"""

import argparse
import asyncio
import csv
import datetime
import itertools
import json
import os
import pathlib
import platform
import random
import statistics
import subprocess
import sys
import time

import bench_targets

ROOT = pathlib.Path(__file__).resolve().parent.parent


def poisson(args, rng):
    """Yields (arrival in seconds, prompt tokens, output tokens, prefix groups) of each request.

    Lengths vary by up to a third.
    """
    at = 0.0
    for _ in range(args.requests):
        spread = lambda mean: max(1, round(mean * rng.uniform(2 / 3, 4 / 3)))  # noqa: E731
        yield at, spread(args.prompt_tokens), spread(args.output_tokens), None
        at += rng.expovariate(args.rate) if args.rate else 0.0


def mooncake(path):
    """Yields the requests of a Mooncake trace.

    A hash id names 512 tokens. Equal ids name equal tokens.
    """
    for line in open(path, encoding="utf-8"):
        row = json.loads(line)
        yield row["timestamp"] / 1000, row["input_length"], row["output_length"], row["hash_ids"]


def azure(path):
    first = None
    with open(path, encoding="utf-8") as file:
        for row in csv.DictReader(file):
            at = datetime.datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp()
            first = at if first is None else first
            yield at - first, int(row["ContextTokens"]), int(row["GeneratedTokens"]), None


def prompt_ids(length, groups, vocabulary, shared, rng):
    """Returns random ids. The first `shared` ids are equal for all prompts.

    Equal groups have the same 512 ids.
    """
    ids = random.Random("shared").choices(range(vocabulary), k=min(shared, max(0, length - 1)))
    for group in groups or []:
        ids += random.Random(group).choices(range(vocabulary), k=512)
    ids += rng.choices(range(vocabulary), k=max(0, length - len(ids)))
    return ids[:length]


def workload(args, info):
    rng = random.Random(args.seed)
    if args.trace is None:
        rows = poisson(args, rng)
    elif args.trace.endswith(".csv"):
        rows = itertools.islice(azure(args.trace), args.requests)
    else:
        rows = itertools.islice(mooncake(args.trace), args.requests)
    limit = args.max_context or info["context"]
    for at, prompt, output, groups in rows:
        output = min(output, limit // 2)
        prompt = min(prompt, limit - output)
        yield at / args.speedup, prompt_ids(prompt, groups, info["vocabulary"], args.shared_prefix, rng), output


class Progress:
    """A progress line on stderr that changes when requests end.

    Prints nothing without a terminal.
    """

    def __init__(self, total):
        self.total, self.done, self.failed = total, 0, 0

    def add(self, ok):
        self.done += 1
        self.failed += not ok
        if sys.stderr.isatty():
            width = 40 * self.done // self.total
            print(f"\r[{'#' * width:<40}] {self.done}/{self.total}, {self.failed} failed", end="", file=sys.stderr)
            if self.done == self.total:
                print(file=sys.stderr)


async def measure(target, ids, output, progress):
    """Runs a request.

    Returns its start, the time of each token (seconds), its usage and its error.
    """
    start = time.perf_counter()
    times = []
    try:
        async for tokens in target.generate(ids, output):
            times += [time.perf_counter()] * tokens
        result = {"start": start, "times": times, "prompt": len(ids), "error": None if times else "no tokens"}
    except bench_targets.RequestError as error:
        result = {"start": start, "times": times, "prompt": len(ids), "error": str(error)}
    progress.add(result["error"] is None)
    return result


async def run(args):
    target = bench_targets.OpenAi(args.url, args.model) if args.url else bench_targets.Baton(args.server, args.model)
    info = await target.info()
    requests = list(workload(args, info))
    # Connects before the measurement.
    await measure(target, [1, 2, 3], 2, Progress(1))
    progress = Progress(len(requests))
    begin = time.perf_counter()
    if args.concurrency:
        gate = asyncio.Semaphore(args.concurrency)

        async def closed(ids, output):
            async with gate:
                return await measure(target, ids, output, progress)

        results = await asyncio.gather(*(closed(ids, output) for _, ids, output in requests))
    else:

        async def opened(at, ids, output):
            await asyncio.sleep(max(0.0, begin + at - time.perf_counter()))
            return await measure(target, ids, output, progress)

        results = await asyncio.gather(*(opened(*request) for request in requests))
    await target.close()
    return results, time.perf_counter() - begin


def percentiles(values):
    if len(values) < 2:
        return {"p50": values[0], "p95": values[0], "p99": values[0]} if values else {}
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return {"p50": cuts[49], "p95": cuts[94], "p99": cuts[98]}


def summary(results, seconds):
    good = [r for r in results if r["error"] is None]
    ttft = [(r["times"][0] - r["start"]) * 1e3 for r in good]
    itl = [(b - a) * 1e3 for r in good for a, b in zip(r["times"], r["times"][1:])]
    total = [(r["times"][-1] - r["start"]) * 1e3 for r in good]
    errors = {}
    for result in results:
        if result["error"]:
            errors[result["error"]] = errors.get(result["error"], 0) + 1
    return {
        "requests": len(results), "failed": len(results) - len(good), "errors": errors, "seconds": seconds,
        "prompt_tokens_per_s": sum(r["prompt"] for r in good) / seconds,
        "output_tokens_per_s": sum(len(r["times"]) for r in good) / seconds,
        "ttft_ms": percentiles(ttft), "itl_ms": percentiles(itl), "e2e_ms": percentiles(total),
    }


def report(args, figures):
    print(f"{figures['requests']} requests in {figures['seconds']:.1f} s, {figures['failed']} failed; "
          f"{figures['prompt_tokens_per_s']:.0f} prompt and {figures['output_tokens_per_s']:.1f} output tokens/s")
    print(f"{'':10}{'p50':>10}{'p95':>10}{'p99':>10}")
    for key, label in (("ttft_ms", "TTFT ms"), ("itl_ms", "ITL ms"), ("e2e_ms", "E2E ms")):
        if figures[key]:
            print(f"{label:10}" + "".join(f"{figures[key][p]:10.2f}" for p in ("p50", "p95", "p99")))
    for error, count in figures["errors"].items():
        print(f"failed {count} times: {error}")
    if args.json:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
        where = {"date": datetime.date.today().isoformat(), "commit": commit.stdout.strip(),
                 "machine": f"{platform.machine()}, {os.cpu_count()} cores", "arguments": vars(args)}
        pathlib.Path(args.json).write_text(json.dumps({**where, **figures}, indent=2) + "\n")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default="127.0.0.1:7070", help="Baton's router (gRPC)")
    parser.add_argument("--url", help="address of an OpenAI-compatible server, in place of --server")
    parser.add_argument("--model", default="", help="name of a model; needed if the server has several")
    parser.add_argument("--trace", help="a Mooncake .jsonl or Azure .csv trace instead of Poisson arrivals")
    parser.add_argument("--speedup", type=float, default=1.0, help="play arrivals faster (>1) or slower (<1)")
    parser.add_argument("--rate", type=float, default=1.0, help="Poisson arrivals per second; 0: all at once")
    parser.add_argument("--concurrency", type=int, default=0, help="closed loop with this many requests at a time")
    parser.add_argument("--requests", type=int, default=50, help="number of requests; of a trace, the first ones")
    parser.add_argument("--prompt-tokens", type=int, default=256, help="mean length")
    parser.add_argument("--output-tokens", type=int, default=64, help="mean length")
    parser.add_argument("--shared-prefix", type=int, default=0, help="number of first tokens that all prompts share")
    parser.add_argument("--max-context", type=int, default=0, help="shorten longer requests (default: the model's context)")
    parser.add_argument("--seed", type=int, default=1, help="seed of random arrivals, lengths and tokens")
    parser.add_argument("--json", help="write the figures to this file")
    return parser.parse_args()


def main():
    args = parse_args()
    try:
        results, seconds = asyncio.run(run(args))
    except bench_targets.RequestError as error:
        sys.exit(f"bench_serve: {error}")
    report(args, summary(results, seconds))


if __name__ == "__main__":
    main()
