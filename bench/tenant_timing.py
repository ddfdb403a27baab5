"""Measures whether response times reveal the data of another tenant.

  tools/python bench/tenant_timing.py [--rounds 400] [--model DIR] [--json FILE]

The program starts a `baton serve` with keys and sends probes in random order. A probe of tenant
alpha uses data of tenant beta, or data that no tenant has. The report has, for each kind of probe:
- both medians
- their difference with a 95 % interval (bootstrap)
- the p of a rank test (Mann-Whitney, normal approximation)

The control is a difference that must appear: a cached prompt of the same tenant. Stop other work
first, because it adds noise.

A round adds about 1,900 tokens to the cache, and 1,500 rounds fill it. The probed data belongs to
its own round, so it is still cached. In a full cache, every newly computed prompt evicts blocks,
with both kinds of data.
"""

import argparse
import datetime
import hashlib
import http.client
import json
import math
import os
import pathlib
import platform
import random
import re
import secrets
import socket
import statistics
import subprocess
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROMPT_TOKENS = 320


class Tenant:
    """A tenant's key and persistent connection."""

    def __init__(self, address, key):
        self.connection = http.client.HTTPConnection(address)
        self.connection.connect()
        self.connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.key = key

    def ask(self, path, body=None, key=None):
        """Sends a request. Returns (status, microseconds to the end of the answer)."""
        text = None if body is None else json.dumps(body)
        began = time.perf_counter_ns()
        self.connection.request(
            "GET" if body is None else "POST", path, text, {"Authorization": f"Bearer {key or self.key}"}
        )
        answer = self.connection.getresponse()
        answer.read()
        return answer.status, (time.perf_counter_ns() - began) / 1000


def prompt(tokens, session=None):
    return {"prompt": tokens, "max_tokens": 1, "temperature": 0, **({"session_id": session} if session else {})}


def draw():
    return [random.randrange(10, 250) for _ in range(PROMPT_TOKENS)]


def reference(request_id):
    upstream = {"segments": [{"output_of": {"request_id": request_id}}]}
    return {"segments": upstream, "sampling": {"max_tokens": 1}}


def probes(alpha, beta, round_):
    """Returns pairs of probes by kind: with data of the other tenant, and with data of no tenant.

    A probe is a function that only measures. Any other work in it would be a pause, in which the
    server could finish its work for the last answer.
    """

    def completed(tenant, body):
        status, micros = tenant.ask("/v1/completions", body)
        assert status == 200, status
        return micros

    def refused(status_wanted, *question):
        status, micros = alpha.ask(*question)
        assert status == status_wanted, status
        return micros

    known, own, session, name = draw(), draw(), f"s{round_}", f"r{round_}"
    completed(beta, {**prompt(known, session), "request_id": name})
    completed(alpha, prompt(own))
    near = alpha.key[:-1] + ("0" if alpha.key[-1] != "0" else "1")
    unknown = secrets.token_hex(len(near) // 2)

    def both(measure, others, nobodys):
        return (lambda: measure(*others), lambda: measure(*nobodys))

    return {
        "prompt": both(completed, (alpha, prompt(known)), (alpha, prompt(draw()))),
        "session": both(completed, (alpha, prompt(draw(), session)), (alpha, prompt(draw(), f"n{round_}"))),
        "reference": both(refused, (404, "/generate", reference(name)), (404, "/generate", reference(f"n{round_}"))),
        "key": both(refused, (401, "/v1/models", None, near), (401, "/v1/models", None, unknown)),
        "control": both(completed, (alpha, prompt(own)), (alpha, prompt(draw()))),
    }


def rank_test(a, b):
    """Returns the two-sided p of equal distributions. REQUIRES: the times have almost no ties."""
    ranks = {index: rank for rank, index in enumerate(sorted(range(len(a) + len(b)), key=(a + b).__getitem__), 1)}
    u = sum(ranks[i] for i in range(len(a))) - len(a) * (len(a) + 1) / 2
    spread = math.sqrt(len(a) * len(b) * (len(a) + len(b) + 1) / 12)
    return math.erfc(abs(u - len(a) * len(b) / 2) / spread / math.sqrt(2))


def compare(others, nobodys):
    def difference(a, b):
        return statistics.median(a) - statistics.median(b)

    drawn = sorted(
        difference(random.choices(others, k=len(others)), random.choices(nobodys, k=len(nobodys))) for _ in range(2000)
    )
    return {
        "median_us": round(statistics.median(others), 1),
        "median_us_of_nobodys": round(statistics.median(nobodys), 1),
        "difference_us": round(difference(others, nobodys), 1),
        "interval_us": [round(drawn[50], 1), round(drawn[-51], 1)],
        "p": float(f"{rank_test(others, nobodys):.2g}"),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=400, help="probes of each kind")
    parser.add_argument("--model", default=str(ROOT / "test/golden/tiny_llama3_bf16"), help="model directory")
    parser.add_argument("--json", help="also write the figures to this file")
    arguments = parser.parse_args()
    keys = {name: secrets.token_hex(32) for name in ("alpha", "beta")}
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        for name, key in keys.items():
            file.write(f'[{name}]\nkeys = ["sha256:{hashlib.sha256(key.encode()).hexdigest()}"]\n')
        file.flush()
        command = [ROOT / "build/release/bin/baton", "serve", arguments.model, "--listen", "127.0.0.1:0"]
        command += ["--http", "127.0.0.1:0", "--threads", "1", "--keys", file.name]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            measure(server, keys, arguments)
        finally:
            server.terminate()
            server.wait()


def where():
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "")
    return {
        "date": datetime.date.today().isoformat(),
        "commit": commit.stdout.strip(),
        "machine": f"{cpu or platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}",
    }


def measure(server, keys, arguments):
    address = ""
    for line in server.stdout:
        if found := re.search(r"HTTP on http://(\S+)", line):
            address = found[1]
        if line.endswith(" info serving\n"):
            break
    # Reads the log, because the server would block if its output were not read.
    threading.Thread(target=server.stdout.read, daemon=True).start()
    alpha, beta = (Tenant(address, keys[name]) for name in ("alpha", "beta"))
    times = {}
    for round_ in range(arguments.rounds):
        asked = probes(alpha, beta, round_).items()
        shuffled = [(kind, which, probe) for kind, both in asked for which, probe in enumerate(both)]
        random.shuffle(shuffled)
        for kind, which, probe in shuffled:
            times.setdefault(kind, ([], []))[which].append(probe())
    figures = {kind: compare(*both) for kind, both in times.items()}
    setup = {"rounds": arguments.rounds, "model": pathlib.Path(arguments.model).name}
    report = json.dumps(where() | setup | figures, indent=2)
    print(report)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(report + "\n")


if __name__ == "__main__":
    main()
