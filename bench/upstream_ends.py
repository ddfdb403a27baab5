"""Measures how many prompt tokens are left to compute when an upstream request ends.

Each start is a new cluster with one prefill and one decode worker that have one thread each.
Workflows then run one after the other. In a workflow, a downstream prompt of 95 tokens contains the
64 tokens of an upstream request's output, and both are submitted at once. Prompts are random token
ids. The tokens that are left belong to steps that end after the upstream request. The output's last
block and the 16 tokens behind the output are always among them, so about 30 is the least.

  bench/upstream_ends --starts 20 --json FILE

There are as many starts of each of two kinds, which alternate:

- undisturbed: the program disturbs nothing.
- held_up: while the first workflow's output is written, the program stops the prefill worker for
  0.2 s whenever it has run for 20 ms. So the first short steps after the start are held up.
"""

import argparse
import contextlib
import datetime
import itertools
import json
import os
import pathlib
import platform
import random
import signal
import statistics
import subprocess
import sys
import threading
import time

import baton_client
from baton_client import Client, Sampling, TokenIds

ROOT = pathlib.Path(__file__).resolve().parent.parent
RUN = ROOT / "build" / "bench_upstream_ends"
KINDS = ("undisturbed", "held_up")
OUTPUT, BEFORE, BEHIND = 64, 15, 16
STOPPED_S, RUNNING_S = 0.2, 0.02


def random_ids(count):
    """Ids below 1,000 are left out, because some of them are special tokens."""
    return TokenIds(random.choices(range(1000, 40000), k=count))


@contextlib.contextmanager
def held_up(pid):
    """Stops the process for STOPPED_S whenever it has run for RUNNING_S."""
    ended = threading.Event()

    def hold_up():
        while not ended.wait(RUNNING_S):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(STOPPED_S)
            os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=hold_up)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def run_workflow(client, prefill_pid):
    """Returns the prompt tokens in steps that end after the upstream request.

    Holds the prefill worker up unless `prefill_pid` is None.
    """
    flow = client.workflow("upstream-ends")
    written = Sampling(max_tokens=OUTPUT, temperature=0, ignore_eos=True)
    upstream = flow.agent("A", random_ids(64), sampling=written)
    downstream = flow.agent("B", random_ids(BEFORE), upstream, random_ids(BEHIND), sampling=Sampling(max_tokens=1))
    if prefill_pid is not None:
        next(upstream.chunks())
        with held_up(prefill_pid):
            upstream.result()
    downstream.result()
    traced = {request.agent: request for request in flow.trace().requests}
    return sum(span.tokens for span in traced["B"].spans
               if span.phase == "prefill" and span.end_us > traced["A"].ended_us)


def cluster(*arguments):
    subprocess.run([ROOT / "tools" / "cluster", "--run", RUN, *arguments], check=True, stdout=subprocess.DEVNULL)


def run_start(args, kind):
    """Starts a cluster, and returns the tokens left in each of its workflows."""
    try:
        cluster("up", args.model_dir, "--prefill", "1", "--decode", "1", "--threads", "1", "--listen", "127.0.0.1:0")
        state = json.loads((RUN / "cluster.json").read_text())
        prefill = next(p["pid"] for p in state["processes"] if p["program"] == "baton-prefill")
        with Client(state["router"]) as client:
            return [run_workflow(client, prefill if kind == "held_up" and n == 0 else None) for n in range(args.workflows)]
    finally:
        cluster("down")


def quantiles(values):
    cuts = statistics.quantiles(values, n=10, method="inclusive")
    return {"min": min(values), "median": cuts[4], "p90": cuts[8], "max": max(values),
            "at_most_32": sum(value <= 32 for value in values) / len(values)}


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=20, help="starts of each kind, at least two")
    parser.add_argument("--workflows", type=int, default=6, help="workflows after each start")
    parser.add_argument("--model-dir", default=ROOT / "models" / "smollm2-135m-instruct", help="model of the cluster")
    parser.add_argument("--json", help="write the figures to this file")
    return parser.parse_args()


def main():
    args = parse_args()
    starts = {kind: [] for kind in KINDS}
    for _, kind in itertools.product(range(args.starts), KINDS):
        try:
            starts[kind].append(run_start(args, kind))
        except baton_client.BatonError as error:
            sys.exit(f"upstream_ends: {error}")
        except subprocess.CalledProcessError:
            sys.exit("upstream_ends: the cluster did not start; its output is above")
        print(f"{kind}: tokens left, by workflow:", *starts[kind][-1], flush=True)
    figures = {"prompt_tokens": BEFORE + OUTPUT + BEHIND}
    for kind, lefts in starts.items():
        figures[kind] = {"first": quantiles([left[0] for left in lefts]),
                         "later": quantiles([tokens for left in lefts for tokens in left[1:]]), "starts": lefts}
        print(*(f"{kind}, {which}: {figures[kind][which]}" for which in ("first", "later")), sep="\n")
    if args.json:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
        where = {"date": datetime.date.today().isoformat(), "commit": commit.stdout.strip(),
                 "machine": f"{platform.machine()}, {os.cpu_count()} cores",
                 "setup": "one prefill and one decode worker, one thread each; the load generator beside them"}
        pathlib.Path(args.json).write_text(json.dumps(where | figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
