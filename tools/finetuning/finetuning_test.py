"""Run with: tools/finetune test"""

import contextlib
import io
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import unittest
import xml.dom.minidom
from pathlib import Path
from unittest import mock

import torch

from finetuning import command
from finetuning.accuracy import wilson
from finetuning.errors import InputError
from finetuning.examples import read_examples
from finetuning.line_plot import line_plot
from finetuning.module_dir import ModuleDir, check_shareable, write_module
from finetuning.reference import generate, generate_in_batches
from finetuning.sequences import prefill
from finetuning.study import report, tasks
from finetuning.training import Options, Training, answer_loss, batch_of, rate_factor, shares_of

GOLDEN = Path(__file__).resolve().parents[2] / "test" / "golden"
LLAMA, LLAMA_BF16 = GOLDEN / "tiny_llama3_f32", GOLDEN / "tiny_llama3_bf16"
ROWS = [{"prompt": f"say {word}:", "answer": f" {word}!"} for word in ("one", "two", "three", "four", "fifteen", "six")]
OPTIONS = dict(learning_rate=3e-3, epochs=2, batch=4, seed=5, save_every=100)


def changed(module_dir, scale=0.3, seed=1):
    """Writes a decoder that differs from the base."""
    model = module_dir.load().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += scale * parameter.std() * torch.randn(parameter.shape, generator=generator)
    return model


def prompts(count, vocabulary=272, seed=3):
    rng = random.Random(seed)
    return [[rng.randrange(vocabulary) for _ in range(rng.randint(1, 40))] for _ in range(count)]


def by_hand(base, decoder, prompt, count):
    """Applies the boundary rule with transformers alone, without padding or batches."""
    cache = base(torch.tensor([prompt[:-1]]), use_cache=True).past_key_values if len(prompt) > 1 else None
    step, tokens = prompt[-1:], []
    for _ in range(count):
        output = decoder(torch.tensor([step]), past_key_values=cache, use_cache=True)
        cache, step = output.past_key_values, [int(output.logits[0, -1].argmax())]
        tokens += step
    return tokens


class Scratch(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = Path(scratch.name)

    def jsonl(self, rows, name="data.jsonl"):
        path = self.scratch / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    def assert_refused(self, parts, function, *args, **options):
        with self.assertRaises(InputError) as caught:
            function(*args, **options)
        for part in parts:
            self.assertIn(part, str(caught.exception))

    def training(self, out, method="cache-conditioned", base=LLAMA, **options):
        module = ModuleDir(base)
        examples = read_examples(self.jsonl(ROWS), module)
        return Training(module, examples, Options(method=method, **(OPTIONS | options)), self.scratch / out, "cpu")


class ReferenceTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.module = ModuleDir(LLAMA)
        cls.base, cls.decoder = cls.module.load().eval(), changed(cls.module)

    def tokens(self, base, decoder, some, **options):
        return [output["tokens"] for output in generate_in_batches(
            base, decoder, some, 12, batch=5, **({"kv_dtype": torch.float32} | options))]

    @torch.no_grad()
    def test_batch_generates_same_tokens_as_single_prompts(self):
        some = [*prompts(12), list(range(122))]
        self.assertEqual(self.tokens(self.base, self.decoder, some),
                         [by_hand(self.base, self.decoder, prompt, 12) for prompt in some])

    @torch.no_grad()
    def test_a_decoder_equal_to_the_base_is_the_plain_model(self):
        some = prompts(6)
        plain = [self.base.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False, eos_token_id=None,
                                    pad_token_id=0)[0, len(prompt):].tolist() for prompt in some]
        self.assertEqual(self.tokens(self.base, self.base, some), plain)

    def test_nothing_shared_is_the_decoder_alone(self):
        some = prompts(6)
        alone, shared = (self.tokens(base, self.decoder, some) for base in (self.decoder, self.base))
        self.assertEqual(self.tokens(self.base, self.decoder, some, share=0.0), alone)
        self.assertNotEqual(shared, alone)

    @torch.no_grad()
    def test_a_share_of_the_prompt_comes_from_the_base_and_the_rest_reads_it(self):
        [prompt] = [p for p in prompts(20) if len(p) == 21][:1] or [list(range(21))]
        hidden = prefill(self.base, self.decoder, [prompt], [0.5], torch.float32).extend(self.decoder, [prompt[-1:]])
        cache = self.base(torch.tensor([prompt[:10]]), use_cache=True).past_key_values
        expected = self.decoder.model(torch.tensor([prompt[10:]]), past_key_values=cache).last_hidden_state[:, -1]
        torch.testing.assert_close(hidden[:, -1], expected)

    def test_output_ends_with_the_first_end_of_sequence(self):
        some = prompts(6)
        free = self.tokens(self.base, self.decoder, some)
        eos = free[0][3]
        for got, whole in zip(self.tokens(self.base, self.decoder, some, eos_ids=[eos]), free):
            self.assertEqual(got, whole[:whole.index(eos) + 1] if eos in whole else whole)

    def test_kv_of_bf16_models_is_rounded_as_the_server_stores_it(self):
        some = [prompt for prompt in prompts(6) if len(prompt) > 2]
        exact, rounded = (generate(self.base, self.decoder, some, 4, kv_dtype=dtype)
                          for dtype in (torch.float32, torch.bfloat16))
        self.assertNotEqual([o["gaps"] for o in exact], [o["gaps"] for o in rounded])


