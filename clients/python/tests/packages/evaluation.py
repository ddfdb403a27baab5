"""Runs lm-eval as its users run it, on the tasks in the directory tasks/."""

import json
import os
import pathlib
import subprocess
import tempfile

TASKS = pathlib.Path(__file__).parent / "tasks"


def evaluate(python, kind, tasks, words=(), **arguments):
    """Runs tasks with the program `python`, and returns the samples of all of them.

    `tasks` are names separated by commas. `kind` is lm-eval's name of the API. `words` are further
    words of the command line, and `arguments` are those of the API: model, base_url, tokenizer."""
    with tempfile.TemporaryDirectory() as scratch:
        # The paths of the data sets in the tasks are relative.
        done = subprocess.run(
            [python, "-m", "lm_eval", "run", "--model", kind, "--tasks", tasks, "--include_path", TASKS, "--model_args",
             ",".join(f"{name}={value}" for name, value in {"max_retries": 1, **arguments}.items()), "--log_samples",
             "--output_path", scratch, *words],
            cwd=TASKS, env=os.environ | {"HF_HOME": scratch, "HF_HUB_OFFLINE": "1"}, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)
        files = sorted(pathlib.Path(scratch).rglob("samples_*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]
