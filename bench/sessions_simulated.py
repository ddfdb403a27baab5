"""The simulated part of bench/sessions.

Four agents with their own models run on 4 + 4 simulated A100s. The program
build/*/bin/bench_simulator simulates them in virtual time. All figures are simulated.

- baseline: a prefill and a decode worker for each model. Each model prefills the whole context.
- shared: four prefill workers of one module, and a decode worker for each decoder. The names of
  further systems state their routing and shadow prefill.
- one prefill worker: one prefill worker of the module, with the same decode workers. The sessions
  need more KV than its memory holds.
- ..., host memory: each prefill worker keeps evicted KV in 128 GB of host memory. That is an eighth
  of the 1 TB beside eight A100s. Copies run at 20 GB/s, the usual rate of PCIe 4.0 with page-locked
  memory.

--max-sessions is auto, its default, unless the name states another value. Decode workers take 256
requests in a step, the default of vLLM on such GPUs. Baton's own default is 64, for CPUs. The KV
memory of a decode worker also bounds its requests. It has 56 GB beside Llama-3.1-8B. All these
values hold for all systems.
"""

import concurrent.futures
import itertools
import json
import pathlib
import statistics
import subprocess
import sys
import time
from random import Random

from session_profiles import AGENTS, sessions

ROOT = pathlib.Path(__file__).resolve().parent.parent
def group(prefill_workers):
    return {"module": "base", "prefill_workers": prefill_workers, "decoders": AGENTS}


PAIRS = {"groups": [group(1) | {"module": agent, "decoders": [agent]} for agent in AGENTS], "shadow_prefill": False}
AUTO, HOST = {"max_sessions": 0}, {"host_gb": 128}
OURS, ONE = {"groups": [group(4)]} | AUTO, {"groups": [group(1)]} | AUTO
# Name -> (settings of the simulator, colour in plots).
SYSTEMS = {
    "baseline": (PAIRS | AUTO, "#ee6677"),
    "baseline, any number": (PAIRS, "#882255"),
    "shared": (OURS, "#4477aa"),
    "shared, no shadow": (OURS | {"shadow_prefill": False}, "#228833"),
    "shared, least-loaded": (OURS | {"routing": "least-loaded"}, "#ccbb44"),
    "shared, random": (OURS | {"routing": "random"}, "#aa3377"),
    "one prefill worker": (ONE, "#332288"),
    "one prefill worker, any number": ({"groups": [group(1)]}, "#66ccee"),
    "one prefill worker, 100 at a time": (ONE | {"max_sessions": 100}, "#bbbbbb"),
    "baseline, host memory": (PAIRS | AUTO | HOST, "#ffaabb"),
    "shared, host memory": (OURS | HOST, "#99ddff"),
    "one prefill worker, host memory": (ONE | HOST, "#44bb99"),
    "one prefill worker, any number, host memory": ({"groups": [group(1)]} | HOST, "#ee8866"),
}
MAX_BATCH = 256
COMPARED, OTHERS = ("baseline", "shared", "shared, no shadow"), ("shared, least-loaded", "shared, random")
UNBOUNDED = ("baseline, any number",)
UNDER_PRESSURE = ("one prefill worker", "one prefill worker, any number", "one prefill worker, 100 at a time")


def with_and_without_host(*systems):
    return [f"{system}{host}" for system in systems for host in ("", ", host memory")]




def p95(values):
    return statistics.quantiles(values, n=20, method="inclusive")[-1]


def binary():
    built = sorted(ROOT.glob("build/*/bin/bench_simulator"), key=lambda path: path.stat().st_mtime)
    if not built:
        sys.exit("sessions: build/*/bin/bench_simulator is not built (cmake --build ... --target bench_simulator)")
    return built[-1]