class LossTest(unittest.TestCase):
    def test_cache_conditioned_loss_is_that_of_the_decoder_over_the_bases_kv(self):
        module = ModuleDir(LLAMA)
        base, decoder = module.load().eval(), changed(module)
        examples = [mock.Mock(prompt=prompt, answer=answer) for prompt, answer in zip(prompts(5), prompts(5, seed=9))]
        losses = []
        for example in examples:
            with torch.no_grad():
                cache = base(torch.tensor([example.prompt[:-1]]), use_cache=True).past_key_values if len(example.prompt) > 1 else None
            logits = decoder(torch.tensor([example.prompt[-1:] + example.answer[:-1]]), past_key_values=cache).logits[0]
            losses.append(torch.nn.functional.cross_entropy(logits, torch.tensor(example.answer), reduction="sum"))
        expected = sum(losses) / sum(len(example.answer) for example in examples)
        loss = answer_loss(base.requires_grad_(False), decoder, examples, [1.0] * 5, torch.float32)
        torch.testing.assert_close(loss, expected)
        gradients = [torch.autograd.grad(value, list(decoder.parameters()), retain_graph=True) for value in (loss, expected)]
        for got, wanted in zip(*gradients):
            torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-3)
        loss.backward()
        self.assertTrue(all(parameter.grad is None for parameter in base.parameters()))

    def test_full_loss_is_transformers_own_over_the_answer(self):
        module = ModuleDir(LLAMA)
        model = module.load()
        prompt, answer = list(range(5, 17)), list(range(30, 38))
        labels = torch.tensor([[-100] * len(prompt) + answer])
        expected = model(torch.tensor([prompt + answer]), labels=labels).loss
        loss = answer_loss(model, model, [mock.Mock(prompt=prompt, answer=answer)], [0.0], torch.float32)
        torch.testing.assert_close(loss, expected)

    def test_shares_of_a_batch_are_as_asked_for_or_drawn_anew_each_step(self):
        self.assertEqual(shares_of(3, 7, Options(method="full")), [0.0] * 3)
        self.assertEqual(shares_of(3, 7, Options(share=0.5)), [0.5] * 3)
        drawn = [shares_of(100, step, Options(share=None)) for step in (7, 7, 8)]
        self.assertEqual(drawn[0], drawn[1])
        self.assertNotEqual(drawn[1], drawn[2])
        self.assertTrue(min(drawn[0]) < 0.1 and max(drawn[0]) > 0.9)

    def test_the_rate_rises_over_the_warm_up_and_falls_to_nothing(self):
        for schedule in ("cosine", "linear"):
            options = Options(schedule=schedule, warmup=0.03)
            rates = [rate_factor(step, 1000, options) for step in range(1000)]
            self.assertAlmostEqual(rates[0], 1 / 30)
            self.assertEqual(rates.index(max(rates)), 29)
            self.assertEqual(rates[29:], sorted(rates[29:], reverse=True))
            self.assertLess(rates[-1], 0.01)
            self.assertAlmostEqual(rates[515], 0.5, delta=0.01)

    def test_each_epoch_has_every_example_once_in_an_order_of_its_own(self):
        examples, options = list(range(10)), Options(batch=4)
        epochs = [[x for step in range(3 * epoch, 3 * epoch + 3) for x in batch_of(examples, step, options)] for epoch in (0, 1)]
        self.assertEqual([sorted(epoch) for epoch in epochs], [examples, examples])
        self.assertNotEqual(*epochs)


