"""Simulates whole prompts beside streaming prompts, and measures the latencies of both.

Time is virtual, and all figures are simulated. The program needs the build target bench_simulator.
Whole prompts and workflows arrive open-loop. A workflow is a paced upstream request and four
downstream requests that are submitted at the same time. The prompt of a downstream request has a
long prefix of its own, the upstream's output and an instruction.

  bench/beside_streaming.py --json FILE
"""

import argparse
import datetime
import itertools
import json
import os
import pathlib
import platform
import random
import statistics
import subprocess

import agents_simulated
from agent_workflows import Agent, Ids

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Machines. "rate" is the upper bound on the tokens per second of prefill. The sizes fit that rate.
MACHINES = {
    "smollm2-135m on cpu": {"model": "smollm2-135m", "device": "cpu", "step_tokens": 512, "tokens_per_s": 20, "rate": 560,
                            "seconds": 1200, "prefix": 800, "whole": 150, "output": 300},
    "llama-3.1-8b on h200": {"model": "llama-3.1-8b", "device": "h200", "step_tokens": 2048, "tokens_per_s": 60, "rate": 36000,
                             "seconds": 60, "prefix": 4000, "whole": 600, "output": 200},
    "qwen2.5-32b on h200": {"model": "qwen2.5-32b", "device": "h200", "step_tokens": 2048, "tokens_per_s": 40, "rate": 8500,
                            "seconds": 120, "prefix": 4000, "whole": 600, "output": 200},
}
READERS = 4
# Share of all prompt tokens that belong to streaming prompts.
STREAMING_SHARE = 0.6


def arrivals(rng, rate, seconds):
    times = itertools.accumulate(rng.expovariate(rate) for _ in itertools.count())
    return list(itertools.takewhile(lambda at: at < seconds, times))


def workload(machine, load, seed):
    """Returns [(arrival, workflow)]. `load` is a share of the machine's "rate"."""
    rng = random.Random(f"{seed} {load}")
    tokens = machine["rate"] * load
    per_workflow = READERS * (machine["prefix"] + machine["output"])
    events = []
    for n, at in enumerate(arrivals(rng, STREAMING_SHARE * tokens / per_workflow, machine["seconds"])):
        upstream = Agent("A", [Ids(f"{seed} A {n}", 64, "question")], machine["output"], paced=True)
        readers = [Agent(f"B {r}", [Ids(f"{seed} {n} {r}", int(machine["prefix"] * rng.uniform(0.5, 1.5)), "document"), "A",
                                    Ids("then", 32, "question")], 1) for r in range(READERS)]
        events.append((at, [upstream, *readers]))
    for n, at in enumerate(arrivals(rng, (1 - STREAMING_SHARE) * tokens / machine["whole"], machine["seconds"])):
        length = max(16, min(8 * machine["whole"], round(rng.lognormvariate(0, 0.8) * machine["whole"] * 0.73)))
        events.append((at, [Agent("whole", [Ids(f"{seed} whole {n}", length, "question")], 1)]))
    return sorted(events, key=lambda event: event[0])


def run(simulator, machine, load, seed, overlap=True, whole_alone=None, **rules):
    """Simulates a workload and returns latencies in ms.

    `whole_alone` is the TTFT of the same whole prompts without workflows. None: runs the whole
    prompts without workflows and returns their TTFT.
    """
    events = workload(machine, load, seed)
    if whole_alone is None:
        events = [(at, workflow) for at, workflow in events if workflow[0].name == "whole"]
    shape = {key: machine[key] for key in ("model", "device", "step_tokens", "tokens_per_s")}
    result = simulator.run([workflow for _, workflow in events], overlap, arrivals=[at for at, _ in events],
                           increment=16, **shape, **rules)
    ms = {"whole": [], "added": [], "after_upstream": []}
    for ran in result["workflows"]:
        if "whole" in ran:
            ms["whole"].append(1e3 * (ran["whole"].first - ran["whole"].started))
        else:
            ms["after_upstream"] += [1e3 * (b.first - ran["A"].ended) for name, b in ran.items() if name != "A"]
    if whole_alone is None:
        return ms["whole"]
    ms["added"] = [beside - alone for beside, alone in zip(ms["whole"], whole_alone, strict=True)]
    return ms


def quantiles(values):
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return {"median": cuts[49], "p90": cuts[89], "p99": cuts[98], "max": max(values)}


def figures(runs):
    """Returns the median, minimum and maximum of each quantile over the runs."""
    by_run = [{what: quantiles(values) for what, values in ms.items()} for ms in runs]
    return {what: {q: {"median": statistics.median(each), "min": min(each), "max": max(each)}
                   for q in ("median", "p90", "p99", "max")
                   for each in [[r[what][q] for r in by_run]]} for what in by_run[0]}


def variants():
    yield "sequential", False, {}
    yield "none", True, {"streaming_step_ms": 1e6}
    for ms in (200, 100, 50, 25):
        yield f"share of {ms} ms", True, {"streaming_step_ms": ms}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="runs of each setting; each has a seed of its own")
    parser.add_argument("--loads", type=float, nargs="+", default=[0.3, 0.6],
                        help="loads as shares of the machine's prefill rate")
    parser.add_argument("--json", help="write the figures to this file")
    args = parser.parse_args()
    simulator = agents_simulated.Simulator()
    rows = []
    for (name, machine), load in itertools.product(MACHINES.items(), args.loads):
        alone = [run(simulator, machine, load, seed) for seed in range(args.runs)]
        print(f"\n{name}, load {load:.0%}, {args.runs} runs; ms: whole prompts' TTFT | of which for streaming prompts | "
              "downstream requests' first token after the upstream's end")
        print(f"{'':28}" + 3 * f"{'median':>9}{'p90':>9}{'p99':>9}{'max':>9}  ")
        for variant, overlap, rules in variants():
            f = figures([run(simulator, machine, load, seed, overlap, alone[seed], **rules) for seed in range(args.runs)])
            rows.append({"machine": name, "load": load, "rules": variant} | f)
            print(f"{variant:28}" + "  ".join("".join(f"{f[what][q]['median']:9.1f}" for q in ("median", "p90", "p99", "max"))
                                               for what in f), flush=True)
    if args.json:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
        where = {"simulated": True, "date": datetime.date.today().isoformat(), "commit": commit.stdout.strip(),
                 "machine": f"virtual time, run on {platform.machine()}, {os.cpu_count()} cores", "increment": 16}
        pathlib.Path(args.json).write_text(json.dumps(where | {"runs": args.runs, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
