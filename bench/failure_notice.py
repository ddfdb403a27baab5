"""Measures how soon a downstream request receives the failure of its upstream request.

A cluster with one prefill and one decode worker runs at half of its capacity: first, callers that
wait for each answer measure how many requests per second it serves. Then requests of the same kind
arrive at random times, at half of that rate, and workflows fail beside them. In each, a downstream
request waits for an announced upstream request, which then fails. The time from the moment at which
the client sends the failing call to the downstream request's error is measured here, so it includes
two passes through the client's library.

  bench/failure_notice --failures 1000 --json FILE

The failures alternate between two kinds, each over gRPC and over HTTP:

- refused: the upstream request has an invalid parameter.
- cancelled: the upstream request runs, and its client cancels it, or over HTTP closes its
  connection.
"""

import argparse
import datetime
import http.client
import json
import os
import pathlib
import platform
import random
import statistics
import subprocess
import sys
import threading
import time

import baton_client
from baton_client import BatonError, Client, Sampling, TokenIds

ROOT = pathlib.Path(__file__).resolve().parent.parent
RUN = ROOT / "build" / "bench_failure_notice"
KINDS = ("refused", "cancelled")
APIS = ("grpc", "http")
PROMPT, OUTPUT, CALLERS = 64, 16, 16


def prompt():
    """Ids below 1,000 are left out, because some of them are special tokens."""
    return TokenIds(random.choices(range(1000, 40000), k=PROMPT))


def sampling(tokens):
    return Sampling(max_tokens=tokens, temperature=0, ignore_eos=True)