class TrainingTest(Scratch):
    def weights(self, out):
        return (self.scratch / out / "model.safetensors").read_bytes()

    def test_a_resumed_run_gives_the_same_weights_as_one_that_never_stopped(self):
        for method, share in (("cache-conditioned", 1.0), ("cache-conditioned", None), ("full", 1.0)):
            whole, parts = f"whole-{method}-{share}", f"parts-{method}-{share}"
            uninterrupted = self.training(whole, method, share=share)
            uninterrupted.start_or_resume(False)
            uninterrupted.run()
            first = self.training(parts, method, share=share)
            first.start_or_resume(False)
            first.run(stop_after=1)
            self.assertFalse((self.scratch / parts / "model.safetensors").exists())
            second = self.training(parts, method, share=share)
            second.start_or_resume(True)
            second.run()
            self.assertEqual(second.losses, uninterrupted.losses)
            self.assertEqual(self.weights(parts), self.weights(whole))

    def test_cache_conditioned_training_makes_the_base_kv_readable(self):
        training = self.training("out", epochs=30, base=LLAMA_BF16)
        training.start_or_resume(False)
        training.run()
        self.assertLess(training.losses[-1], 0.2 * training.losses[0])
        base, decoder = ModuleDir(LLAMA_BF16), ModuleDir(self.scratch / "out")
        check_shareable(base, decoder)
        examples = read_examples(self.jsonl(ROWS), base)
        outputs = generate(base.load().eval(), decoder.load().eval(), [e.prompt for e in examples], 12,
                           kv_dtype=base.dtype, eos_ids=base.eos_ids)
        self.assertGreater(sum(o["tokens"] == e.answer for o, e in zip(outputs, examples)), 4)
        xml.dom.minidom.parse(str(self.scratch / "out" / "training" / "loss.svg"))

    def test_a_module_that_is_written_is_the_one_that_was_read(self):
        for name in ("tiny_llama3_bf16", "tiny_qwen2_5_bf16", "tiny_qwen3_f32"):
            module, out = ModuleDir(GOLDEN / name), self.scratch / name
            write_module(module.load(), module, out)
            again = ModuleDir(out)
            check_shareable(module, again)
            for (name, before), (_, after) in zip(module.load().named_parameters(), again.load().named_parameters()):
                self.assertTrue(torch.equal(before, after), name)

    def test_a_run_resumes_only_as_it_began(self):
        first = self.training("out")
        self.assert_refused(["nothing to resume"], first.start_or_resume, True)
        first.start_or_resume(False)
        first.run(stop_after=1)
        self.assert_refused(["--resume"], self.training("out").start_or_resume, False)
        self.assert_refused(["seed: the checkpoint has 5, the command line 6"], self.training("out", seed=6).start_or_resume, True)
        (self.scratch / "out" / "training" / "checkpoint.pt").write_bytes(b"PK not a checkpoint")
        self.assert_refused(["checkpoint.pt", "damaged"], self.training("out").start_or_resume, True)

    def test_an_interrupted_run_ends_with_its_step_and_can_be_resumed(self):
        def interrupted(*arguments):
            os.kill(os.getpid(), signal.SIGINT)
            return answer_loss(*arguments)
        training = self.training("out")
        training.start_or_resume(False)
        with mock.patch("finetuning.training.answer_loss", interrupted):
            self.assert_refused(["after 1 of 4 steps", "--resume"], training.run)
        again = self.training("out")
        again.start_or_resume(True)
        self.assertEqual(again.losses, training.losses)

    def test_a_rate_that_is_far_too_high_is_an_error(self):
        training = self.training("out", learning_rate=1e30)
        training.start_or_resume(False)
        self.assert_refused(["--learning-rate"], training.run)


