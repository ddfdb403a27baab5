"""A real `baton serve` for tests, on free ports. Its model is the tiny one by default."""

import inspect
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request


ROOT = pathlib.Path(__file__).resolve().parents[3]
PROGRAM = pathlib.Path(os.environ.get("BATON", ROOT / "build/release/bin/baton"))
MODEL = ROOT / "test/golden/tiny_llama3_bf16"


class Process:
    """A program of Baton that has printed a line with `until` in it.

    Its addresses are `grpc`, and `http` with the scheme. It ends at the latest when the process
    that made it ends."""

    def __init__(self, *command, until=" info serving$"):
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.grpc = self.http = ""
        log = ""
        for line in self._process.stdout:
            log += line
            if found := re.search(r"^listening on (\S+)", line):
                self.grpc = found[1]
            if found := re.search(r"HTTP on (\S+)", line):
                self.http = found[1]
            if re.search(until, line):
                break
        else:
            raise RuntimeError(f"{command[0]} ended: {log}")
        self._rest = threading.Thread(target=self._drop_log, daemon=True)
        self._rest.start()

    def _drop_log(self):
        """Reads the log and drops it. The server would block if its output were not read."""
        for _ in self._process.stdout:
            pass

    def kill(self):
        self._process.kill()
        self._await_end()

    def stop(self):
        self.begin_stop()
        self._await_end()
        return self._process.returncode

    def freeze(self):
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self._process.send_signal(signal.SIGCONT)

    def begin_stop(self):
        self._process.send_signal(signal.SIGTERM)

    def _await_end(self):
        self._process.wait()
        self._rest.join()
        self._process.stdout.close()


def post(server, path, body, headers=None):
    """Returns the HTTP status of a call. `body` is JSON, or bytes that are sent as they are."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(server.http + path, data, {"content-type": "application/json", **(headers or {})})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


async def settled(value):
    """Returns a result of Client as it is, and awaits one of AsyncClient."""
    return await value if inspect.isawaitable(value) else value


async def close(client):
    await settled(client.close())


def start(role, *flags, **until):
    """Starts a program of a cluster: "prefill", "decode" or "router". The caller kills it."""
    return Process(PROGRAM.with_name(f"baton-{role}"), "--model", MODEL, *flags, **until)


def start_worker(role, address="127.0.0.1:0"):
    return start(role, "--listen", address, "--threads", "1", "--kv-memory-mb", "64", until="^listening on")


class Server(Process):
    """A router and its workers in one process."""

    def __init__(self, *flags, model=MODEL, threads=1, kv_memory_mb=64):
        super().__init__(PROGRAM, "serve", model, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--threads",
                         str(threads), "--kv-memory-mb", str(kv_memory_mb), *flags)

    def metric(self, name, key="none"):
        """Returns the value of a counter.

        `name` includes the labels. `key` is an operator's key."""
        request = urllib.request.Request(f"{self.http}/metrics", headers={"authorization": f"Bearer {key}"})
        with urllib.request.urlopen(request) as page:
            return int(re.search(rf"^{re.escape(name)} (\d+)$", page.read().decode(), re.M)[1])

    def await_no_live_request(self, key="none"):
        """Waits until every request has ended, including prefill hints.

        `key` is an operator's key. It is needed if the server requires keys."""
        request = urllib.request.Request(f"{self.http}/ui/status", headers={"authorization": f"Bearer {key}"})
        while True:
            with urllib.request.urlopen(request) as page:
                if not json.load(page).get("live_requests"):
                    return
            time.sleep(0.01)


class Certificate:
    """A self-signed certificate of 127.0.0.1: the files `path` and `key`.

    Needs the program openssl."""

    def __init__(self, name):
        self._directory = tempfile.TemporaryDirectory()
        self.path, self.key = f"{self._directory.name}/{name}.pem", f"{self._directory.name}/{name}.key"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-out", self.path,
                        "-keyout", self.key], check=True, capture_output=True)

    def close(self):
        self._directory.cleanup()


class Keys:
    """A file of keys with one tenant. `baton key` makes them. `key` is the part for the client."""

    def __init__(self, limits=""):
        self._directory = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self._directory.name) / "keys.toml"
        drawn = subprocess.run([PROGRAM, "key"], check=True, capture_output=True, text=True).stdout
        self.key, digest = re.search(r"baton-\w+", drawn)[0], re.search(r"sha256:\w+", drawn)[0]
        self.path.write_text(f'[team]\nkeys = ["{digest}"]\n{limits}\n')

    def close(self):
        self._directory.cleanup()
