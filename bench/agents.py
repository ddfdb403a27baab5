"""Measures the speed-up of agent workflows by overlap.

- sequential: each agent is submitted when its upstream agents have ended.
- overlapped: all agents are submitted at once. Prompts refer to outputs that do not exist yet.

Both modes have the same server and the same segments, and take turns in one run.

- `bench/agents` starts a cluster with one prefill and one decode worker that have one thread each.
- `bench/agents --full --json FILE` measures the whole grid with more repeats.
- `bench/agents --server 127.0.0.1:7070` measures a router that runs already.
- `bench/agents --simulated` simulates A100s and H200s with models of 7B to 32B in virtual time. It
  needs the build target bench_simulator.

Prompts are pieces of ../shared/data (agents' transcripts, questions, articles) if that folder
exists. Otherwise they are random token ids of the same lengths. Outputs have fixed lengths. The
runs of a pair have different cache salts, so they do not share KV. Their tokens must be equal. A
ratio above 1 means that overlap is faster.
"""

import argparse
import asyncio
import datetime
import itertools
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time
import uuid

import agent_prompts
import agent_workflows
import agents_simulated
import bench_serve
import bench_targets

ROOT = pathlib.Path(__file__).resolve().parent.parent
RUN = ROOT / "build" / "bench_agents"
MODES = {"sequential": False, "overlapped": True}
WORKFLOWS = {"chain of 4": agent_workflows.chain, "map-reduce 3+1": agent_workflows.map_reduce,
             "analyser and 12 writers": agent_workflows.writers}


class Bench:
    def __init__(self, server, repeats, runs):
        self.server, self.repeats, self.different = server, repeats, 0
        self.progress = bench_serve.Progress(runs)

    async def pairs(self, make, concurrency):
        """Returns a dictionary for each repeat: mode -> results of each workflow's agents.

        The first mode alternates between repeats.
        """
        results = []
        for repeat in range(self.repeats):
            run_id = uuid.uuid4().hex[:12]
            workflows = [make(f"{run_id} {n}") for n in range(concurrency)]
            pair = {}
            for mode in list(MODES)[::1 if repeat % 2 else -1]:
                pair[mode] = await self.server.run_workflows(workflows, f"{run_id}-{mode}", MODES[mode])
                self.progress.add(True)
            self.different += sum(a[name].tokens != b[name].tokens
                                  for a, b in zip(pair["sequential"], pair["overlapped"]) for name in a)
            results.append(pair)
        return results


def medians(pairs, measure):
    """Returns medians over repeats: the measured time of each mode in ms, and the ratio of a pair.

    `measure` returns seconds for a workflow. Workflows that run at the same time give their mean.
    """
    values = [{mode: 1e3 * statistics.fmean(map(measure, pair[mode])) for mode in MODES} for pair in pairs]
    figures = {f"{mode}_ms": statistics.median(v[mode] for v in values) for mode in MODES}
    return figures | {"ratio": statistics.median(v["sequential"] / v["overlapped"] for v in values)}


def token_ms(pairs, mode, name):
    """Returns the median time between two tokens of an agent, in ms."""
    return statistics.median(1e3 * (ran[name].ended - ran[name].first) / max(1, len(ran[name].tokens) - 1)
                             for pair in pairs for ran in pair[mode])


async def cascades(bench, grid):
    rows = []
    for concurrency, prefix, output in grid:
        pairs = await bench.pairs(lambda task: agent_workflows.cascade(task, prefix, output), concurrency)
        rows.append({"concurrency": concurrency, "prefix": prefix, "upstream_tokens": output}
                    | medians(pairs, lambda ran: ran["B"].first - ran["A"].first)
                    | {"after_upstream": medians(pairs, lambda ran: ran["B"].first - ran["A"].ended)}
                    | {f"upstream_token_{mode}_ms": token_ms(pairs, mode, "A") for mode in MODES})
    return rows


async def whole_workflows(bench, concurrencies):
    rows = []
    for (name, make), concurrency in itertools.product(WORKFLOWS.items(), concurrencies):
        pairs = await bench.pairs(make, concurrency)
        figures = medians(pairs, lambda ran: max(r.ended for r in ran.values()) - min(r.started for r in ran.values()))
        rows.append({"workflow": name, "concurrency": concurrency} | figures | {"reduction": 1 - 1 / figures["ratio"]})
    return rows


