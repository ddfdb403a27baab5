"""Measures the study's decoders through a server.

The server has one prefill module and a decode worker for each decoder.
"""

import re
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

from finetuning.accuracy import Server, score
from finetuning.errors import InputError

ROOT = Path(__file__).resolve().parents[3]
BATON = ROOT / "build" / "release" / "bin" / "baton"
START_SECONDS = 60
STOP_SECONDS = 60


@contextmanager
def serving(base, decoders, log, baton=BATON, options=("--kv-memory-mb", "64", "--threads", "2")):
    """A context with a server of the base and its decoders. Yields the server's address.

    The name of a model is the name of its directory. Raises InputError.
    """
    if not baton.exists():
        raise InputError(f"{baton}: there is no such program; build first: cmake --preset release && cmake --build --preset release")
    command = [baton, "serve", str(base), "--listen", "127.0.0.1:0", "--http", "off", *options]
    if decoders:
        command += ["--decoder", ",".join(map(str, decoders))]
    with open(log, "wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:
        yield _address(process, Path(log))
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise InputError(f"baton serve did not stop within {STOP_SECONDS} s; see {log}") from None


def _address(process, log):
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        text = log.read_text(errors="replace")
        found = re.search(r"^listening on (\S+:\d+)$", text, re.MULTILINE)
        if found and re.search(r"\bserving$", text, re.MULTILINE):
            return found.group(1)
        time.sleep(0.05)
    raise InputError(f"baton serve did not start; see {log}:\n{log.read_text(errors='replace')[-1000:]}")


def measure(base, results, examples_of, log):
    """Measures the decoder of each result over the base's KV through a server.

    Returns its right answers and the number of answers that equal the reference's. `examples_of` is
    task -> test examples.
    """
    rows = []
    with serving(base, [result["decoder"] for result in results], log) as address:
        for result in results:
            examples = examples_of[result["task"]]
            texts = Server(address, Path(result["decoder"]).name).texts(examples)
            rows.append({"task": result["task"], "method": result["method"], "right": score(examples, texts)["right"],
                         "as_reference": sum(a == b for a, b in zip(texts, result["shared_texts"])), "total": len(examples)})
    return rows
