"""Tests of tools/results_page.py: figures from JSON files, ratios, targets and refusals."""

import json
import pathlib
import tempfile
import unittest

import results_page

MACHINES = """
[machines.M]
is = "a machine"
recorded = ["one machine"]
"""
RUN = {"date": "2026-11-21", "commit": "abc1234", "machine": "one machine"}


class ResultsPageTest(unittest.TestCase):
    def page(self, tables, documents=None, **files):
        """Returns the page of these tables. `documents` has JSON files by stem, others by name."""
        documents = {"run": RUN | {"rate": 0.75, "ms": 4.0}} if documents is None else documents
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            (folder / "tables").mkdir()
            (folder / "tables/page.toml").write_text('parts = ["part"]\nabout = "About."\n' + MACHINES)
            (folder / "tables/part.toml").write_text(tables)
            for stem, document in documents.items():
                (folder / f"{stem}.json").write_text(json.dumps(document))
            for name, text in files.items():
                (folder / name.replace("_dot_", ".")).write_text(text)
            return results_page.page(folder)

    def rows(self, rows, documents=None, **keys):
        """Returns the lines of a table with these rows, without those of missed targets."""
        head = "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items() if key != "title")
        title = keys.get("title", "T")
        page = self.page(f'[[tables]]\ntitle = "{title}"\nfile = "run.json"\n{head}rows = [{rows}]\n', documents)
        return [line for line in page.partition(f"## {title}")[2].splitlines() if line.startswith("| ")][1:]

    def refusal(self, rows, documents=None, **keys):
        with self.assertRaises(results_page.PageError) as caught:
            self.rows(rows, documents, **keys)
        return str(caught.exception)

    def test_a_row_has_figure_target_ratio_machine_date_and_commit(self):
        self.assertEqual(self.rows('{ of = "rate", at = ["rate"], unit = "%", wanted = 50 }'),
                         ["| rate | ≥ 50 % | 75.0 % | 1.50 | M | 2026-11-21 | abc1234 |"])

    def test_a_ratio_above_1_is_better_if_less_is_better(self):
        self.assertEqual(self.rows('{ of = "time", at = ["ms"], unit = "ms", wanted = 8 }'),
                         ["| time | ≤ 8 ms | 4 ms | 2.00 | M | 2026-11-21 | abc1234 |"])

    def test_missed_targets_are_marked_and_listed(self):
        page = self.page('[[tables]]\ntitle = "A b"\nfile = "run.json"\n'
                         'rows = [{ of = "time", at = ["ms"], unit = "ms", wanted = 3 }]')
        self.assertIn("| [A b](#a-b) | time | ≤ 3 ms | 4 ms | 0.75 |", page)
        self.assertIn("| time | ≤ 3 ms | 4 ms | **0.75, missed** | M |", page)

    def test_rounding_does_not_hide_a_miss(self):
        [line] = self.rows('{ of = "rate", at = ["rate"], unit = "%", wanted = 75.01 }')
        self.assertIn("**0.9999, missed**", line)

    def test_a_target_of_a_row_with_two_figures_is_a_ratio(self):
        document = RUN | {"ours": 30, "other": 20}
        row = '{ of = "r", at = ["ours"], compared = ["other"], unit = "tokens/s", wanted = 1.6 }'
        [line] = self.rows(row, {"run": document})
        self.assertTrue(line.startswith("| r | ≥ 1.6 x | 20 tokens/s | 30 tokens/s | **1.50, missed** | M |"))

    def test_the_innermost_object_states_the_commit(self):
        document = RUN | {"before": {"commit": "old", "us": 9}, "after": {"commit": "new", "us": 3}}
        [line] = self.rows('{ of = "t", at = ["after", "us"], compared = ["before", "us"], unit = "us" }',
                           {"run": document})
        self.assertEqual(line, "| t |  | 9 us | 3 us | 3.00 | M | 2026-11-21 | new (old) |")

    def test_a_filter_leads_to_matching_elements_and_their_median(self):
        document = RUN | {"runs": [{"n": 1, "s": 0.25}, {"n": 2, "s": 1}, {"n": 2, "s": 3}, {"n": 2, "s": 4}]}
        for path, text in ((1, "0.25 s"), (2, "3 s")):
            [line] = self.rows(f'{{ of = "s", at = ["runs", {{ n = {path} }}, "s"], unit = "s" }}', {"run": document})
            self.assertIn(f"| {text} |", line)
        for stat, text in (("min", "1 s"), ("range", "1 to 4 s"), ("at_least", "2 of 3")):
            row = f'{{ of = "s", at = ["runs", {{ n = 2 }}, "s"], unit = "s", stat = "{stat}", limit = 3 }}'
            [line] = self.rows(row, {"run": document})
            self.assertIn(f"| {text} |", line)

    def test_figures_in_other_units(self):
        document = RUN | {"seconds": 0.0125, "runs": [3, 2], "big": 1234567.4, "small": 0.000123, "below": -33.38}
        for row, text in (('at = ["seconds"], unit = "ms", times = 1e3', "12.5 ms"),
                          ('at = ["seconds"], unit = "tokens/s", count = 500', "40,000 tokens/s"),
                          ('at = ["runs"], unit = "us"', "2 to 3 us"), ('at = ["big"]', "1,234,567"),
                          ('at = ["small"]', "0.00012"), ('at = ["below"], unit = "us", wanted = 1', "-33.4 us")):
            [line] = self.rows(f'{{ of = "f", {row} }}', {"run": document})
            self.assertIn(f"| {text} |", line)

    def test_a_sweep_has_a_line_for_each_setting_or_each_figure(self):
        runs = [{"n": n, "system": system, "s": seconds}
                for n, system, seconds in ((16, "a", 4), (2, "a", 6), (16, "b", 1), (2, "b", 2))]
        origin = "| M | 2026-11-21 | abc1234 |"
        by_setting = [f"| N = 2 | 6 → 2 (3.00) {origin}", f"| N = 16 | 4 → 1 (4.00) {origin}"]
        by_figure = [f"| time, s | 6 → 2 (3.00) | 4 → 1 (4.00) {origin}"]
        for columns, lines in (("figures", by_setting), ("settings", by_figure)):
            page = self.page(f"""
[[tables]]
title = "T"
file = "run.json"
columns = "{columns}"
[[tables.sweeps]]
over = ["runs"]
by = ["n"]
labels = {{ n = "N = {{}}" }}
measured = {{ system = "b" }}
compared = {{ system = "a" }}
rows = "times"
[lists]
times = [{{ of = "time", at = ["s"], unit = "s" }}]
""", {"run": RUN | {"runs": runs}})
            self.assertEqual([line for line in page.splitlines() if "→" in line and line.startswith("|")], lines)

    def test_simulated_figures_are_called_simulated(self):
        document = {"simulated": True, "date": "2026-11-21", "commit": "abc1234", "s": 2}
        row = '{ of = "s", at = ["s"] }'
        self.assertEqual(self.rows(row, {"run": document}, title="T, simulated"),
                         ["| s |  | 2 |  | simulated | 2026-11-21 | abc1234 |"])
        self.assertIn("simulated", self.refusal(row, {"run": document}))
        self.assertIn("simulated", self.refusal('{ of = "ms", at = ["ms"] }', title="T, simulated"))

    def test_a_figure_that_is_missing_is_refused(self):
        self.assertEqual(self.refusal('{ of = "x", at = ["absent"] }'), "run.json: there is no ['absent'] for 'x'")
        self.assertIn("expected a number", self.refusal('{ of = "x", at = ["date"] }'))
        self.assertIn("unknown keys ['att']", self.refusal('{ of = "x", att = ["ms"], at = ["ms"] }'))

    def test_a_file_without_date_commit_or_a_named_machine_is_refused(self):
        for key in ("date", "commit", "machine"):
            document = {name: value for name, value in RUN.items() if name != key} | {"ms": 1}
            self.assertIn("machine" if key == "machine" else "has no date or no commit",
                          self.refusal('{ of = "x", at = ["ms"] }', {"run": document}))

    def test_a_file_without_a_row_is_refused(self):
        with self.assertRaisesRegex(results_page.PageError, "no table has these files: plot.svg"):
            self.page('[[tables]]\ntitle = "T"\nfile = "run.json"\nrows = [{ of = "ms", at = ["ms"] }]',
                      plot_dot_svg="")


if __name__ == "__main__":
    unittest.main()
