"""The study on a small base: the accuracy that sharing the base's KV costs on three tasks.

- full: full fine-tuning. The decoder runs prefill and decode.
- naive: the same decoder over the base's KV.
- cache-conditioned: a decoder that is trained over the base's KV.

The sharing ratio is the share of the prompt's KV that the base computes.
"""

import concurrent.futures
import datetime
import json
import multiprocessing
import os
import platform
import random
import subprocess
from pathlib import Path

import torch

from finetuning.accuracy import score, texts_of_reference
from finetuning.errors import InputError
from finetuning.examples import read_examples
from finetuning.module_dir import ModuleDir
from finetuning.study import base as untrained
from finetuning.study import report, served, tasks
from finetuning.training import Options, Training

ROOT = Path(__file__).resolve().parents[3]
FOLDER = Path(__file__).resolve().parent
WEIGHTS = FOLDER / "weights"
BASE = WEIGHTS / "base"
SETTINGS = json.loads((FOLDER / "study.json").read_text())
RATIOS = (0.0, 0.25, 0.5, 0.75, 1.0)


def write_rows(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_rows(task):
    """Returns the test rows of a task. They do not depend on the seed."""
    return tasks.make(task, random.Random(f"test {task}"), SETTINGS["test"])


def train(module, rows, options, out):
    training = Training(module, read_examples(rows, module, whole_texts=options.method == "full"), options, out, "cpu")
    training.start_or_resume((out / "training" / "checkpoint.pt").exists())
    training.run()
    return out


def make_base(work):
    """Trains the base from random weights. The committed base was made by this function."""
    wanted = SETTINGS["base"]
    untrained.write_untrained(work / "untrained", wanted)
    texts = write_rows(work / "texts.jsonl", [{"text": text} for text in untrained.texts(wanted)])
    train(ModuleDir(work / "untrained"), texts, Options(**wanted["training"]), work / "base")


def make_decoder(work, task, method, seed):
    """Trains a decoder from the committed base. Returns its directory."""
    # Several decoders train at the same time.
    torch.set_num_threads(1)
    without = {row["prompt"] for row in test_rows(task)}
    rows = tasks.make(task, random.Random(f"train {task} {seed}"), SETTINGS["examples"], without)
    data = write_rows(work / f"seed{seed}" / f"{task}.{method}.jsonl", rows)
    recipe = SETTINGS["decoders"][method]
    options = Options(seed=seed, **recipe | {"epochs": recipe["epochs"][task]})
    return train(ModuleDir(BASE), data, options, data.parent / f"{task}-{method}")


def measure(work, task, method, seed, directory):
    """Measures the right answers of a decoder by sharing ratio.

    Trains the decoder first if `directory` is None.
    """
    torch.set_num_threads(1)
    directory = directory or make_decoder(work, task, method, seed)
    module = ModuleDir(BASE)
    base, decoder = module.load().eval(), ModuleDir(directory).load().eval()
    examples = read_examples(write_rows(work / f"{task}.{method}.{seed}.test.jsonl", test_rows(task)), module)
    texts = {ratio: texts_of_reference(base, decoder, module, examples, ratio) for ratio in RATIOS}
    untuned = texts_of_reference(base, base, module, examples) if method == "full" else None
    return {"task": task, "method": method, "seed": seed, "decoder": str(directory), "shared_texts": texts[1.0],
            "ratios": {ratio: score(examples, texts[ratio])["right"] for ratio in RATIOS},
            "base": score(examples, untuned)["right"] if untuned else None}


def about(args):
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    cpu = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), platform.machine())
    return {"date": datetime.date.today().isoformat(), "commit": commit, "machine": f"{cpu}, {os.cpu_count()} cores",
            "torch": torch.__version__, "seeds": max(1, args.train), "settings": SETTINGS}


def run(args):
    work = Path(args.work)
    if args.make_base:
        make_base(work)
        return
    pairs = [(task, method) for task in tasks.TASKS for method in SETTINGS["decoders"]]
    if args.train:
        jobs = [(work, *pair, seed, None) for seed in range(args.train) for pair in pairs]
    # Measures the committed decoders and one that is trained again.
    else:
        jobs = [(work, *SETTINGS["repeated"], 0, None), *((work, *pair, 0, WEIGHTS / "-".join(pair)) for pair in pairs)]
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        results = [future.result() for future in [pool.submit(measure, *job) for job in jobs]]
    repeated = None if args.train else results.pop(0)

    table = report.gather(results, SETTINGS["test"], RATIOS)
    examples = read_examples(write_rows(work / "test.jsonl", [row for task in tasks.TASKS for row in test_rows(task)]), ModuleDir(BASE))
    examples_of = {task: examples[i * SETTINGS["test"]:(i + 1) * SETTINGS["test"]] for i, task in enumerate(tasks.TASKS)}
    through_server = served.measure(BASE, [r for r in results if r["seed"] == 0], examples_of, work / "serve.log")
    report.show(table, through_server, repeated)
    if args.json:
        Path(args.json).write_text(json.dumps(about(args) | {"table": table, "through_server": through_server}, indent=1) + "\n")
    if args.svg:
        report.plot(table, Path(args.svg))
    problems = list(report.problems(table, through_server, repeated))
    if problems:
        raise InputError("study: " + "; ".join(problems))
