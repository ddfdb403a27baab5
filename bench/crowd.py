"""Measures what clients receive if many connect to a router at the same moment.

    tools/python bench/crowd.py [--clients 5000] [--rounds 3] [--before PROGRAM] [--json FILE]

Each client opens a connection, sends one request, and keeps the connection open until all clients
have an outcome. All clients share one process, with one thread. The server is a `baton serve` with
a tiny model. Each round has one crowd over HTTP, and with certificates over HTTPS one crowd per
type of key. With `--before`, another build of `baton` gets the same crowds in turn.

The report has, for each crowd, the clients with an answer of status 200, with 503, and without an
answer by reason. It also has the times of answered and other clients, and the CPU time of server
and clients. Stop other work first.
"""

import argparse
import asyncio
import collections
import datetime
import json
import os
import pathlib
import platform
import re
import resource
import ssl
import subprocess
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
REQUEST = b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"
KEYS = {"http": None, "https_rsa_2048": ["rsa:2048"], "https_ec_p256": ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"]}
# Beyond any timeout of the server. TCP retries a connection after 1, 3, 7 and 15 s.
PATIENCE_S = 60


class Server:
    """A `baton serve` whose HTTP port is encrypted if `key` is a type of key for `openssl req`."""

    def __init__(self, program, key, folder):
        command = [program, "serve", ROOT / "test/golden/tiny_llama3_bf16", "--listen", "127.0.0.1:0"]
        command += ["--http", "127.0.0.1:0", "--threads", "1"]
        self.tls = None
        if key is not None:
            files = ["-keyout", f"{folder}/key.pem", "-out", f"{folder}/certificate.pem"]
            names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
            request = ["openssl", "req", "-x509", "-nodes", "-days", "1", "-newkey", *key, *names, *files]
            subprocess.run(request, check=True, capture_output=True)
            command += ["--tls-cert", f"{folder}/certificate.pem", "--tls-key", f"{folder}/key.pem"]
            self.tls = ssl.create_default_context(cafile=f"{folder}/certificate.pem")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in self.process.stdout:
            if found := re.search(r"HTTP on https?://(\S+):(\d+)", line):
                self.host, self.port = found[1], int(found[2])
            if line.endswith(" info serving\n"):
                break
        # Reads the log, because the server would block if its output were not read.
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def cpu_s(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self.process.terminate()
        self.process.wait()


async def ask(server, begin, everyone):
    """Returns (outcome, seconds to it). An outcome is a status, or why there was no answer."""
    writer, outcome = None, "timed out"
    try:
        async with asyncio.timeout(PATIENCE_S):
            tls = {"ssl": server.tls, "server_hostname": "localhost", "ssl_handshake_timeout": PATIENCE_S} if server.tls else {}
            reader, writer = await asyncio.open_connection(server.host, server.port, **tls)
            writer.write(REQUEST)
            head = await reader.readuntil(b"\r\n\r\n")
            outcome = head.split(b" ")[1].decode()
    except asyncio.IncompleteReadError:
        outcome = "closed before an answer"
    except (OSError, ssl.SSLError) as error:
        outcome = "closed in the handshake" if writer is None else f"closed before an answer ({type(error).__name__})"
    except TimeoutError:
        pass
    took = time.monotonic() - begin
    await everyone.wait()
    if writer is not None:
        writer.transport.abort()
    return outcome, took


async def crowd(server, clients):
    everyone, begin = asyncio.Barrier(clients), time.monotonic()
    return await asyncio.gather(*(ask(server, begin, everyone) for _ in range(clients)))


def spread(times):
    ordered = sorted(times)
    at = {"min": 0, "p50": len(ordered) // 2, "max": -1}
    return {name: round(ordered[index], 2) for name, index in at.items()} if ordered else {}


def measure(program, key, clients):
    with tempfile.TemporaryDirectory() as folder:
        server = Server(program, key, folder)
        try:
            server_before, clients_before = server.cpu_s(), time.process_time()
            outcomes = asyncio.run(crowd(server, clients))
            server_cpu, clients_cpu = server.cpu_s() - server_before, time.process_time() - clients_before
        finally:
            server.stop()
    counts = collections.Counter(outcome for outcome, _ in outcomes)
    served, refused = counts.pop("200", 0), counts.pop("503", 0)
    return {
        "served": served,
        "refused": refused,
        "unanswered": clients - served - refused,
        "reasons": dict(counts),
        "answered_s": spread(took for outcome, took in outcomes if outcome.isdigit()),
        "unanswered_s": spread(took for outcome, took in outcomes if not outcome.isdigit()),
        "server_cpu_s": round(server_cpu, 2),
        "clients_cpu_s": round(clients_cpu, 2),
    }


def where():
    describe = ["git", "describe", "--always", "--dirty"]
    commit = subprocess.run(describe, cwd=ROOT, capture_output=True, text=True, check=True)
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "")
    return {
        "date": datetime.date.today().isoformat(),
        "commit": commit.stdout.strip(),
        "machine": f"{cpu or platform.machine()}, {os.cpu_count()} cores",
        "load": round(os.getloadavg()[0], 1),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--before", help="another build of `baton` to compare with")
    parser.add_argument("--json", help="also write the figures to this file")
    arguments = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # the server inherits it
    if most < arguments.clients + 1000:
        parser.error(f"ulimit -Hn: expected at least {arguments.clients + 1000}, got {most}")
    report = where() | {"clients": arguments.clients}
    programs = {"before": arguments.before} if arguments.before else {}
    programs["after"] = ROOT / "build/release/bin/baton"
    report["runs"] = [
        {"program": program, "port": port} | measure(path, key, arguments.clients)
        for _ in range(arguments.rounds)
        for port, key in KEYS.items()
        for program, path in programs.items()
    ]
    print(text := json.dumps(report, indent=2))
    if arguments.json:
        pathlib.Path(arguments.json).write_text(text + "\n")


if __name__ == "__main__":
    main()
