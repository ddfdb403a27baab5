"""Compares training recipes for the study on public data.

Each recipe has one seed and is measured through servers. The rows are neither in training nor in
testing.
"""

import json
from pathlib import Path

from finetuning.errors import InputError
from finetuning.study import public


def grid(task):
    """Returns the settings of a task with one decoder for each recipe."""
    decoders = {f"{method}-{number}": {"method": method} | recipe for method, recipes in task["tuning"]["recipes"].items()
                for number, recipe in enumerate(recipes)}
    return {name: value for name, value in task.items() if name != "tuning"} | {"decoders": decoders,
                                                                                "validate": task["tuning"]["validate"]}


def compare(settings, cells):
    """Returns rows of {task, recipe, right, total}, the best first.

    Each decoder is measured at the sharing ratio for which it was trained.
    """
    rows = []
    for cell in cells:
        recipe = settings["tasks"][cell["task"]]["decoders"].get(cell["method"])
        if recipe and cell["share"] == (0.0 if recipe["method"] == "full" else 1.0):
            rows.append({"task": cell["task"], "recipe": recipe, "right": cell["right"].count("1"), "total": len(cell["right"])})
    return sorted(rows, key=lambda row: (row["task"], row["recipe"]["method"], -row["right"]))


def run(args):
    settings, names = public.read_settings(args)
    names = [name for name in names if "tuning" in settings["tasks"][name]]
    if not names or args.baton == "none":
        raise InputError("--tune: expected a task with recipes (\"tuning\") in the settings, and a server (--baton)")
    settings = settings | {"seeds": 1, "ratios": [], "tasks": {name: grid(settings["tasks"][name]) for name in names}}
    study, cells, problems = public.train_and_measure(args, settings, names)
    for task in names:
        public.measure_served(study, task, cells, Path(args.baton))
    rows = compare(settings, cells.all.values())
    (study.work / "tuning.json").write_text(json.dumps({"settings": settings, "rows": rows}, indent=1) + "\n")
    for row in rows:
        recipe = ", ".join(f"{name} {value}" for name, value in row["recipe"].items())
        print(f"study: {row['task']}, {recipe}: {row['right']} of {row['total']} right")
    if problems:
        raise InputError("study: " + "; ".join(problems))
