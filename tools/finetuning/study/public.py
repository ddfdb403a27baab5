"""The study on public data: the accuracy that sharing KV of a real base costs.

The study measures by task, method of fine-tuning and seed, with the reference and through a server.
The work folder keeps decoders and one line of cells.jsonl for each accuracy. An interrupted run can
therefore continue.
"""

import collections
import concurrent.futures
import dataclasses
import gc
import hashlib
import json
import multiprocessing
import multiprocessing.connection
import os
import threading
import time
from pathlib import Path

import torch

from finetuning.accuracy import Server, texts_of_reference
from finetuning.command import pick_device
from finetuning.errors import InputError
from finetuning.examples import read_examples
from finetuning.module_dir import ModuleDir, read_json
from finetuning.study import public_report, public_tasks, served
from finetuning.training import Options, Training

CONCURRENT_REQUESTS = 64


@dataclasses.dataclass(frozen=True)
class Study:
    base: Path
    data: Path
    work: Path
    device: str
    # public.json.
    settings: dict

    def decoder(self, task, method, seed):
        return self.base if method == "base" else self.work / f"{task}-{method}-{seed}"

    def is_full(self, task, name):
        return name != "base" and self.settings["tasks"][task]["decoders"][name]["method"] == "full"

    def examples(self, task, part):
        return read_examples(self.work / f"{task}.{part}.jsonl", ModuleDir(self.base))

    def golds(self, task):
        return json.loads((self.work / f"{task}.golds.json").read_text())

    def prepare(self, task):
        """Writes the task's data in the format that read_examples() reads. Raises InputError."""
        parts = public_tasks.load(task, self.data, self.settings["tasks"][task])
        rows = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
        recipes = {name: value for name, value in self.settings["tasks"][task].items() if name != "tuning"}
        wanted = self.settings | {"tasks": recipes, "base": str(self.base), "rows": rows}
        began_with = self.work / f"{task}.settings.json"
        if began_with.exists() and json.loads(began_with.read_text()) != wanted:
            raise InputError(f"{self.work}: {task}: has results of other settings, data or base; use another --work")
        began_with.write_text(json.dumps(wanted))
        for part, rows in zip(("train", "test"), parts):
            lines = [{"prompt": self.settings["chat"].replace("{prompt}", row["prompt"]), "answer": row["answer"]} for row in rows]
            (self.work / f"{task}.{part}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (self.work / f"{task}.golds.json").write_text(json.dumps([row["gold"] for row in parts[1]]))

    def cell(self, task, method, seed, share, through, texts, seconds):
        """Returns one measured accuracy: the answers, and a mark for each right answer."""
        marks = [public_tasks.right(task, text, gold) for text, gold in zip(texts, self.golds(task))]
        return {"task": task, "method": method, "seed": seed, "share": share, "through": through, "seconds": round(seconds, 1),
                "device": torch.cuda.get_device_name() if self.device == "cuda" else self.device,
                "right": "".join("01"[mark] for mark in marks), "texts": texts}


class Cells:
    """The accuracies so far, by (task, method, seed, share, through). add() writes each to disk."""

    def __init__(self, path):
        self._path = path
        self.all = {}
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                self._put(json.loads(line))
            # The last line may be incomplete if a run was killed.
            except json.JSONDecodeError:
                print(f"study: {path}: ignored an incomplete line", flush=True)

    def _put(self, cell):
        self.all[tuple(cell[name] for name in ("task", "method", "seed", "share", "through"))] = cell

    def add(self, cell):
        self._put(cell)
        with open(self._path, "a") as out:
            out.write(json.dumps(cell) + "\n")
        print("study: {task}, {method}, seed {seed}, {share:.0%} shared, {through}: ".format(**cell)
              + f"{cell['right'].count('1')} of {len(cell['right'])} right, {cell['seconds']:.0f} s", flush=True)


def _end_with_parent():
    """Ends this process when its parent ends.

    A process of a pool would otherwise wait for work forever and keep GPU memory.
    """
    multiprocessing.connection.wait([multiprocessing.parent_process().sentinel])
    os._exit(1)


def start_process(device, parallel):
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(max(1, os.cpu_count() // parallel))
    # Bounds the memory that PyTorch caches in each process, so that all processes have enough.
    if pick_device(device) == "cuda":
        torch.cuda.set_per_process_memory_fraction(0.92 / parallel)


def train(study, task, method, seed):
    began = time.monotonic()
    recipe = study.settings["tasks"][task]["decoders"][method]
    training = Training(ModuleDir(study.base), study.examples(task, "train"),
                        Options(seed=seed, **study.settings["training"] | recipe), study.decoder(task, method, seed), study.device)
    training.start_or_resume(False)
    training.run()
    last = training.losses[-20:]
    print(f"study: {task}, {method}, seed {seed}: {training.steps} steps in {time.monotonic() - began:.0f} s, "
          f"loss {sum(last) / len(last):.3f}", flush=True)


def measure(study, task, method, seed, share):
    began = time.monotonic()
    module = ModuleDir(study.base)
    base = module.load(study.device).eval()
    decoder = base if method == "base" else ModuleDir(study.decoder(task, method, seed)).load(study.device).eval()
    texts = texts_of_reference(base, decoder, module, study.examples(task, "test"), share, **study.settings["generate"],
                               max_tokens=study.settings["tasks"][task]["max_tokens"])
    return study.cell(task, method, seed, share, "reference", texts, time.monotonic() - began)


def job(function, *arguments):
    try:
        return function(*arguments)
    # Frees memory for the other processes.
    finally:
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def measurements(study, task, method, seed, cells):
    """Returns the jobs that still have to measure a decoder with the reference.

    The first seed is measured at all ratios. Later seeds are measured at the ratios of the table.
    """
    shares = study.settings["ratios"] if seed == 0 else [0.0, 1.0] if study.is_full(task, method) else [1.0]
    if method == "base" or not study.settings["ratios"]:
        shares = [1.0] if study.settings["ratios"] else []
    return [(measure, study, task, method, seed, share) for share in shares
            if (task, method, seed, share, "reference") not in cells.all]


def run_jobs(study, names, cells, parallel):
    """Trains and measures in `parallel` processes. Returns the errors of jobs that failed twice.

    A job runs again after its first failure, because GPU memory may be full only for a while.
    """
    ready, failed, running = collections.deque(), collections.Counter(), {}
    for seed in range(study.settings["seeds"]):
        for task in names:
            for method in study.settings["tasks"][task]["decoders"]:
                trained = (study.decoder(task, method, seed) / "model.safetensors").exists()
                ready += measurements(study, task, method, seed, cells) if trained else [(train, study, task, method, seed)]
    for task in names:
        ready += measurements(study, task, "base", 0, cells)
    problems = []
    with concurrent.futures.ProcessPoolExecutor(parallel, multiprocessing.get_context("spawn"), start_process,
                                                (study.device, parallel)) as pool:
        while ready or running:
            while ready and len(running) < parallel:
                work = ready.popleft()
                running[pool.submit(job, *work)] = work
            done, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in done:
                function, _, *what = work = running.pop(future)
                name = " ".join(map(str, (function.__name__, *what)))
                if future.exception() is None and function is train:
                    ready.extendleft(reversed(measurements(study, *what, cells)))
                elif future.exception() is None:
                    cells.add(future.result())
                elif failed[name] == 0:
                    failed[name] += 1
                    print(f"study: {name}: {future.exception()!r:.300}; will be tried again", flush=True)
                    ready.append(work)
                else:
                    problems.append(f"{name}: {future.exception()!r:.300}")
    return problems


def measure_served(study, task, cells, baton):
    """Measures a server of the base and all decoders, then a server of each full decoder alone."""
    options = [*study.settings["server"], "--device", study.device]
    pairs = [(method, seed) for seed in range(study.settings["seeds"]) for method in study.settings["tasks"][task]["decoders"]]
    pairs = [pair for pair in pairs if (study.decoder(task, *pair) / "model.safetensors").exists()]
    shared = [(*pair, 1.0) for pair in (("base", 0), *pairs)]
    alone = [[(*pair, 0.0)] for pair in pairs if study.is_full(task, pair[0])]
    examples = study.examples(task, "test")
    for number, group in enumerate([shared, *alone]):
        missing = [one for one in group if (task, *one, "server") not in cells.all]
        first, *others = [study.decoder(task, method, seed) for method, seed, _ in group]
        log = study.work / f"serve.{task}.{number}.log"
        if not missing:
            continue
        with served.serving(first, others, log, baton, options) as address:
            for method, seed, share in missing:
                began = time.monotonic()
                server = Server(address, study.decoder(task, method, seed).name)
                texts = server.texts(examples, max_tokens=study.settings["tasks"][task]["max_tokens"],
                                     concurrent_requests=CONCURRENT_REQUESTS)
                cells.add(study.cell(task, method, seed, share, "server", texts, time.monotonic() - began))


def read_settings(args):
    """Returns the settings and the names of the chosen tasks. Raises InputError."""
    if not Path(args.settings).is_file():
        raise InputError(f"--settings: {args.settings}: there is no such file")
    settings = read_json(Path(args.settings))
    names = args.tasks.split(",") if args.tasks else list(settings["tasks"])
    if not set(names) <= set(settings["tasks"]):
        raise InputError(f"--tasks: expected some of {', '.join(settings['tasks'])}, got {args.tasks}")
    return settings, names


def run(args):
    settings, names = read_settings(args)
    work = Path(args.work)
    if args.report:
        cells = Cells(work / "cells.jsonl")
        if not cells.all:
            raise InputError(f"{work}/cells.jsonl: holds no results")
        public_report.write(work, settings, cells.all.values())
        return
    study, cells, problems = train_and_measure(args, settings, names)
    # Writes a first report before the servers run, because the run may be interrupted there.
    public_report.write(work, settings, cells.all.values())
    if args.baton != "none":
        for task in names:
            measure_served(study, task, cells, Path(args.baton))
        public_report.write(work, settings, cells.all.values())
    if problems:
        raise InputError("study: " + "; ".join(problems))


def train_and_measure(args, settings, names):
    study = Study(Path(args.base).resolve(), Path(args.data), Path(args.work), pick_device(args.device), settings)
    study.work.mkdir(parents=True, exist_ok=True)
    for task in names:
        study.prepare(task)
    cells = Cells(study.work / "cells.jsonl")
    return study, cells, run_jobs(study, names, cells, args.parallel)