async def ablation(bench, concurrency=8, prefix=2000, output=64):
    """Measures the same cascades without and with sharing of KV between the pipelines."""
    kinds = {"sequential": (False, False), "streaming only": (True, False), "sharing only": (False, True), "full": (True, True)}
    times = {kind: [] for kind in kinds}
    for _, (kind, (overlap, share)) in itertools.product(range(bench.repeats), kinds.items()):
        run_id = uuid.uuid4().hex[:12]
        workflows = [agent_workflows.cascade(f"{run_id} {n}", prefix, output) for n in range(concurrency)]
        ran = await bench.server.run_workflows(workflows, run_id, overlap, share)
        times[kind].append(1e3 * statistics.fmean(r["B"].first - r["A"].first for r in ran))
        bench.progress.add(True)
    figures = {kind: statistics.median(values) for kind, values in times.items()}
    return {"concurrency": concurrency, "prefix": prefix, "upstream_tokens": output, "ms": figures,
            "speedup": {kind: figures["sequential"] / ms for kind, ms in figures.items()}}


async def beside_growing(bench):
    """Measures the time to first token of consecutive prompts.

    The prompts run alone, and then beside twelve long streaming prompts.
    """
    ttft = {"alone": [], "beside": []}
    for repeat in range(bench.repeats):
        run_id = uuid.uuid4().hex[:12]

        async def prompt(kind, n):
            agent = agent_workflows.Agent(f"{kind} {n}", [agent_workflows.Ids(f"{run_id} {kind} {n}", 100, "question")], 1)
            ran = await bench.server.run_agent(agent, f"{run_id}-", run_id, False)
            ttft[kind].append(1e3 * (ran.first - ran.started))

        for n in range(10):
            await prompt("alone", n)
        upstream = agent_workflows.Agent("A", [agent_workflows.Ids(run_id, 64, "question")], 600)
        readers = [agent_workflows.Agent(f"B {n}", [agent_workflows.Ids(f"{run_id} {n}", 1500, "document"), "A"], 1) for n in range(12)]
        workflow = asyncio.create_task(bench.server.run_workflow([upstream, *readers], f"{run_id}-", run_id, True))
        for n in range(10):
            await asyncio.sleep(0.2)
            await prompt("beside", n)
        beside_until = time.perf_counter()
        if (await workflow)["A"].ended < beside_until:
            sys.exit("agents: the upstream ended before the prompts beside its readers were measured")
        bench.progress.add(True)
    return {kind: {"ms": ms, "median": statistics.median(ms), "max": max(ms)} for kind, ms in ttft.items()}


def distribution(rows):
    ratios = sorted(row["ratio"] for row in rows)
    cuts = statistics.quantiles(ratios, n=10, method="inclusive") if len(ratios) > 1 else ratios * 9
    return {"configurations": len(ratios), "faster": sum(r > 1 for r in ratios), "min": ratios[0], "p10": cuts[0],
            "median": cuts[4], "p90": cuts[8], "max": ratios[-1]}


async def run(args, server):
    target = bench_targets.Baton(server, args.model)
    await target.info()
    prompts = agent_prompts.prompts(args.model_dir)
    grid = list(itertools.product(*((1, 2, 4, 8), (0, 1000, 2000), (32, 64, 128) if args.full else (64,))))
    repeats = args.repeats or (5 if args.full else 3)
    bench = Bench(agent_workflows.Server(target, prompts), repeats,
                  repeats * (2 * len(grid) + 4 * len(WORKFLOWS) + 4 * args.full + 1))
    await bench.server.run_workflow(agent_workflows.cascade("warm", 0, 4), f"{uuid.uuid4().hex[:12]}-", "", True)
    rows = await cascades(bench, grid)
    figures = {"cascades": distribution(rows), "cascade": rows, "workflow": await whole_workflows(bench, (1, 8)),
               "prompts_beside_growing": await beside_growing(bench)}
    if args.full:
        figures["ablation"] = await ablation(bench)
    await target.close()
    return {"prompts": prompts.what, "repeats": repeats, "different_outputs": bench.different} | figures


