"""The simulated part of bench/agents.

The program build/*/bin/bench_simulator runs workflows on simulated A100s and H200s in virtual time.
There is one prefill worker and one decode worker, each on its own device. All figures are
simulated.
"""

import itertools
import json
import pathlib
import statistics
import subprocess
import sys
from random import Random

import agent_workflows
from agent_workflows import Agent, Ids

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODELS = ("qwen2.5-7b", "qwen2.5-32b", "llama-3.1-8b")
DEVICES = ("a100", "h200")
# Tokens per second of the upstream agent.
RATES = (25, 50, 100, 200)
CHUNKS = (64, 128, 256, 512)
# Values of concurrency, prefix, output and rate of cascades. GRID has the values with which the
# scheduler's rules were developed, OTHERS has different values.
GRID = ((1, 2, 4, 8), (0, 1000, 2000), (32, 64, 128), RATES)
OTHERS = ((3, 6, 12), (0, 500, 3000), (24, 48, 100, 200), (30, 75, 150, 300))
# Load as a share of the rate of a prefill worker whose steps are all full.
LOADS = (0.5, 0.8, 0.95)
# Seconds until the router has learned the order of agents. It learns from a workflow 120 s after
# the workflow's end.
LEARN_S = 150
SCHEDULES = {"sequential": (False, "fcfs"), "SJF alone": (False, "sjf"), "overlap alone": (True, "fcfs"), "both": (True, "sjf")}


def as_json(agent):
    parts = [{"output_of": part} if isinstance(part, str) else {"ids": part.name, "length": part.length}
             for part in agent.parts]
    return {"name": agent.name, "output": agent.output, "paced": agent.paced, "parts": parts}