class BadInputTest(Scratch):
    def examples(self, *rows, **options):
        return read_examples(self.jsonl(rows), ModuleDir(LLAMA), **options)

    def test_bad_data_is_named_with_its_line(self):
        good = {"prompt": "a", "answer": "b"}
        self.assert_refused([":2:", "expected", "['prompt']"], self.examples, good, {"prompt": "a"})
        self.assert_refused([":2:", "answer", "not empty"], self.examples, good, {"prompt": "a", "answer": ""})
        self.assert_refused([":1:", "prompt", "3"], self.examples, {"prompt": 3, "answer": "b"})
        self.assert_refused([":1:", "context is 512"], self.examples, {"prompt": "#" * 600, "answer": "b"})
        self.assert_refused([":1:", "--method full"], self.examples, {"text": "abc"})
        self.assert_refused(["no examples"], self.examples)
        self.assert_refused(["nowhere"], read_examples, self.scratch / "nowhere", ModuleDir(LLAMA))
        (self.scratch / "bad").write_bytes(b'{"prompt": "a", \xff')
        self.assert_refused(["bad"], read_examples, self.scratch / "bad", ModuleDir(LLAMA))
        (self.scratch / "bad").write_text('{"prompt": "a"')
        self.assert_refused(["bad:1"], read_examples, self.scratch / "bad", ModuleDir(LLAMA))

    def test_whole_texts_have_loss_on_all_but_the_first_token(self):
        [example] = self.examples({"text": "abc"}, whole_texts=True)
        self.assertEqual((len(example.prompt), len(example.answer), example.answer[-1]), (1, 3, 1))

    def copy(self, change, source=LLAMA, name="decoder"):
        shutil.copytree(source, self.scratch / name)
        for file, field, value in change:
            path = self.scratch / name / file
            path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
        return self.scratch / name

    def test_a_decoder_that_cannot_read_the_bases_kv_is_refused_with_both_values(self):
        base = ModuleDir(LLAMA)
        other = self.copy([("config.json", "num_key_value_heads", 4)])
        self.assert_refused(["num_key_value_heads", "4", "2"], check_shareable, base, ModuleDir(other))
        other = self.copy([("tokenizer.json", "normalizer", {"type": "NFC"})], name="second")
        self.assert_refused(["another tokenizer"], check_shareable, base, ModuleDir(other))
        self.assert_refused(["dtype"], check_shareable, base, ModuleDir(LLAMA_BF16))
        self.assert_refused(["model_type", "qwen3"], check_shareable, base, ModuleDir(GOLDEN / "tiny_qwen3_f32"))

    def test_a_directory_that_is_no_model_is_refused(self):
        self.assert_refused(["nowhere", "Hugging Face directory"], ModuleDir, self.scratch / "nowhere")
        self.assert_refused(["model_type", "'gpt2'"], ModuleDir, self.copy([("config.json", "model_type", "gpt2")]))
        broken = self.copy([], name="broken")
        (broken / "model.safetensors").write_bytes(b"\x10")
        self.assert_refused(["broken"], ModuleDir(broken).load)
        (broken / "tokenizer.json").write_text('{"model": 3}')
        self.assert_refused(["tokenizer.json"], ModuleDir, broken)

    def run_command(self, *arguments):
        errors, output = io.StringIO(), io.StringIO()
        with mock.patch.object(sys, "argv", ["finetune", *map(str, arguments)]), \
                contextlib.redirect_stderr(errors), contextlib.redirect_stdout(output):
            status = command.main()
        return status, output.getvalue(), errors.getvalue()

    def test_the_command_trains_evaluates_and_answers_in_json(self):
        data, out = self.jsonl(ROWS), self.scratch / "out"
        status, output, errors = self.run_command("train", "--base", LLAMA, "--data", data, "--out", out, "--epochs", 1,
                                                  "--device", "cpu")
        self.assertEqual(status, 0, errors)
        pair = ("--base", LLAMA, "--decoder", out, "--device", "cpu")
        status, output, errors = self.run_command("evaluate", *pair, "--data", data, "--reference")
        self.assertEqual((status, output[:9]), (0, "accuracy "), errors)
        (self.scratch / "prompts.json").write_text(json.dumps(["hello", [5, 6, 7]]))
        status, output, errors = self.run_command("reference", *pair, "--prompts", self.scratch / "prompts.json",
                                                  "--max-tokens", 3, "--ignore-eos")
        self.assertEqual([len(o["tokens"]) for o in json.loads(output)["outputs"]], [3, 3], errors)

    def test_the_command_reports_errors_in_one_line(self):
        data = self.jsonl(ROWS)
        for arguments, part in (
                (("evaluate", "--data", data, "--server", "127.0.0.1:1", "--tokenizer", LLAMA), "UNAVAILABLE"),
                (("evaluate", "--data", data, "--reference"), "--base and --decoder"),
                (("train", "--base", LLAMA, "--data", data, "--out", LLAMA), "is the base itself"),
                (("reference", "--base", LLAMA, "--decoder", LLAMA, "--prompts", data), "data.jsonl")):
            status, _, errors = self.run_command(*arguments)
            self.assertEqual((status, errors.count("\n")), (1, 1), errors)
            self.assertIn(part, errors)