def turn_figures(ran):
    """Returns figures of sessions. `ran` has the turns of each session."""
    turns = list(itertools.chain.from_iterable(ran))
    end_to_end = [session[-1]["ended"] - session[0]["started"] for session in ran]
    ttft = [turn["first"] - turn["started"] for turn in turns]
    seconds = max(turn["ended"] for turn in turns) - min(turn["started"] for turn in turns)
    prompt, cached = (sum(turn[key] for turn in turns) for key in ("prompt_tokens", "cached_tokens"))
    return {"sessions": len(ran), "turns": len(turns), "p50_s": statistics.median(end_to_end), "p95_s": p95(end_to_end),
            "tokens_per_s": sum(turn["output_tokens"] for turn in turns) / seconds,
            "ttft_p50_s": statistics.median(ttft), "ttft_p95_s": p95(ttft), "hit_ratio": cached / prompt,
            "prompt_tokens": prompt, "seconds": seconds}


def figures(result, prefill_workers):
    of_turns = turn_figures([session for session in result["sessions"] if session])
    seconds = of_turns.pop("seconds")
    return of_turns | {
        "prefill_tokens": result["prefill_tokens"], "gb_pushed": result["bytes_pushed"] / 1e9,
        "prefill_busy": result["prefill_s"] / seconds / prefill_workers, "copy_busy": result["copy_s"] / seconds / prefill_workers,
        "host_tokens": result["host_tokens"], "decode_busy": result["decode_s"] / seconds / 4,
        "refused": result["refused"], "blocks_held": result["blocks_held"]}


