"""A cluster of real processes on 127.0.0.1. Its workers can be killed, paused and started again."""

import pathlib
import re
import signal
import subprocess
import threading
import time
import urllib.request

BIN = pathlib.Path(__file__).resolve().parent.parent.parent / "build" / "release" / "bin"
ROLES = ("prefill", "decode")
START_SECONDS = 120
# The slope of a shorter series of samples of memory is mostly noise.
FEWEST_SAMPLES = 60


class Program:
    """A program of Baton that is started again at the address of its first start."""

    def __init__(self, name, folder, program, *flags):
        self.name, self.log = name, folder / f"{name}.log"
        self._command = [BIN / program, *flags, "--metrics", "127.0.0.1:0"]
        self.address, self.http, self.metrics = "127.0.0.1:0", "", ""
        self.start()

    def start(self):
        begin = self.log.stat().st_size if self.log.exists() else 0
        with open(self.log, "ab") as out:
            self.process = subprocess.Popen([*self._command, "--listen", self.address], stdin=subprocess.DEVNULL,
                                            stdout=out, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            text = self.log.read_bytes()[begin:].decode(errors="replace")
            listens = re.search(r"listening on (\S+:\d+)", text)
            metrics = re.search(r"metrics on http://(\S+:\d+)", text)
            if listens and metrics:
                self.address, self.metrics = listens[1], metrics[1]
                if http_address := re.search(r"HTTP on http://(\S+:\d+)", text):
                    self.http = http_address[1]
                return
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name} ended with status {self.process.returncode}, see {self.log}")
            time.sleep(0.02)
        raise RuntimeError(f"{self.name} did not start within {START_SECONDS} s, see {self.log}")

    def signal(self, number):
        if self.process.poll() is None:
            self.process.send_signal(number)

    def wait(self, seconds):
        """Returns the exit status, or None if the process still runs after `seconds`."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def end(self):
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        if self.wait(15) is None:
            self.signal(signal.SIGKILL)
            self.wait(15)

    def metric(self, name, **labels):
        """Returns the sum of the series of a metric that have these labels."""
        with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=10) as page:
            text = page.read().decode()
        total = 0.0
        for series, value in re.findall(rf"^{name}(?:\{{([^}}]*)\}})? (\S+)", text, re.M):
            found = dict(re.findall(r'(\w+)="([^"]*)"', series))
            total += float(value) if labels.items() <= found.items() else 0
        return total

    def resident_bytes(self):
        """Returns the resident memory of the process, or None if it has ended."""
        try:
            status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        except OSError:
            return None
        found = re.search(r"^VmRSS:\s+(\d+) kB", status, re.M)
        return int(found[1]) * 1024 if found else None


class Cluster:
    """A router, and `size` workers of each role."""

    def __init__(self, folder, model, size, worker_flags, router_flags):
        worker = ["--model", str(model), "--threads", "1", *worker_flags]
        self.workers = {role: [Program(f"{role}-{i}", folder, f"baton-{role}", *worker) for i in range(size)]
                        for role in ROLES}
        flags = ["--model", str(model), "--http", "127.0.0.1:0", *router_flags]
        for role in ROLES:
            flags += [f"--{role}-workers", ",".join(worker.address for worker in self.workers[role])]
        self.router = Program("router", folder, "baton-router", *flags)
        self._await_serving()

    def programs(self):
        return [self.router, *(worker for role in ROLES for worker in self.workers[role])]

    def _await_serving(self):
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"http://{self.router.http}/health", timeout=10) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError(f"the cluster did not serve within {START_SECONDS} s")

    def blocks_left(self):
        """Returns the number of blocks of all workers that are neither free nor cached."""
        def blocks(worker):
            sizes = [worker.metric("baton_kv_blocks", **labels) for labels in ({}, {"state": "free"}, {"state": "cached"})]
            return int(sizes[0] - sizes[1] - sizes[2])

        return sum(blocks(worker) for role in ROLES for worker in self.workers[role])

    def end(self):
        for program in self.programs():
            program.end()


class Memory:
    """Samples the resident memory of all processes, for its growth."""

    PERIOD_SECONDS = 1

    def __init__(self, cluster):
        self._cluster = cluster
        self._samples = {}  # by name and process id
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while not self._stopped.wait(self.PERIOD_SECONDS):
            for program in self._cluster.programs():
                if (size := program.resident_bytes()) is not None:
                    series = self._samples.setdefault((program.name, program.process.pid), [])
                    series.append((time.monotonic(), size))

    def stop(self):
        self._stopped.set()
        self._thread.join()

    def growth_mb_per_minute(self):
        """Returns growth_mb_per_minute of the samples."""
        return growth_mb_per_minute(self._samples)


def growth_mb_per_minute(samples_of):
    """Returns the growth of each process that lived long enough, over its second half.

    `samples_of` has pairs of seconds and bytes, by name and process id.
    """
    growth = {}
    for (name, _), samples in samples_of.items():
        if len(samples) >= FEWEST_SAMPLES:
            rate = slope(samples[len(samples) // 2:]) * 60 / 1e6
            growth[name] = round(max(rate, growth.get(name, rate)), 3)
    return growth


def slope(points):
    """Returns the slope of the line with the least squared error."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
