"""Tests of the study on public data, with tiny models and data. Run with: tools/finetune test"""

import contextlib
import io
import json
import sys
import unittest
import xml.dom.minidom
from pathlib import Path
from unittest import mock

import torch

from finetuning import command
from finetuning.examples import read_examples
from finetuning.finetuning_test import LLAMA, LLAMA_BF16, OPTIONS, ROWS, Scratch, changed, prompts
from finetuning.module_dir import ModuleDir
from finetuning.sequences import Sequences
from finetuning.study import public, public_report, public_tasks, tuning
from finetuning.training import Options, Training, passes

TOOLS = Path(__file__).resolve().parent
GOLD = {"find": {"city": ["New York", "NYC"], "limit": [5], "near": [True], "unit": ["km", ""],
                 "filters": [{"price": [10, 12.5], "tags": [["a", "b"]], "open": ["", True]}]}}
CALL = {"city": "new-york", "limit": 5.0, "near": True, "filters": {"price": 12.5, "tags": ["A", "b"]}}


def write_lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_data(folder):
    """Writes a few rows in the formats of GSM8K and BFCL."""
    write_lines(folder / "gsm8k" / "train.jsonl", [{"question": f"{n} and 1?", "answer": f"<<{n}+1={n + 1}>>\n#### {n + 1}"}
                                                   for n in range(8)])
    for part in ("simple_python", "multiple", "live_simple"):
        rows = [{"id": f"{part}_{n}", "question": [[{"role": "user", "content": f"f {n}"}]], "function": [{"name": f"{part}{n}"}]}
                for n in range(3)]
        write_lines(folder / "bfcl" / f"BFCL_v4_{part}.json", rows)
        write_lines(folder / "bfcl" / "possible_answer" / f"BFCL_v4_{part}.json",
                    [{"id": row["id"], "ground_truth": [{row["function"][0]["name"]: {"n": [n], "o": ["", 1]}}]}
                     for n, row in enumerate(rows)])


class PublicTasksTest(Scratch):
    def test_a_call_is_right_if_each_argument_is_one_that_is_accepted(self):
        def right(change=(), name="find"):
            return public_tasks.right("bfcl", json.dumps({"name": name, "arguments": CALL | dict(change)}), GOLD)
        self.assertTrue(right())
        self.assertTrue(right({"unit": "KM"}))
        for change in ({"city": "Boston"}, {"limit": "5"}, {"limit": True}, {"near": 1}, {"near": False}, {"unit": "miles"}, {"more": 1},
                       {"filters": {"price": 11, "tags": ["a", "b"]}}, {"filters": {"price": 10, "tags": ["b", "a"]}},
                       {"filters": {"price": 10}}, {"filters": 3}):
            self.assertFalse(right(change), change)
        self.assertFalse(right(name="seek"))
        for text in ("", "find(city='NYC')", "[]", '{"name": "find"}', '{"name": "find", "arguments": {"city": "NYC"}}'):
            self.assertFalse(public_tasks.right("bfcl", text, GOLD), text)

    def test_the_number_that_counts_is_the_one_after_the_marks_or_else_the_last(self):
        for text, right in (("8*1000\n#### 8,000", True), ("so 8000.0", True), ("1 and 8000", True), ("#### 8001", False),
                            ("8000\n#### 3", False), ("#### ", False), ("-8000", False), ("", False)):
            self.assertEqual(public_tasks.right("gsm8k", text, 8000.0), right, text)

    def test_answers_to_learn_are_right_and_none_is_tested(self):
        write_data(self.scratch)
        for task in ("gsm8k", "bfcl"):
            train, test = public_tasks.load(task, self.scratch, {"train": 100, "test": 3})
            self.assertEqual((train, test), public_tasks.load(task, self.scratch, {"train": 100, "test": 3}))
            self.assertEqual(len(test), 3)
            self.assertTrue(all(public_tasks.right(task, row["answer"], row["gold"]) for row in train + test))
            self.assertFalse({row["prompt"] for row in train} & {row["prompt"] for row in test})

    def test_rows_to_validate_on_are_neither_trained_on_nor_tested_on(self):
        write_data(self.scratch)
        for task in ("gsm8k", "bfcl"):
            settings = {"train": 100, "test": 2}
            _, test = public_tasks.load(task, self.scratch, settings)
            train, validation = public_tasks.load(task, self.scratch, settings | {"validate": 3})
            self.assertEqual(len(validation), 3)
            prompts_of = [{row["prompt"] for row in rows} for rows in (train, validation, test)]
            self.assertEqual(len(set.union(*prompts_of)), sum(map(len, prompts_of)))

    def test_no_function_of_a_test_row_is_one_of_a_training_row(self):
        rows = [{"gold": {name: {}}} for name in "aabbbc"]
        self.assertEqual([len(part) for part in public_tasks._split(rows, 2)], [4, 2])
        self.assertEqual([len(part) for part in public_tasks._split(rows, 3)], [1, 3])
        self.assertEqual([len(part) for part in public_tasks._split(rows, 6)], [0, 6])

    def test_data_that_lacks_is_an_error(self):
        write_data(self.scratch)
        self.assert_refused(["nowhere"], public_tasks.load, "gsm8k", self.scratch / "nowhere", {"train": 1, "test": 1})
        self.assert_refused(["0 + 8 rows", "100"], public_tasks.load, "gsm8k", self.scratch, {"train": 1, "test": 100})
        self.assert_refused(["expected some of", "'sums'"], public_tasks.load, "sums", self.scratch, {})