def simulate(row):
    """Simulates a run. Returns `row`, which names the run, with the figures."""
    random = Random("arrivals")
    todo = sessions(row["profile"], row["sessions"], pauses=row["pauses"])
    run = {"model": row["model"], "device": "a100", "max_batch": MAX_BATCH, "sessions": todo} | SYSTEMS[row["system"]][0]
    if "rate" in row:
        run["arrivals"] = list(itertools.accumulate(random.expovariate(row["rate"]) for _ in todo))
    else:
        run["concurrent"] = row["concurrent"]
    began = time.monotonic()
    done = subprocess.run([binary()], input=json.dumps(run) + "\n", stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit("sessions: the simulator ended; its output is above")
    workers = sum(group["prefill_workers"] for group in SYSTEMS[row["system"]][0]["groups"])
    row = row | figures(json.loads(done.stdout), workers)
    print(f"{row['model']:13} {row['profile']:10} {row['system']:43} " + (
        f"rate {row['rate']:5}" if "rate" in row else f"N {row['concurrent']:8}") + f"  p95 {row['p95_s']:7.2f} s  "
        f"{row['tokens_per_s']:7.0f} tok/s  TTFT {1e3 * row['ttft_p50_s']:6.0f} / {1e3 * row['ttft_p95_s']:7.0f} ms  hits "
        f"{row['hit_ratio']:4.0%}  {row['gb_pushed']:7.1f} GB  busy {row['prefill_busy']:4.0%} {row['copy_busy']:4.0%} {row['decode_busy']:4.0%}  "
        f"refused {row['refused']}  ({time.monotonic() - began:.0f} s)", flush=True)
    return row


def grid(args):
    """Returns the runs. If time is short, the last ones are left out."""
    def rows(model, profile, systems, axis, values, count):
        return [{"model": model, "profile": profile, "pauses": args.pauses, "system": system, axis: value, "sessions": count(value)}
                for value, system in itertools.product(values, systems)]

    llama, qwen = "llama-3.1-8b", "qwen3-14b"
    # Functions that return a number of sessions.
    many, some, for_40_s, for_60_s = (
        lambda n: max(64, 3 * n), lambda n: max(48, 3 * n // 2), lambda rate: max(64, 40 * rate), lambda rate: max(96, 60 * rate))
    if args.host_tier:
        runs = rows(llama, "ReAct", with_and_without_host(*UNDER_PRESSURE[:2]), "concurrent", (128, 256, 512), some)
        runs += rows(llama, "ReAct", with_and_without_host(*COMPARED[:2]), "concurrent", (512, 1024), some)
        if args.full:
            runs += rows(llama, "ReAct", with_and_without_host(*UNDER_PRESSURE[:2]), "concurrent", (1024,), some)
            runs += rows(llama, "ReAct", with_and_without_host(*COMPARED[:2]), "concurrent", (128, 256), some)
            runs += rows(llama, "Reflexion", with_and_without_host(*UNDER_PRESSURE[:2]), "concurrent", (64, 128), some)
    elif args.pressure:
        runs = rows(llama, "ReAct", UNDER_PRESSURE, "concurrent", (128, 256, 512), many)
        runs += rows(llama, "Reflexion", UNDER_PRESSURE[:2], "concurrent", (32, 64, 128), some)
        if args.full:
            runs += rows(llama, "ReAct", UNDER_PRESSURE, "concurrent", (64, 1024), many)
            runs += rows(llama, "Reflexion", UNDER_PRESSURE[:2], "concurrent", (16,), many)
    if args.host_tier or args.pressure:
        return [row | {"sessions": int(row["sessions"])} for row in runs]
    both = COMPARED[:2]
    runs = rows(llama, "ReAct", COMPARED, "concurrent", (16, 64, 256), many)
    runs += rows(llama, "ReAct", both, "rate", (2, 8, 16), for_40_s)
    runs += rows(llama, "Reflexion", both, "concurrent", (16, 64), some)
    runs += rows(llama, "ReAct", OTHERS, "concurrent", (64,), many)
    runs += rows(qwen, "ReAct", both, "concurrent", (16, 64), many)
    if args.full:
        runs += rows(llama, "ReAct", (*both, *UNBOUNDED), "concurrent", (512,), many)
        runs += rows(llama, "ReAct", both, "concurrent", (1024,), many)
        runs += rows(llama, "ReAct", both, "rate", (20, 24), for_40_s)
        runs += rows(qwen, "ReAct", both, "rate", (8, 12), for_40_s)
        runs += rows(llama, "Reflexion", both, "rate", (1, 2), for_60_s)
        runs += rows(qwen, "ReAct", (*both, *UNBOUNDED), "concurrent", (256,), many)
        runs += rows(llama, "Reflexion", both, "concurrent", (128,), some)
        runs += rows(llama, "ReAct", both, "rate", (12,), for_40_s)
        runs += rows(llama, "ReAct", both, "concurrent", (128,), many)
        runs += rows(qwen, "ReAct", both, "rate", (4,), for_40_s)
        runs += rows(qwen, "ReAct", both, "concurrent", (128,), many)
        runs += rows(qwen, "Reflexion", both, "concurrent", (16, 64), some)
        runs += rows(llama, "Reflexion", both, "rate", (0.5, 3), for_60_s)
        runs += rows(qwen, "Reflexion", both, "rate", (0.5, 1), for_60_s)
        runs += rows(qwen, "ReAct", both, "concurrent", (512,), many)
        runs += rows(llama, "Reflexion", (*both, *UNBOUNDED), "concurrent", (256,), some)
    return [row | {"sessions": int(row["sessions"])} for row in runs]


def ratios(rows):
    """Returns the ratios of baseline and shared for each pair of runs."""
    by_run = {}
    for row in rows:
        key = (row["model"], row["profile"], "rate" if "rate" in row else "concurrent", row.get("rate", row.get("concurrent")))
        by_run.setdefault(key, {})[row["system"]] = row
    return [{"model": model, "profile": profile, axis: value,
             "p95": systems["baseline"]["p95_s"] / systems["shared"]["p95_s"],
             "throughput": systems["shared"]["tokens_per_s"] / systems["baseline"]["tokens_per_s"]}
            for (model, profile, axis, value), systems in by_run.items() if {"baseline", "shared"} <= set(systems)]


def run(args, done=(), write=lambda figures: None):
    """Runs all simulations of the command line `args`.

    Runs in `done` are not repeated. Calls `write` with the figures after each run.
    """
    end = time.monotonic() + args.seconds
    rows, left = [], 0

    def ran(row):
        had = [other for other in done if other.items() >= row.items()]
        return had[0] if had else simulate(row) if time.monotonic() < end else None

    def so_far():
        return {"simulated": True, "left_out": left, "ratios": ratios(rows), "runs": rows,
                "blocks_held": sum(row["blocks_held"] for row in rows)}

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for row in pool.map(ran, grid(args)):
            rows, left = (rows + [row], left) if row else (rows, left + 1)
            write(so_far())
    return so_far()


def panel(out, rows, axis, measure, title, at):
    """Adds a plot of `measure` against `axis` to `out`, with logarithmic axes.

    The plot has a line for each system and profile.
    """
    left, top, width, height = at
    points = [(row[axis], row[measure]) for row in rows]
    if not points:
        return
    from math import log

    low, high = (f(y for _, y in points) for f in (min, max))
    first, last = (f(x for x, _ in points) for f in (min, max))
    x = lambda v: left + 50 + (width - 70) * log(v / first) / max(log(last / first), 1e-9)  # noqa: E731
    y = lambda v: top + height - 25 - (height - 55) * log(v / low) / max(log(high / low), 1e-9)  # noqa: E731
    out.append(f'<text x="{left + 8}" y="{top + 16}">{title}</text>')
    for tick in sorted({v for v, _ in points}):
        out.append(f'<text x="{x(tick):.1f}" y="{top + height - 8}" text-anchor="middle">{tick:g}</text>')
    for tick in (low, (low * high) ** 0.5, high):
        out.append(f'<path d="M{left + 50},{y(tick):.1f}H{left + width - 20}" stroke="#ddd"/>'
                   f'<text x="{left + 46}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:,.{0 if tick >= 100 else 1}f}</text>')
    for profile, (system, (_, color)) in itertools.product(("ReAct", "Reflexion"), SYSTEMS.items()):
        line = sorted((row[axis], row[measure]) for row in rows if (row["profile"], row["system"]) == (profile, system))
        dashes = ' stroke-dasharray="5 3"' if profile == "Reflexion" else ""
        path = "".join(f"{'L' if n else 'M'}{x(a):.1f},{y(b):.1f}" for n, (a, b) in enumerate(line))
        out.append(f'<path d="{path}" fill="none" stroke="{color}" stroke-width="2"{dashes}/>' if path else "")
        out += [f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="3" fill="{color}"/>' for a, b in line]


def plot(rows, path):
    axes = [(axis, of) for axis, of in (("concurrent", "sessions at a time"), ("rate", "sessions/s")) if any(axis in row for row in rows)]
    panels = list(itertools.product(axes, (("p95_s", "p95 of a session, s"), ("tokens_per_s", "output tokens/s"))))
    models = [model for model in ("llama-3.1-8b", "qwen3-14b") if any(row["model"] == model for row in rows)]
    width, height = 400, 250
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {len(panels) * width} {height * len(models) + 50}" '
           'font-family="sans-serif" font-size="12">',
           f'<rect width="{len(panels) * width}" height="{height * len(models) + 50}" fill="white"/>',
           '<text x="8" y="18">Sessions of four agents on A100s, simulated; dashed: Reflexion, else ReAct</text>']
    drawn = {row["system"] for row in rows}
    for n, system in enumerate(name for name in SYSTEMS if name in drawn):
        out.append(f'<text x="{8 + 220 * n}" y="38" fill="{SYSTEMS[system][1]}">{system}</text>')
    for m, (n, ((axis, of), (measure, what))) in itertools.product(range(len(models)), enumerate(panels)):
        panel(out, [row for row in rows if row["model"] == models[m] and axis in row], axis, measure,
              f"{models[m]}: {what}, by {of}", (n * width, 50 + m * height, width, height))
    path.write_text("\n".join([*out, "</svg>"]) + "\n")


def report(figures):
    print("\nSIMULATED: a roofline of model and device in place of both; see src/backend/simulated. baseline / shared:")
    for row in figures["ratios"]:
        print(f"{row['model']:13} {row['profile']:10} " + (f"rate {row['rate']:5}" if "rate" in row else f"N {row['concurrent']:8}")
              + f"  p95 {row['p95']:5.2f}x less  throughput {row['throughput']:5.2f}x")
    print(f"{len(figures['runs'])} runs, {figures['left_out']} left out for want of time; blocks held at the end: {figures['blocks_held']}")
