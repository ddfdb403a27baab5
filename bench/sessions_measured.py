"""The measured part of bench/sessions.

Four agents run in real processes, each with its own model. The processes run on this machine's CPU,
or share one GPU. The four models are copies of one model. Each copy has one different weight in its
last norm, so that the models cannot share KV. Both systems have eight workers. On the CPU each
worker has one thread.

- baseline: a prefill and a decode worker for each model. Each model prefills the whole context.
- shared: four prefill workers of the original model, and a decode worker for each copy.

Sessions have the lengths of session_profiles.py. Tokens are random. Both systems run the same
sessions.
"""

import asyncio
import concurrent.futures
import dataclasses
import json
import pathlib
import re
import shutil
import time
import urllib.request
import uuid
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from random import Random

import grpc
from baton_client.messages import MESSAGES
from convert.random_model import SHAPES, write_random_model
from session_profiles import AGENTS, sessions
from sessions_simulated import turn_figures

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOADER = SourceFileLoader("cluster", str(ROOT / "tools" / "cluster"))
cluster = module_from_spec(spec_from_loader("cluster", LOADER))
LOADER.exec_module(cluster)


@dataclasses.dataclass(frozen=True)
class Setup:
    """The setup of a measurement.

    `worker` are flags of all workers. `work` has decoders and logs.
    """

    module: pathlib.Path
    work: pathlib.Path
    worker: tuple
    vocabulary: int = 40000

    def __post_init__(self):
        self.work.mkdir(parents=True, exist_ok=True)


def on_cpu(module, work):
    return Setup(module, work, ("--threads", "1", "--kv-memory-mb", "256"))


def on_gpu(device, work, shape, kv_memory_mb):
    """Returns a setup with random weights of a real shape on a GPU."""
    module = work / shape
    if not module.exists():
        write_random_model(module, SHAPES[shape], same_layers=True)
    cluster.START_SECONDS = 300
    vocabulary = json.loads((module / "config.json").read_text())["vocab_size"]
    return Setup(module, work, ("--device", device, "--threads", "2", "--kv-memory-mb", str(kv_memory_mb)), vocabulary)


def decoder(setup, name):
    """Writes a copy of the module's directory. One bit of a weight of the last norm differs."""
    module, directory = setup.module, setup.work / name
    directory.mkdir(parents=True, exist_ok=True)
    for file in module.iterdir():
        if file.suffix != ".safetensors":
            shutil.copy(file, directory / file.name)
    weights = shutil.copy(module / "model.safetensors", directory / "model.safetensors")
    with open(weights, "r+b") as file:
        header = int.from_bytes(file.read(8), "little")
        at = 8 + header + json.loads(file.read(header))["model.norm.weight"]["data_offsets"][0] + AGENTS.index(name) * 2
        file.seek(at)
        bit = file.read(1)[0] ^ 1
        file.seek(at)
        file.write(bytes([bit]))
    return directory


# The series of each figure of Cluster.counts(). Shadow prefill counts as a low-priority job, and
# dropped tokens were computed too.
COUNTED = (r"baton_transfer_bytes_total", r'baton_(?:worker_tokens_total\{role="prefill",|low_priority_tokens_total\{)'
           r'source="(?:computed|dropped)"\}')


class Cluster:
    """Four prefill workers, four decode workers and their router."""

    def __init__(self, system, setup, decoders):
        self.run, self.state = setup.work / f"run_{system}", {"processes": []}
        self.run.mkdir(parents=True, exist_ok=True)
        try:
            self.start(system == "shared", setup, decoders)
        except BaseException:
            self.stop()
            raise

    def start(self, shared, setup, decoders):
        module, workers = setup.module, [*setup.worker, "--metrics", "127.0.0.1:0"]
        start = lambda arguments: cluster.start(self.run, self.state, *map(str, arguments))  # noqa: E731
        commands = [[f"prefill-{d.name}", "baton-prefill", "--model", module if shared else d, *workers] for d in decoders]
        commands += [[f"decode-{d.name}", "baton-decode", "--model", d, *workers,
                      *(["--prefill-module", module] if shared else [])] for d in decoders]
        # All workers start at the same time, because each takes long to load its weights.
        with concurrent.futures.ThreadPoolExecutor(len(commands)) as starters:
            addresses = list(starters.map(start, commands))
        prefill, decode = addresses[:len(decoders)], addresses[len(decoders):]
        self.address = start(["router", "baton-router", "--listen", "127.0.0.1:0", "--http", "off", "--model", *([module] if shared else decoders),
                              "--prefill-workers", ",".join(prefill), "--decode-workers", ",".join(decode)])

    def counts(self):
        """Returns the bytes pushed and the tokens computed so far by all prefill workers."""
        totals = [0, 0]
        for log in self.run.glob("prefill-*.log"):
            url = re.search(r"metrics on (http://\S+)", log.read_text())[1]
            text = urllib.request.urlopen(url, timeout=10).read().decode()
            for i, metric in enumerate(COUNTED):
                totals[i] += sum(float(v) for v in re.findall(rf"^{metric} (\S+)$", text, re.MULTILINE))
        return totals

    def stop(self):
        cluster.stop(self.run, self.state)


