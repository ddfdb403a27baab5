"""lm-eval, run as its users run it, on two small tasks in local files."""

import importlib.util
import sys
import unittest

from evaluation import evaluate
from features import PackageTest, feature


@unittest.skipUnless(importlib.util.find_spec("lm_eval"), "tools/setup --evals installs lm-eval")
class LmEvalTest(PackageTest):
    package = "lm-eval"

    def evaluate(self, model, kind, path, task, *words, **arguments):
        """Runs a task, and returns its samples."""
        return evaluate(sys.executable, kind, task, words, model=model.name, base_url=f"{model.url}/{path}", **arguments)

    @feature("loglikelihood task, `local-completions`")
    def test_loglikelihood(self, model):
        samples = self.evaluate(model, "local-completions", "completions", "capitals", tokenizer=model.path)
        self.assertEqual([sample["acc"] for sample in samples], [1] * 4)

    @feature("perplexity task, `local-completions`")
    def test_perplexity(self, model):
        samples = self.evaluate(model, "local-completions", "completions", "capitals_perplexity", tokenizer=model.path)
        for sample in samples:
            log_probability, words = sample["word_perplexity"]
            # Random words would be far less probable.
            self.assertTrue(-6 * words < log_probability < 0, sample)

    @feature("generate task, `local-completions`")
    def test_generate(self, model):
        samples = self.evaluate(model, "local-completions", "completions", "capitals_text", tokenizer=model.path)
        self.assertIn("Paris", samples[0]["resps"][0][0])

    @feature("generate task, `local-chat-completions`")
    def test_generate_chat(self, model):
        samples = self.evaluate(model, "local-chat-completions", "chat/completions", "capitals_text", "--apply_chat_template")
        self.assertIn("Paris", samples[0]["resps"][0][0])


if __name__ == "__main__":
    unittest.main()