def measure_capacity(client, seconds):
    """Returns the requests per second of CALLERS callers, each of which waits for its answers."""
    flow, ends = client.workflow("capacity"), []
    begin = time.monotonic()

    def call():
        while time.monotonic() - begin < seconds:
            flow.agent("load", prompt(), sampling=sampling(OUTPUT)).result()
            ends.append(time.monotonic())

    callers = [threading.Thread(target=call) for _ in range(CALLERS)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    return len(ends) / (max(ends) - begin)


class Load:
    """Requests that arrive at random times, with `rate` of them per second on average."""

    def __init__(self, client, rate):
        self._flow, self._rate, self._over = client.workflow("load"), rate, threading.Event()
        self._runs = []
        self._thread = threading.Thread(target=self._submit)

    def _submit(self):
        while not self._over.wait(random.expovariate(self._rate)):
            self._runs.append(self._flow.agent("load", prompt(), sampling=sampling(OUTPUT)))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        """Raises BatonError if a request failed."""
        self._over.set()
        self._thread.join()
        for run in self._runs:
            run.result()

    @property
    def submitted(self):
        return len(self._runs)


def error_of(run):
    try:
        run.result()
    except BatonError as error:
        return error
    sys.exit("failure_notice: a request ended that should have failed")


def fail_over_grpc(flow, kind, _):
    """Lets one upstream request fail. Returns the seconds until its downstream request's error."""
    upstream = flow.announce("upstream")
    downstream = flow.agent("downstream", "Read ", upstream, sampling=sampling(1))
    if kind == "refused":
        # The router has the downstream request when it answers another call of this connection.
        flow.agent("later", "x", sampling=sampling(1)).result()
        begin = time.monotonic()
        flow.agent(upstream, prompt(), sampling=Sampling(top_p=2))
    else:
        run = flow.agent(upstream, prompt(), sampling=sampling(1000))
        next(run.chunks())
        begin = time.monotonic()
        run.cancel()
    error_of(downstream)
    return downstream.times["ended"] - begin


def post(address, flow, **fields):
    """Sends a completion on a connection of its own, and returns this connection."""
    connection = http.client.HTTPConnection(address)
    body = {"workflow": flow.id, "temperature": 0, "ignore_eos": True} | fields
    connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
    return connection


def await_request(flow):
    """Waits until the router has a request of the workflow."""
    while True:
        try:
            if flow.trace().requests:
                return
        except BatonError as error:
            if error.code.name != "NOT_FOUND":
                raise
        time.sleep(0.001)


def fail_over_http(flow, kind, address):
    """As fail_over_grpc."""
    upstream, ended = flow.announce("upstream").id, []
    segments = [{"text": "Read "}, {"output_of": {"request_id": upstream, "announced": True}}]
    downstream = post(address, flow, segments=segments, max_tokens=1, agent="downstream")

    def read():
        answer = downstream.getresponse()
        ended.append(time.monotonic())
        root = json.load(answer).get("error", {}).get("root", {}).get("request_id")
        if root != upstream:
            ended.clear()

    reader = threading.Thread(target=read)
    reader.start()
    await_request(flow)
    request = {"request_id": upstream, "prompt": prompt().ids, "agent": "upstream"}
    if kind == "refused":
        begin = time.monotonic()
        post(address, flow, **request, top_p=2).getresponse().read()
    else:
        stream = post(address, flow, **request, max_tokens=1000, stream=True)
        answer = stream.getresponse()
        while not answer.readline().startswith(b"data: "):
            pass
        begin = time.monotonic()
        answer.close()
        stream.close()
    reader.join()
    downstream.close()
    if not ended:
        sys.exit("failure_notice: a request ended that should have failed")
    return ended[0] - begin


def summary(seconds):
    milliseconds = sorted(1000 * value for value in seconds)
    cuts = statistics.quantiles(milliseconds, n=100, method="inclusive")
    return {"failures": len(milliseconds), "median_ms": round(cuts[49], 2), "p99_ms": round(cuts[98], 2),
            "max_ms": round(milliseconds[-1], 2)}


def cluster(*arguments):
    subprocess.run([ROOT / "tools" / "cluster", "--run", RUN, *arguments], check=True, stdout=subprocess.DEVNULL)


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--failures", type=int, default=1000, help="of all kinds together, at least eight")
    parser.add_argument("--seconds", type=float, default=20, help="how long the capacity is measured")
    parser.add_argument("--model-dir", default=ROOT / "models" / "smollm2-135m-instruct", help="model of the cluster")
    parser.add_argument("--json", help="write the figures to this file")
    return parser.parse_args()


def measure(args):
    cluster("up", args.model_dir, "--prefill", "1", "--decode", "1", "--threads", "1", "--listen", "127.0.0.1:0")
    state = json.loads((RUN / "cluster.json").read_text())
    with Client(state["router"]) as client:
        capacity = measure_capacity(client, args.seconds)
        kinds = [(api, kind) for kind in KINDS for api in APIS]
        fail = {"grpc": fail_over_grpc, "http": fail_over_http}
        times = {kind: [] for kind in kinds}
        begin = time.monotonic()
        with Load(client, capacity / 2) as load:
            for n in range(args.failures):
                api, kind = kinds[n % len(kinds)]
                times[api, kind].append(fail[api](client.workflow("failures"), kind, state["http"]))
            rate = load.submitted / (time.monotonic() - begin)
    figures = {"capacity_per_s": round(capacity, 2), "load_per_s": round(rate, 2)}
    for api in APIS:
        figures[api] = {kind: summary(times[api, kind]) for kind in KINDS}
    return figures | {"all": summary(sum(times.values(), []))}


def main():
    args = parse_args()
    try:
        figures = measure(args)
    except baton_client.BatonError as error:
        sys.exit(f"failure_notice: {error}")
    except subprocess.CalledProcessError:
        sys.exit("failure_notice: the cluster did not start; its output is above")
    finally:
        cluster("down")
    for name, value in figures.items():
        print(f"{name}: {value}")
    if args.json:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
        where = {"date": datetime.date.today().isoformat(), "commit": commit.stdout.strip(),
                 "machine": f"{platform.machine()}, {os.cpu_count()} cores",
                 "setup": "one prefill and one decode worker, one thread each; the load generator beside them"}
        pathlib.Path(args.json).write_text(json.dumps(where | figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
