"""Kills, stops and restarts workers under load and compares every answer with a known one.

  tools/chaos [--requests 200] [--streams 8 | --rate 2] [--faults kill:decode] [--period 10]

A router, prefill workers and decode workers run on free ports of 127.0.0.1. The program first asks
each prompt once without faults. The load then repeats these prompts while the schedule of faults
runs. Half of the prompts are sampled greedily. The others are sampled with a seed and a
penalty, and every second one of them has a stop string. Every answer must have the same tokens,
text and usage again.

`--faults` is a list of ACTION:ROLE. The schedule repeats the list with one fault per `--period`
seconds. The workers of a role take turns.

- kill: SIGKILL. A new process starts at the same address after --down seconds.
- pause: SIGSTOP for --down seconds, then SIGCONT.
- stop: SIGTERM. A new process starts at the same address when the old one has ended.

One third of the turns is a session of two requests. The second prompt is the first prompt, its
answer and new tokens, so it reads the KV of both. One third is a graph of two requests, of which
the second one reads the output of the first one. Environment variables reach the processes, so
UCX_TLS=tcp,self runs the hand-off over TCP.

The report counts requests, failures and wrong answers. For each kind of request it has the longest
gap between two tokens and the share of prompt tokens that were cached. It has latencies with and
without faults, the growth of memory, and the blocks in use at the end. The exit status is 1 after a
failure, a wrong answer or a block that stays in use, and if the load ended before the first fault.
The program then keeps the logs of the processes and prints their folder.
"""

import argparse
import json
import math
import os
import pathlib
import shutil
import sys
import tempfile
import time

from faults import report, schedule
from faults.cluster import Cluster, Memory
from faults.load import Load, Prompts

MODEL = pathlib.Path(__file__).resolve().parent.parent.parent / "test" / "golden" / "tiny_llama3_bf16"
# Quarantined blocks come back within four leases (docs/design/handoff_leases.md).
SETTLE_SECONDS = 60


def read_options():
    parser = argparse.ArgumentParser(prog="tools/chaos", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, help="requests of the load; 200 without --seconds")
    parser.add_argument("--seconds", type=float, default=math.inf, help="longest time of the load")
    parser.add_argument("--streams", type=int, default=8, help="turns at a time; a session or a graph is one turn of two requests")
    parser.add_argument("--rate", type=float, help="turns per second, in place of --streams")
    parser.add_argument("--calm", type=float, default=0, help="seconds of the same load before the first fault")
    parser.add_argument("--tokens", type=int, default=200, help="tokens of each answer; the context also holds the prompt and another answer")
    parser.add_argument("--faults", type=lambda text: [schedule.named(part) for part in text.split(",") if part],
                        default=[("kill", "decode")], help="ACTION:ROLE,...; empty for none")
    parser.add_argument("--period", type=float, default=10, help="seconds between two faults")
    parser.add_argument("--down", type=float, default=1, help="seconds until a killed or paused worker runs again")
    parser.add_argument("--workers", type=int, default=2, help="workers of each role")
    parser.add_argument("--grace", type=float, default=1, help="--grace of the workers")
    parser.add_argument("--kv-memory-mb", type=int, default=64, help="KV memory of each worker")
    parser.add_argument("--worker-flags", type=str.split, default=[], help="further flags of the workers: --worker-flags=--guard-kv")
    parser.add_argument("--router-flags", type=str.split, default=[], help="further flags of the router")
    parser.add_argument("--model", type=pathlib.Path, default=MODEL, help="Hugging Face directory")
    parser.add_argument("--context", type=int, help="tokens of context, instead of those of the model's config.json")
    parser.add_argument("--seed", type=int, default=1, help="seed of the prompts")
    parser.add_argument("--json", type=pathlib.Path, help="file for the report")
    options = parser.parse_args()
    if options.requests is None:
        options.requests = 200 if options.seconds == math.inf else sys.maxsize
    return options


def run_load(load, options, requests, seconds):
    """Runs the load and returns its answers."""
    before = len(load.answers)
    if options.rate:
        load.run_rate(options.rate, requests, seconds)
    else:
        load.run_streams(options.streams, requests, seconds)
    return load.answers[before:]


def run(cluster, options):
    """Runs the load without and with faults. Returns the report."""
    load = Load(Prompts(cluster.router.http, options.tokens, options.seed))
    calm = run_load(load, options, sys.maxsize, options.calm) if options.calm else []
    memory = Memory(cluster)
    faults = schedule.Schedule(cluster, options.faults, options.period, options.down)
    begin = time.monotonic()
    try:
        answers = run_load(load, options, options.requests, options.seconds)
        seconds = time.monotonic() - begin
    finally:
        memory.stop()
        faults.stop()
    deadline = time.monotonic() + SETTLE_SECONDS
    while (left := cluster.blocks_left()) > 0 and time.monotonic() < deadline:
        time.sleep(0.2)
    return {**report.summary(calm, answers, faults.done), "seconds": round(seconds, 1),
            "turns_left_out": load.shed, "blocks_left": left,
            "memory_growth_mb_per_minute": memory.growth_mb_per_minute()}


def with_context(model, tokens, copy):
    """Copies a model to the folder `copy`, with another length of context. Returns the copy."""
    shutil.copytree(model, copy)
    file = copy / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "max_position_embeddings": tokens}))
    return copy


def run_cluster(folder, options):
    """Runs a cluster whose logs are in `folder`. Returns the report."""
    model = with_context(options.model, options.context, folder / "model") if options.context else options.model
    flags = ["--grace", str(options.grace), "--kv-memory-mb", str(options.kv_memory_mb), *options.worker_flags]
    cluster = Cluster(folder, model, options.workers, flags, options.router_flags)
    try:
        result = run(cluster, options)
    finally:
        cluster.end()
    result["setup"] = {"tokens": options.tokens, "streams": None if options.rate else options.streams,
                       "rate": options.rate, "workers": options.workers, "period": options.period,
                       "down": options.down, "grace": options.grace,
                       "kv_memory_mb": options.kv_memory_mb, "worker_flags": options.worker_flags,
                       "ucx_tls": os.environ.get("UCX_TLS"), "model": options.model.name,
                       "context": options.context, "seed": options.seed}
    return result


def main():
    options = read_options()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="baton-chaos-"))
    passed = False
    try:
        result = run_cluster(folder, options)
        print(json.dumps(result, indent=2))
        if options.json:
            options.json.write_text(json.dumps(result, indent=2) + "\n")
        print(f"chaos: {report.line(result)}", file=sys.stderr)
        passed = not (result["failures"] or result["wrong"] or result["blocks_left"])
        if options.faults and not result["faults"]:
            print(f"the load ended before the first fault, after {result['seconds']} s", file=sys.stderr)
            passed = False
    finally:
        if passed:
            shutil.rmtree(folder)
        else:
            print(f"the logs of all processes are in {folder}", file=sys.stderr)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