class Simulator:
    def __init__(self):
        built = sorted(ROOT.glob("build/*/bin/bench_simulator"), key=lambda path: path.stat().st_mtime)
        if not built:
            sys.exit("agents: build/*/bin/bench_simulator is not built (cmake --build ... --target bench_simulator)")
        self.process = subprocess.Popen([built[-1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.different = self.runs = self.blocks_held = 0

    def run(self, workflows, overlap, share=True, **shape):
        run = shape | {"overlap": overlap, "share": share, "workflows": [[as_json(a) for a in w] for w in workflows]}
        self.process.stdin.write(json.dumps(run) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit("agents: the simulator ended; its output is above")
        self.runs += 1
        result = json.loads(line)
        self.blocks_held += result["blocks_held"]
        for workflow in result["workflows"]:
            for name, ran in workflow.items():
                workflow[name] = agent_workflows.Ran(ran["started"], ran["first"], ran["ended"], ran["tokens"], 0, 0, 0)
        return result

    def pair(self, workflows, **shape):
        """Returns (sequential, overlapped) results, each by workflow and agent."""
        pair = [self.run(workflows, overlap, **shape)["workflows"] for overlap in (False, True)]
        self.different += sum(a[name].tokens != b[name].tokens for a, b in zip(*pair) for name in a)
        return pair


def mean_ms(workflows, measure):
    return 1e3 * statistics.fmean(map(measure, workflows))


def first_to_first(ran):
    return ran["B"].first - ran["A"].first


def end_to_end(ran):
    return max(r.ended for r in ran.values()) - min(r.started for r in ran.values())


def ratios_of(simulator, workflows, measure, shape):
    sequential, overlapped = (mean_ms(ran, measure) for ran in simulator.pair(workflows, **shape))
    return {"sequential_ms": sequential, "overlapped_ms": overlapped, "ratio": sequential / overlapped}


def cascades(simulator, grid):
    rows = []
    for model, device, concurrency, prefix, output, rate in grid:
        workflows = [agent_workflows.cascade(str(n), prefix, output) for n in range(concurrency)]
        shape = {"model": model, "device": device, "tokens_per_s": rate}
        rows.append(shape | {"concurrency": concurrency, "prefix": prefix, "upstream_tokens": output}
                    | ratios_of(simulator, workflows, first_to_first, shape))
    return rows


def ablation(simulator, model, device, rate, output, concurrency=8, prefix=2000):
    """Measures T with and without overlap, and with and without sharing of KV between pipelines.

    T is the time from A's first token to B's. T cannot be shorter than the decoding of A, which
    bounds the speed-up.
    """
    kinds = {"sequential": (False, False), "streaming only": (True, False), "sharing only": (False, True), "full": (True, True)}
    workflows = [agent_workflows.cascade(str(n), prefix, output) for n in range(concurrency)]
    shape = {"model": model, "device": device, "tokens_per_s": rate}
    ran = {kind: simulator.run(workflows, overlap, share, **shape)["workflows"] for kind, (overlap, share) in kinds.items()}
    ms = {kind: mean_ms(workflows, first_to_first) for kind, workflows in ran.items()}
    decoding = mean_ms(ran["full"], lambda r: r["A"].ended - r["A"].first)
    return shape | {"upstream_tokens": output, "ms": ms, "speedup": {kind: ms["sequential"] / t for kind, t in ms.items()},
                    "upstream_decode_ms": decoding, "bound": ms["sequential"] / decoding,
                    "share_of_possible_gain": (ms["sequential"] - ms["full"]) / (ms["sequential"] - decoding)}


def chunking(simulator, model, device, tokens=1024):
    """Compares prefill of a prompt in chunks with one pass, and the last chunk with the first."""
    # Prefill computes no KV for the last token of a prompt.
    prompt = [Agent("A", [Ids("prompt", tokens + 1, "document")], 1)]
    seconds = {}
    for chunk in (*CHUNKS, tokens):
        steps = simulator.run([prompt], True, model=model, device=device, step_tokens=chunk)["prefill_steps"]
        seconds[chunk] = [step["s"] for step in steps if step["tokens"] > 1]
    whole = sum(seconds[tokens])
    return {"model": model, "device": device, "tokens": tokens, "one_pass_ms": 1e3 * whole,
            "chunks": [{"chunk": chunk, "cost": sum(seconds[chunk]) / whole, "last_to_first": seconds[chunk][-1] / seconds[chunk][0]}
                       for chunk in CHUNKS]}


def whole_workflows(simulator, workflows, model, device):
    rows = []
    for (name, make), concurrency in itertools.product(workflows.items(), (1, 8)):
        figures = ratios_of(simulator, [make(f"task {n}") for n in range(concurrency)], end_to_end,
                            {"model": model, "device": device})
        rows.append({"model": model, "device": device, "workflow": name, "concurrency": concurrency} | figures
                    | {"reduction": 1 - 1 / figures["ratio"]})
    return rows


def short(task):
    """Returns two agents with prompts of 600 and 1,232 tokens, and 32 tokens of output each."""
    return [Agent("triage", [Ids(f"{task} question", 600, "document")], 32),
            Agent("answer", [Ids(f"{task} question", 600, "document"), Ids(f"{task} page", 600, "document"), "triage"], 32)]


def long(task):
    """Returns a chain of four agents with 400 tokens of output.

    The prompts have 16 k tokens and share no prefix.
    """
    agents = [Agent("part 0", [Ids(f"{task} document 0", 4000, "document")], 100)]
    for n in range(1, 4):
        agents.append(Agent(f"part {n}", [Ids(f"{task} document {n}", 4000, "document"), f"part {n - 1}"], 100))
    return agents


def schedules(simulator, model, device, load, seconds, seed=1):
    """Measures completion times of workflows under all schedules.

    Three short workflows arrive for each long one. They arrive at random times, which are the same
    for all schedules. The figures leave out workflows that arrive before LEARN_S.
    """
    machine = {"model": model, "device": device}
    random = Random(f"mix {seed}")
    sample = simulator.run([kind(f"sample {n}") for n, kind in enumerate((short, short, short, long) * 8)], False, **machine)
    full = [step for step in sample["prefill_steps"] if step["tokens"] >= 512]
    # Mean tokens of a workflow.
    tokens = sum(step["tokens"] for step in sample["prefill_steps"]) / 32
    rate = load / (tokens * sum(step["s"] for step in full) / sum(step["tokens"] for step in full))
    arrivals = list(itertools.takewhile(lambda at: at < seconds, itertools.accumulate(
        random.expovariate(rate) for _ in itertools.count())))
    kinds = [random.choice((short, short, short, long)) for _ in arrivals]
    workflows = [kind(f"task {n}") for n, kind in enumerate(kinds)]
    runs = {name: simulator.run(workflows, overlap, schedule=schedule, arrivals=arrivals, **machine)["workflows"]
            for name, (overlap, schedule) in SCHEDULES.items()}
    simulator.different += sum(ran[agent].tokens != other[agent].tokens for run in runs.values()
                               for ran, other in zip(run, runs["sequential"]) for agent in ran)
    learned = sum(at < LEARN_S for at in arrivals)
    return machine | {"load": load, "workflows_per_s": rate, "workflows": len(arrivals) - learned} | {
        name: completion(kinds[learned:], run[learned:]) for name, run in runs.items()}


def completion(kinds, workflows):
    def figures(times):
        return {"mean_s": statistics.fmean(times), "p95_s": statistics.quantiles(times, n=20, method="inclusive")[-1]}

    times = list(map(end_to_end, workflows))
    return {"all": figures(times)} | {kind.__name__: figures([t for k, t in zip(kinds, times) if k is kind])
                                      for kind in (short, long)}


def plot(rows, path):
    """Writes a plot of the ratios' distribution as a self-contained SVG.

    A curve shows the share of configurations up to each ratio, for one length of prefix.
    """
    width, height, left, bottom = 640, 360, 60, 40
    most = max(row["ratio"] for row in rows) * 1.02
    x = lambda ratio: left + (ratio - 0.9) / (most - 0.9) * (width - left - 20)  # noqa: E731
    y = lambda share: height - bottom - share * (height - bottom - 40)  # noqa: E731
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="white"/>',
           f'<text x="{left}" y="20">Two-agent cascade, simulated: T sequential / T overlapped, {len(rows)} configurations</text>']
    for tenth in range(0, 11, 2):
        out.append(f'<path d="M{left},{y(tenth / 10):.1f}H{width - 20}" stroke="#ddd"/>'
                   f'<text x="{left - 8}" y="{y(tenth / 10) + 4:.1f}" text-anchor="end">{tenth * 10} %</text>')
    for half in range(2, int(most * 2) + 1):
        out.append(f'<path d="M{x(half / 2):.1f},{y(0):.1f}V{y(1):.1f}" stroke="{"#888" if half == 2 else "#ddd"}"/>'
                   f'<text x="{x(half / 2):.1f}" y="{height - bottom + 18}" text-anchor="middle">{half / 2:g}</text>')
    for n, (prefix, color) in enumerate(zip(sorted({row["prefix"] for row in rows}), ("#4477aa", "#ee6677", "#228833"))):
        ratios = sorted(row["ratio"] for row in rows if row["prefix"] == prefix)
        line = "".join(f"{'M' if i == 0 else 'L'}{x(r):.1f},{y((i + 1) / len(ratios)):.1f}" for i, r in enumerate(ratios))
        out.append(f'<path d="{line}" fill="none" stroke="{color}" stroke-width="2"/>'
                   f'<text x="{width - 150}" y="{height - bottom - 20 - 16 * n}" fill="{color}">prefix of {prefix} tokens</text>')
    path.write_text("\n".join([*out, "</svg>"]) + "\n")


def run(workflows, distribution, full):
    simulator = Simulator()
    machines = list(itertools.product(MODELS, DEVICES))
    grid, others = ([(*machine, *rest) for machine, rest in itertools.product(machines, itertools.product(*axes))]
                    for axes in (GRID, OTHERS))
    rows = cascades(simulator, grid if full else grid[::7])
    other_rows = cascades(simulator, others if full else others[::7])
    figures = {"cascades": distribution(rows),
               "other_cascades": distribution(other_rows) | {"not_faster": [row for row in other_rows if row["ratio"] <= 1]},
               "by_prefix": {prefix: distribution([row for row in rows if row["prefix"] == prefix]) for prefix in (0, 1000, 2000)},
               "cascade": rows,
               "ablation": [ablation(simulator, *machine, rate, output)
                            for machine, rate, output in itertools.product(machines, RATES, (32, 64, 128))],
               "chunking": [chunking(simulator, *machine) for machine in machines],
               "workflow": [row for machine in machines for row in whole_workflows(simulator, workflows, *machine)],
               "schedule": [schedules(simulator, *machine, load, seconds=300 if full else 200) for machine, load in
                            itertools.product((("qwen2.5-7b", "a100"), ("qwen2.5-32b", "h200"))[:1 + full], LOADS)]}
    return {"simulated": True, "runs": simulator.runs, "different_outputs": simulator.different,
            "blocks_held": simulator.blocks_held} | figures


def report_schedules(rows):
    print(f"\n{'completion of workflows, s: mean (p95)':38}" + "".join(f"{name:>20}" for name in SCHEDULES))
    for row, kind in itertools.product(rows, ("all", "short", "long")):
        print(f"{row['model'] + ' ' + row['device']:20}{row['load']:5.0%} {kind:12}" + "".join(
            f"{row[name][kind]['mean_s']:11.2f} ({row[name][kind]['p95_s']:6.2f})" for name in SCHEDULES))


def report(figures):
    print("SIMULATED: a roofline of model and device in place of both; see src/backend/simulated")
    line = lambda d: ", ".join(f"{key} {d[key]:.3f}" for key in ("min", "p10", "median", "p90", "max"))  # noqa: E731
    summary = figures["cascades"]
    print(f"\nTwo agents, T from A's first token to B's: overlap is faster in {summary['faster']} of {summary['configurations']}")
    print("ratios: " + line(summary))
    for prefix, part in figures["by_prefix"].items():
        print(f"  prefix {prefix}: {line(part)}")
    others = figures["other_cascades"]
    print(f"other configurations: faster in {others['faster']} of {others['configurations']}; {line(others)}")
    for row in [row for row in figures["cascade"] if row["ratio"] <= 1] + others["not_faster"]:
        print("not faster: " + ", ".join(f"{key} {value:.1f}" if isinstance(value, float) else f"{key} {value}"
                                         for key, value in row.items()))
    print(f"\n{'end to end, ms':40}{'N':>3}{'seq.':>9}{'over.':>9}{'less':>8}")
    for row in figures["workflow"]:
        print(f"{row['model'] + ' ' + row['device'] + ' ' + row['workflow']:47}{row['concurrency']:3}{row['sequential_ms']:9.0f}"
              f"{row['overlapped_ms']:9.0f}{row['reduction']:8.1%}")
    full = [row["speedup"]["full"] for row in figures["ablation"]]
    print("\n8 pipelines, prefix 2,000, T against sequential without sharing, medians: " + ", ".join(
        f"{kind} {statistics.median(row['speedup'][kind] for row in figures['ablation']):.2f}x"
        for kind in figures["ablation"][0]["speedup"]))
    bounds = [row["bound"] for row in figures["ablation"]]
    gains = [row["share_of_possible_gain"] for row in figures["ablation"]]
    print(f"full: {min(full):.2f} to {max(full):.2f}x, at least 2.8x in {sum(s >= 2.8 for s in full)} of {len(full)}; were prefill "
          f"free: {min(bounds):.2f} to {max(bounds):.2f}x, at least 2.8x in {sum(b >= 2.8 for b in bounds)}; "
          f"share of the possible gain: {min(gains):.0%} to {max(gains):.0%}, median {statistics.median(gains):.0%}")
    print("\n1,024 tokens in chunks, against one pass (last chunk to first)")
    for row in figures["chunking"]:
        print(f"{row['model'] + ' ' + row['device']:20}" + "".join(
            f"{c['chunk']:7}: {c['cost']:.2f}x ({c['last_to_first'] - 1:+.1%})" for c in row["chunks"]))
    report_schedules(figures["schedule"])
    print(f"\n{figures['runs']} runs; agents whose tokens differ between the modes: {figures['different_outputs']}; "
          f"blocks held at the end: {figures['blocks_held']}")