class PassesTest(Scratch):
    def test_passes_hold_each_example_once_and_no_more_tokens_than_fit(self):
        examples = [mock.Mock(prompt=prompt, answer=answer) for prompt, answer in zip(prompts(30), prompts(30, seed=9))]
        cut = passes(examples, 200)
        self.assertEqual(sorted(i for some in cut for i in some), list(range(30)))
        for some in cut:
            width = max(len(examples[i].prompt) for i in some) + max(len(examples[i].answer) for i in some)
            self.assertLessEqual(len(some) * width, 200)
        self.assertEqual(len(passes(examples, 1)), 30)
        self.assertEqual(passes(examples, None), [list(range(30))])

    def steps(self, out, method="cache-conditioned", **options):
        module = ModuleDir(LLAMA)
        training = Training(module, read_examples(self.jsonl(ROWS), module),
                            Options(method=method, **OPTIONS | {"save_every": None} | options), self.scratch / out, "cpu")
        training.start_or_resume(False)
        training.run()
        return training.losses

    def test_a_step_in_passes_is_the_step_at_once(self):
        for method in ("cache-conditioned", "full"):
            whole, cut = (self.steps(f"{method}-{tokens}", method, pass_tokens=tokens) for tokens in (None, 40))
            torch.testing.assert_close(torch.tensor(cut), torch.tensor(whole), atol=1e-3, rtol=1e-3)
        self.assertFalse((self.scratch / "full-40" / "training" / "checkpoint.pt").exists())

    def test_bfloat16_learns_as_float32_does(self):
        for method in ("cache-conditioned", "full"):
            exact, rounded = (self.steps(f"{method}-{precision}", method, precision=precision, epochs=20)
                              for precision in ("float32", "bfloat16"))
            self.assertNotEqual(exact, rounded)
            self.assertLess(rounded[-1], 1.5 * exact[-1] + 0.1)

    @torch.no_grad()
    def test_padding_is_finite_and_never_read(self):
        model = changed(ModuleDir(LLAMA)).eval()
        sequences = Sequences(2, torch.float32, "cpu")
        sequences.extend(model, [[], [5, 6, 7, 8]])
        hidden = sequences.extend(model, [[9, 10], [11]])
        self.assertTrue(hidden.isfinite().all())
        torch.testing.assert_close(hidden[0], model.model(torch.tensor([[9, 10]])).last_hidden_state[0])