class FiguresTest(Scratch):
    def test_intervals_hold_at_the_ends(self):
        for right, total, low, high in ((50, 100, 0.404, 0.596), (0, 100, 0, 0.037), (100, 100, 0.963, 1)):
            got = wilson(right, total)
            self.assertAlmostEqual(got[0], low, places=3)
            self.assertAlmostEqual(got[1], high, places=3)

    def test_a_plot_is_well_formed_whatever_its_names(self):
        line_plot(self.scratch / "plot.svg", "a < b & c", "x", "y", {"<one>": [(0, 1), (1, 3)], "two": [(0, 0)]})
        plot = xml.dom.minidom.parse(str(self.scratch / "plot.svg"))
        self.assertEqual(len(plot.getElementsByTagName("polyline")), 2)


class StudyTest(unittest.TestCase):
    def test_rows_are_the_same_for_a_seed_and_test_rows_are_not_trained_on(self):
        for task in tasks.TASKS:
            rows = tasks.make(task, random.Random(1), 200)
            self.assertEqual(rows, tasks.make(task, random.Random(1), 200))
            prompts_of_rows = {row["prompt"] for row in rows}
            others = tasks.make(task, random.Random(2), 200, without=prompts_of_rows)
            self.assertFalse(prompts_of_rows & {row["prompt"] for row in others})

    def test_answers_are_right(self):
        for row in tasks.make("arithmetic", random.Random(3), 100):
            first, second = (int(word) for word in row["prompt"].split() if word.isdigit())
            self.assertEqual(int(row["answer"]), first + second if "brings" in row["prompt"] else first - second)
        for row in tasks.make("tool-call", random.Random(3), 100):
            call = json.loads(row["answer"])
            for value in call["args"].values():
                self.assertIn(str(value), row["prompt"])


    def runs(self, full, naive, ours, seeds=1, any_share=(198, 197, 196)):
        ratios = {"full": {0.0: full, 0.5: 90, 1.0: naive}, "cache-conditioned": {0.0: 0, 0.5: 20, 1.0: ours},
                  "any-share": dict(zip((0.0, 0.5, 1.0), any_share))}
        return [{"task": "sum", "method": method, "seed": seed, "ratios": by_ratio, "base": 1}
                for seed in range(seeds) for method, by_ratio in ratios.items()]

    def test_the_table_adds_up_the_seeds(self):
        [row] = report.gather(self.runs(198, 10, 197, seeds=3), 200, (0.0, 0.5, 1.0))
        self.assertEqual([row[name] for name in ("total", "base", "full", "naive", "cache-conditioned")], [600, 3, 594, 30, 591])
        self.assertAlmostEqual(row["difference"]["mean"], -0.005)
        self.assertAlmostEqual(row["difference"]["half_interval"], 0)

    def test_study_fails_when_result_misses_target(self):
        def found(full, naive, ours, as_reference=200, **more):
            served = [{"task": "sum", "method": "cache-conditioned", "right": ours, "as_reference": as_reference, "total": 200}]
            return list(report.problems(report.gather(self.runs(full, naive, ours, **more), 200, (0.0, 0.5, 1.0)), served, None))
        self.assertEqual(found(198, 10, 197), [])
        for numbers, part in (((198, 10, 150), "cache-conditioned has 75.0%"), ((198, 180, 197), "naive sharing has 90.0%"),
                              ((198, 10, 197, 150), "150 of 200 answers of the server")):
            [problem] = found(*numbers)
            self.assertIn(part, problem)
        self.assertEqual(found(198, 10, 196), [])  # 1 % of 200 prompts
        [problem] = found(198, 10, 195)
        self.assertIn("cache-conditioned has 97.5%, full fine-tuning 99.0%", problem)
        # A decoder that was trained for all ratios must reach the accuracy at each of them.
        [problem] = found(198, 10, 197, any_share=(198, 195, 198))
        self.assertIn("has 97.5% at 50%, full fine-tuning 99.0%", problem)


if __name__ == "__main__":
    unittest.main()
