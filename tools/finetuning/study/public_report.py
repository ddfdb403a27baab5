"""The report of the study on public data.

The tables have means over seeds with intervals. The plots show accuracy by sharing ratio.
"""

import datetime
import json

import torch

from finetuning.accuracy import wilson
from finetuning.line_plot import line_plot

# (method of fine-tuning, share of KV from the base) -> name of the table's column.
COLUMNS = {("base", 1.0): "base", ("full", 0.0): "full", ("full", 1.0): "naive", ("cache-conditioned", 1.0): "cache-conditioned"}
RESAMPLES = 4000


def interval(marks):
    """Returns the 95 % interval of the mean of `marks`, [seeds, prompts].

    The interval of one seed is Wilson's. The interval of several seeds comes from a bootstrap that
    resamples seeds and prompts.
    """
    if len(marks) == 1 and set(marks[0]) <= {0, 1}:
        return wilson(sum(marks[0]), len(marks[0]))
    values = torch.tensor(marks, dtype=torch.float32)
    generator = torch.Generator().manual_seed(0)
    means = []
    for _ in range(RESAMPLES):
        seeds, prompts = (torch.randint(size, (size,), generator=generator) for size in values.shape)
        means.append(values[seeds][:, prompts].mean())
    low, high = torch.stack(means).quantile(torch.tensor([0.025, 0.975])).tolist()
    return low, high


def _marks(cells):
    return [[int(mark) for mark in cell["right"]] for cell in sorted(cells, key=lambda cell: cell["seed"])]


def _summary(cells):
    marks = _marks(cells)
    low, high = interval(marks)
    return {"right": [sum(row) for row in marks], "total": len(marks[0]), "mean": sum(map(sum, marks)) / len(marks) / len(marks[0]),
            "low": low, "high": high}


def _difference(cells, of, minus):
    """Returns the difference in accuracy of two columns, or None.

    The difference pairs decoders with equal seeds, on the same prompts.
    """
    pairs = [{cell["seed"]: cell for cell in cells if COLUMNS.get((cell["method"], cell["share"])) == name} for name in (of, minus)]
    seeds = sorted(set(pairs[0]) & set(pairs[1]))
    if not seeds:
        return None
    a, b = (_marks([pair[seed] for seed in seeds]) for pair in pairs)
    marks = [[x - y for x, y in zip(*rows)] for rows in zip(a, b)]
    low, high = interval(marks) if len(seeds) > 1 else (None, None)
    return {"of": of, "minus": minus, "by_seed": [sum(row) / len(row) for row in marks],
            "mean": sum(map(sum, marks)) / len(marks) / len(marks[0]), "low": low, "high": high}


def _as_reference(cells, by_reference):
    """Returns [number of server answers equal to the reference's, number of compared answers]."""
    pairs = [(cell, by_reference.get((cell["method"], cell["seed"], cell["share"]))) for cell in cells]
    pairs = [(cell, other) for cell, other in pairs if other]
    return [sum(a == b for cell, other in pairs for a, b in zip(cell["texts"], other["texts"])),
            sum(len(cell["texts"]) for cell, _ in pairs)]


def gather(cells):
    """Returns, for each task, a summary of each column and of each sharing ratio.

    The columns are measured with the reference and through the server.
    """
    table = {}
    for task in dict.fromkeys(cell["task"] for cell in cells):
        entry = table[task] = {}
        by_reference = {(cell["method"], cell["seed"], cell["share"]): cell for cell in cells
                        if (cell["task"], cell["through"]) == (task, "reference")}
        for through in ("reference", "server"):
            some = [cell for cell in cells if (cell["task"], cell["through"]) == (task, through)]
            entry[through] = {}
            for key, name in COLUMNS.items():
                column = [cell for cell in some if (cell["method"], cell["share"]) == key]
                if column:
                    entry[through][name] = _summary(column) | (
                        {"as_reference": _as_reference(column, by_reference)} if through == "server" else {})
            differences = [_difference(some, "cache-conditioned", "full"), _difference(some, "naive", "full")]
            entry[through]["differences"] = [difference for difference in differences if difference]
        entry["by_ratio"] = {method: {str(share): _summary([cell]) for (m, seed, share), cell in sorted(by_reference.items())
                                      if (m, seed) == (method, 0)} for method in ("full", "cache-conditioned")}
    return table


def _percent(summary):
    return f"{summary['mean']:.1%} ({summary['low']:.1%} to {summary['high']:.1%}, {summary['right']} of {summary['total']})"


def show(table):
    for task, entry in table.items():
        for through in ("reference", "server"):
            names = [name for name in COLUMNS.values() if name in entry[through]]
            for name in names:
                same = entry[through][name].get("as_reference")
                print(f"study: {task}, {through}, {name}: {_percent(entry[through][name])}"
                      + (f"; {same[0]} of {same[1]} answers equal the reference's" if same and same[1] else ""))
            for row in entry[through]["differences"]:
                bounds = f" ({row['low']:+.1%} to {row['high']:+.1%})" if row["low"] is not None else ""
                print(f"study: {task}, {through}, {row['of']} minus {row['minus']}: {row['mean']:+.1%}{bounds}")
        for method, by_share in entry["by_ratio"].items():
            cells = ", ".join(f"{float(share):.0%}: {summary['right'][0]}" for share, summary in by_share.items())
            print(f"study: {task}, {method}, right by share of KV from the base: {cells}")


def write(work, settings, cells):
    """Writes report.json and a plot for each task into the work folder. Prints the table."""
    cells = list(cells)
    table = gather(cells)
    about = {"date": datetime.date.today().isoformat(), "torch": torch.__version__, "settings": settings,
             "devices": sorted({cell["device"] for cell in cells})}
    (work / "report.json").write_text(json.dumps(about | {"table": table}, indent=1) + "\n")
    for task, entry in table.items():
        series = {method: [(100 * float(share), 100 * summary["mean"]) for share, summary in by_share.items()]
                  for method, by_share in entry["by_ratio"].items() if by_share}
        if series:
            line_plot(work / f"ratios.{task}.svg", f"{task}: right answers by the share of the prompt's KV from the base",
                      "KV from the base, %", "right, %", series)
    show(table)