async def turn(call, types, session, turn_of, context, salt):
    request = types["GenerateRequest"](model=turn_of["model"], session_id=session, cache_salt=salt)
    request.segments.segments.add().token_ids.ids.extend(context)
    request.sampling.max_tokens = turn_of["output"]
    request.sampling.temperature = 0
    request.sampling.ignore_eos = True
    ran = {"started": time.monotonic(), "first": None, "prompt_tokens": len(context), "cached_tokens": 0, "output_tokens": 0}
    made = []
    async for response in call(request):
        if response.token_ids and ran["first"] is None:
            ran["first"] = time.monotonic()
        made.extend(response.token_ids)
        if response.HasField("final"):
            ran["cached_tokens"] = response.final.usage.cached_tokens
    return made, ran | {"ended": time.monotonic(), "output_tokens": len(made)}


async def run_session(call, types, name, todo, salt, vocabulary):
    context, ran = [], []
    for step in todo:
        for piece in step["added"]:
            random = Random(piece["ids"])
            context += [random.randrange(vocabulary) for _ in range(piece["length"])]
        made, of_turn = await turn(call, types, name, step, context, salt)
        context += made
        ran.append(of_turn)
    return ran


async def run_sessions(address, todo, at_once, vocabulary):
    """Runs sessions, `at_once` at a time. A new cache salt separates the run from earlier runs."""
    types, salt = MESSAGES, uuid.uuid4().hex
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_stream(
            "/baton.v1.Inference/Generate", request_serializer=types["GenerateRequest"].SerializeToString,
            response_deserializer=types["GenerateResponse"].FromString)
        places = asyncio.Semaphore(at_once)

        async def one(n):
            async with places:
                return await run_session(call, types, f"s{n} {salt}", todo[n], salt, vocabulary)

        return await asyncio.gather(*map(one, range(len(todo))))


def measure(row, system, setup):
    """Measures a run. Returns `row`, which names the run, with the figures."""
    counted = system.counts()
    ran = asyncio.run(run_sessions(system.address, sessions(row["profile"], row["sessions"]), row["concurrent"], setup.vocabulary))
    # Workers update their metrics several times a second. Shadow prefill may still run.
    time.sleep(1)
    pushed, computed = (after - before for after, before in zip(system.counts(), counted))
    row = row | turn_figures(ran) | {"gb_pushed": pushed / 1e9, "prefill_tokens": computed}
    print(f"{row['profile']:10} {row['system']:9} N {row['concurrent']:3}  p95 {row['p95_s']:7.2f} s  {row['tokens_per_s']:6.1f} tok/s  "
          f"TTFT {1e3 * row['ttft_p50_s']:6.0f} / {1e3 * row['ttft_p95_s']:7.0f} ms  hits {row['hit_ratio']:4.0%}  "
          f"{row['prefill_tokens']:8.0f} tokens prefilled  {row['gb_pushed']:6.2f} GB", flush=True)
    return row


def measure_all(grid, named, setup, decoders):
    system = Cluster(named["system"], setup, decoders)
    try:
        return [measure(cell | named, system, setup) for cell in grid]
    finally:
        system.stop()


def run(setup, at_once, repeats):
    """Measures both systems. `at_once` has the number of sessions at a time of each measurement."""
    decoders = [decoder(setup, agent) for agent in AGENTS]
    grid = [{"profile": "ReAct", "concurrent": n, "sessions": 2 * n} for n in at_once]
    rows = [row for repeat in range(repeats) for system in ("baseline", "shared")
            for row in measure_all(grid, {"system": system, "repeat": repeat}, setup, decoders)]
    ratios = []
    for cell in grid:
        pairs = [{row["system"]: row for row in rows if row["concurrent"] == cell["concurrent"] and row["repeat"] == repeat}
                 for repeat in range(repeats)]
        middle = lambda values: sorted(values)[len(pairs) // 2]  # noqa: E731
        ratios.append(cell | {"p95": middle(p["baseline"]["p95_s"] / p["shared"]["p95_s"] for p in pairs),
                              "throughput": middle(p["shared"]["tokens_per_s"] / p["baseline"]["tokens_per_s"] for p in pairs),
                              "ttft_p50": middle(p["baseline"]["ttft_p50_s"] / p["shared"]["ttft_p50_s"] for p in pairs)})
    return {"repeats": repeats, "ratios": ratios, "runs": rows}


def report(figures):
    print("\nbaseline / shared, medians of pairs:")
    for row in figures["ratios"]:
        print(f"{row['profile']:10} N {row['concurrent']:3}  p95 {row['p95']:5.2f}x less  throughput {row['throughput']:5.2f}x  "
              f"TTFT {row['ttft_p50']:5.2f}x less")