def report(figures):
    print("Two agents; T from A's first token to B's, and from A's last; ms, medians")
    print(f"{'pipelines':>9}{'prefix':>8}{'output':>8}{'T seq.':>9}{'T over.':>9}{'ratio':>7}"
          f"{'after A':>9}{'over.':>8}{'A: token':>10}{'over.':>7}")
    for row in figures["cascade"]:
        after = row["after_upstream"]
        print(f"{row['concurrency']:9}{row['prefix']:8}{row['upstream_tokens']:8}{row['sequential_ms']:9.0f}"
              f"{row['overlapped_ms']:9.0f}{row['ratio']:7.2f}{after['sequential_ms']:9.0f}{after['overlapped_ms']:8.0f}"
              f"{row['upstream_token_sequential_ms']:10.1f}{row['upstream_token_overlapped_ms']:7.1f}")
    summary = figures["cascades"]
    print(f"overlap is faster in {summary['faster']} of {summary['configurations']}; ratios: "
          + ", ".join(f"{key} {summary[key]:.2f}" for key in ("min", "p10", "median", "p90", "max")))
    print(f"\n{'end to end, ms':26}{'N':>3}{'seq.':>9}{'over.':>9}{'less':>8}")
    for row in figures["workflow"]:
        print(f"{row['workflow']:26}{row['concurrency']:3}{row['sequential_ms']:9.0f}{row['overlapped_ms']:9.0f}"
              f"{row['reduction']:8.1%}")
    print("\n100-token prompts alone, and beside 12 that grow; time to first token, ms, median (most): "
          + ", ".join(f"{kind} {ms['median']:.0f} ({ms['max']:.0f})" for kind, ms in figures["prompts_beside_growing"].items()))
    if "ablation" in figures:
        print("\n8 pipelines, prefix 2,000, T against sequential without sharing: "
              + ", ".join(f"{kind} {speedup:.2f}x" for kind, speedup in figures["ablation"]["speedup"].items()))
    print(f"agents whose tokens differ between the modes: {figures['different_outputs']}")


def cluster(*arguments):
    subprocess.run([ROOT / "tools" / "cluster", "--run", RUN, *arguments], check=True, stdout=subprocess.DEVNULL)


def simulate(args):
    figures = agents_simulated.run(WORKFLOWS, distribution, args.full)
    agents_simulated.report(figures)
    if args.svg:
        agents_simulated.plot(figures["cascade"], pathlib.Path(args.svg))
    return figures, "simulated: no figure was measured"


def measure(args):
    if args.server:
        return asyncio.run(run(args, args.server))
    try:
        cluster("up", args.model_dir, "--prefill", "1", "--decode", "1", "--threads", "1", "--listen", "127.0.0.1:0")
        return asyncio.run(run(args, json.loads((RUN / "cluster.json").read_text())["router"]))
    finally:
        cluster("down")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="12 cascades and the workflows, 3 repeats (default)")
    size.add_argument("--full", action="store_true", help="36 cascades, the workflows and the ablation, 5 repeats")
    parser.add_argument("--repeats", type=int, help="measurements of each setting; default: 3, with --full 5")
    parser.add_argument("--server", help="address of a running router; default: start a cluster, and stop it at the end")
    parser.add_argument("--model", default="", help="name of a model; needed if the server has several")
    parser.add_argument("--model-dir", default=ROOT / "models" / "smollm2-135m-instruct",
                        help="model of the cluster; its tokenizer makes the prompts")
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--simulated", action="store_true",
                        help="simulate GPUs with a roofline; --full: 1,728 cascades. Also compares --schedule fcfs with sjf")
    parser.add_argument("--svg", help="with --simulated: write a plot of the cascades' ratios to this file")
    return parser.parse_args()


def load(args):
    try:
        figures = measure(args)
    except bench_targets.RequestError as error:
        sys.exit(f"agents: {error}")
    except subprocess.CalledProcessError:
        sys.exit("agents: the cluster did not start; its output is above")
    report(figures)
    return figures, args.server or "one prefill and one decode worker, one thread each; the load generator beside them"


def main():
    args = parse_args()
    figures, setup = simulate(args) if args.simulated else load(args)
    if args.json:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
        where = {"date": datetime.date.today().isoformat(), "commit": commit.stdout.strip(),
                 "machine": f"{platform.machine()}, {os.cpu_count()} cores",
                 "setup": setup}
        pathlib.Path(args.json).write_text(json.dumps(where | figures, indent=2) + "\n")
    sys.exit(1 if figures["different_outputs"] or figures.get("blocks_held") else 0)


if __name__ == "__main__":
    main()