class PublicStudyTest(Scratch):
    def test_the_command_trains_measures_reports_and_does_nothing_twice(self):
        write_data(self.scratch / "data")
        settings = json.loads((TOOLS / "study" / "public.json").read_text())
        settings |= {"seeds": 2, "ratios": [0.0, 0.5, 1.0], "chat": "{prompt}>"}
        for task in settings["tasks"].values():
            task |= {"test": 3, "max_tokens": 4}
            for recipe in task["decoders"].values():
                recipe |= {"epochs": 1, "batch": 4}
        (self.scratch / "settings.json").write_text(json.dumps(settings))
        arguments = ["finetune", "study-public", "--base", str(LLAMA_BF16), "--data", str(self.scratch / "data"), "--work",
                     str(self.scratch / "work"), "--settings", str(self.scratch / "settings.json"), "--device", "cpu", "--baton", "none"]
        with mock.patch.object(public.concurrent.futures, "ProcessPoolExecutor", InThisProcess):
            for trained in (8, 0):
                with mock.patch.object(sys, "argv", arguments), contextlib.redirect_stdout(io.StringIO()) as output, \
                        contextlib.redirect_stderr(io.StringIO()) as errors:
                    self.assertEqual(command.main(), 0, errors.getvalue())
                self.assertEqual(output.getvalue().count(" steps in "), trained)
        cells = (self.scratch / "work" / "cells.jsonl").read_text().splitlines()
        # For each task: the base, the first seed at all ratios, and the second seed.
        self.assertEqual(len(cells), 2 * (1 + 3 + 3 + 2 + 1))
        report = json.loads((self.scratch / "work" / "report.json").read_text())["table"]["bfcl"]
        self.assertEqual(set(report["reference"]) - {"differences"}, {"base", "full", "naive", "cache-conditioned"})
        self.assertEqual(len(report["reference"]["full"]["right"]), 2)
        self.assertEqual(set(report["by_ratio"]["full"]), {"0.0", "0.5", "1.0"})
        xml.dom.minidom.parse(str(self.scratch / "work" / "ratios.gsm8k.svg"))

        def refused(*more):
            with mock.patch.object(sys, "argv", [*arguments, *more]), contextlib.redirect_stderr(io.StringIO()) as errors:
                self.assertEqual(command.main(), 1)
            return errors.getvalue()
        self.assertIn("expected some of bfcl, gsm8k, got sums", refused("--tasks", "sums"))
        self.assertIn("holds no results", refused("--report", "--work", str(self.scratch)))
        (self.scratch / "settings.json").write_text(json.dumps(settings | {"seeds": 3}))
        self.assertIn("other settings", refused())

    def test_a_job_that_fails_is_tried_again_and_then_named(self):
        tries = []

        def fails(study, task, method, seed):
            tries.append((task, method, seed))
            raise MemoryError("full")
        settings = {"seeds": 1, "ratios": [], "tasks": {"bfcl": {"decoders": {"full": {}}}}}
        study = public.Study(LLAMA, self.scratch, self.scratch, "cpu", settings)
        done = mock.Mock(all={("bfcl", "base", 0, 1.0, "reference"): {}})
        with mock.patch.object(public.concurrent.futures, "ProcessPoolExecutor", InThisProcess), \
                mock.patch.object(public, "train", fails), contextlib.redirect_stdout(io.StringIO()):
            [problem] = public.run_jobs(study, ["bfcl"], done, 1)
        self.assertEqual(len(tries), 2)
        self.assertIn("full 0: MemoryError", problem)

    def test_recipes_are_ranked_at_trained_sharing_ratio(self):
        task = {"tuning": {"validate": 4, "recipes": {"full": [{"epochs": 1}, {"epochs": 2}], "cache-conditioned": [{"epochs": 3}]}}}
        settings = {"tasks": {"bfcl": tuning.grid(task)}}
        cells = [self.cell("full-0", 0.0, "1000"), self.cell("full-1", 0.0, "1100"), self.cell("full-1", 1.0, "1111"),
                 self.cell("base", 1.0, "1111"), self.cell("cache-conditioned-0", 1.0, "1110")]
        self.assertEqual([(row["recipe"], row["right"]) for row in tuning.compare(settings, cells)],
                         [({"method": "cache-conditioned", "epochs": 3}, 3), ({"method": "full", "epochs": 2}, 2),
                          ({"method": "full", "epochs": 1}, 1)])
        self.assertNotIn("tuning", settings["tasks"]["bfcl"])
        self.assertEqual(settings["tasks"]["bfcl"]["validate"], 4)

    def cell(self, method, share, right, seed=0, through="reference"):
        return {"task": "bfcl", "method": method, "seed": seed, "share": share, "through": through, "right": right,
                "texts": [f"{method}{i}" for i in range(len(right))]}

    def test_table_has_means_over_seeds_and_server_answers(self):
        cells = [self.cell("full", 0.0, "1100"), self.cell("full", 0.0, "1110", seed=1), self.cell("full", 1.0, "0000"),
                 self.cell("cache-conditioned", 1.0, "1110"), self.cell("cache-conditioned", 1.0, "1111", seed=1),
                 self.cell("cache-conditioned", 1.0, "1111", through="server")]
        entry = public_report.gather(cells)["bfcl"]
        self.assertEqual(entry["reference"]["full"]["right"], [2, 3])
        self.assertEqual(entry["reference"]["full"]["mean"], 5 / 8)
        ours, naive = entry["reference"]["differences"]
        self.assertEqual((ours["by_seed"], ours["mean"]), ([0.25, 0.25], 0.25))
        self.assertEqual((naive["by_seed"], naive["low"]), ([-0.5], None))
        self.assertEqual(entry["server"]["cache-conditioned"]["as_reference"], [4, 4])
        self.assertEqual(entry["by_ratio"]["full"]["1.0"]["right"], [0])
        with contextlib.redirect_stdout(io.StringIO()):
            public_report.show({"bfcl": entry})

    def test_an_interval_is_wider_where_seeds_differ(self):
        same, other = [[1, 0] * 50] * 3, [[1] * 100, [0] * 100, [1, 0] * 50]
        (low, high), (lowest, highest) = map(public_report.interval, (same, other))
        self.assertAlmostEqual(low, 0.4, delta=0.03)
        self.assertAlmostEqual(high, 0.6, delta=0.03)
        self.assertTrue(lowest < low and high < highest)


class InThisProcess(public.concurrent.futures.Executor):
    """Runs a job when it is submitted, because a process takes seconds to load PyTorch."""

    def __init__(self, *_):
        pass

    def submit(self, function, *arguments):
        future = public.concurrent.futures.Future()
        try:
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future


if __name__ == "__main__":
    unittest.main()
