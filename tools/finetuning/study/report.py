"""The study's table, its plot, and the checks of its results."""

import statistics
from fractions import Fraction

from finetuning.accuracy import wilson
from finetuning.line_plot import line_plot

METHODS = ("base", "full", "naive", "cache-conditioned")
PLOTTED = {"full": "fully fine-tuned; KV of the base is shared naively", "cache-conditioned": "cache-conditioned at 100 %",
           "any-share": "cache-conditioned with a random share for each example"}
# Upper bound on the accuracy that cache-conditioned decoders lose against full fine-tuning.
# Decoders that are trained for all sharing ratios must meet it at each ratio.
MOST_BELOW_FULL = Fraction(1, 100)
LEAST_COLLAPSE = 0.30
# Upper bound on the share of server answers that differ from the reference's. Such answers differ
# because two tokens are a tie within bf16 noise.
MOST_TIES = 0.05
MOST_BELOW_COMMITTED = 0.05


def gather(results, test, ratios):
    """Returns, for each task, the right answers over all seeds by method and by sharing ratio."""
    table = []
    for task in dict.fromkeys(result["task"] for result in results):
        by_method = {method: [r for r in results if (r["task"], r["method"]) == (task, method)]
                     for method in dict.fromkeys(result["method"] for result in results)}
        by_ratio = {method: {ratio: sum(run["ratios"][ratio] for run in runs) for ratio in ratios}
                    for method, runs in by_method.items()}
        full = by_method["full"]
        table.append({"task": task, "total": test * len(full), "base": sum(run["base"] for run in full),
                      "full": by_ratio["full"][0.0], "naive": by_ratio["full"][1.0],
                      "cache-conditioned": by_ratio["cache-conditioned"][1.0], "by_ratio": by_ratio,
                      "difference": difference(full, by_method["cache-conditioned"], test)})
    return table


def difference(full, ours, test):
    """Returns the accuracy of cache-conditioned minus full fine-tuning, as a mean over seeds.

    With three to five seeds, it also returns half of the 95 % interval (Student's t).
    """
    values = [(b["ratios"][1.0] - a["ratios"][0.0]) / test for a, b in zip(full, ours)]
    t = {3: 4.303, 4: 3.182, 5: 2.776}.get(len(values))
    half = t * statistics.stdev(values) / len(values) ** 0.5 if t else None
    return {"mean": statistics.fmean(values), "half_interval": half}


def show(table, through_server, repeated):
    for row in table:
        cells = []
        for method in METHODS:
            low, high = wilson(row[method], row["total"])
            cells.append(f"{method} {row[method] / row['total']:.1%} ({low:.1%} to {high:.1%})")
        half = row["difference"]["half_interval"]
        print(f"study: {row['task']}: {', '.join(cells)}; cache-conditioned minus full {row['difference']['mean']:+.1%}"
              + (f" +- {half:.1%}" if half is not None else ""))
    for row in through_server:
        print("study: through the server: {task}, {method}: {right} of {total} right, {as_reference} equal to the reference".format(**row))
    if repeated:
        print(f"study: trained again: {repeated['task']}, {repeated['method']}: {own(repeated)} right")


def own(result):
    """Returns the right answers at the sharing ratio for which the decoder was trained."""
    return result["ratios"][0.0 if result["method"] == "full" else 1.0]


def plot(table, path):
    """Plots the mean accuracy over the tasks by sharing ratio."""
    total = sum(row["total"] for row in table)
    series = {PLOTTED[method]: [(100 * ratio, 100 * sum(row["by_ratio"][method][ratio] for row in table) / total) for ratio in ratios]
              for method, ratios in table[0]["by_ratio"].items()}
    line_plot(path, f"Right answers (mean of {len(table)} tasks) by the share of the prompt's KV from the base",
              "KV from the base, %", "right, %", series, (0, 100))


def below(row, right):
    return row["full"] - right > MOST_BELOW_FULL * row["total"]


def problems(table, through_server, repeated):
    for row in table:
        full, naive, ours = (row[method] / row["total"] for method in ("full", "naive", "cache-conditioned"))
        if below(row, row["cache-conditioned"]):
            yield f"{row['task']}: cache-conditioned has {ours:.1%}, full fine-tuning {full:.1%}"
        for ratio, right in row["by_ratio"].get("any-share", {}).items():
            if below(row, right):
                yield (f"{row['task']}: cache-conditioned with random shares has {right / row['total']:.1%} at {ratio:.0%}, "
                       f"full fine-tuning {full:.1%}")
        if naive > full - LEAST_COLLAPSE:
            yield f"{row['task']}: naive sharing has {naive:.1%}, full fine-tuning {full:.1%}"
        if repeated and repeated["task"] == row["task"]:
            before = row[repeated["method"]]
            if own(repeated) < before - MOST_BELOW_COMMITTED * row["total"]:
                yield f"{row['task']}, {repeated['method']}: trained again {own(repeated)} right, committed {before}"
    for row in through_server:
        # Leaves out naive sharing. Its logits are so close that rounding decides many tokens.
        if row["method"] != "full" and row["as_reference"] < (1 - MOST_TIES) * row["total"]:
            yield "{task}, {method}: {as_reference} of {total} answers of the server are those of the reference".format(**row)
