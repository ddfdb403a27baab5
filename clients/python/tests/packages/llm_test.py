"""Simon Willison's program llm, by its command line."""

import pathlib
import tempfile
import unittest

from click.testing import CliRunner
from features import CAPITAL, QUESTION, PackageTest, feature
from llm.cli import cli

MODELS = """
- model_id: chat
  model_name: {model.name}
  api_base: {model.url}
  supports_tools: true
  supports_schema: true
  vision: true
- model_id: completions
  model_name: {model.name}
  api_base: {model.url}
  completion: true
- model_id: responses
  model_name: {model.name}
  api_base: {model.url}
  responses: true
"""
WEATHER = """
def weather(city: str) -> str:
    "The weather of a city."
    return f"sunny in {city}"
"""
OPTIONS = ["-o", "temperature", "0", "-o", "max_tokens", "40"]


class LlmTest(PackageTest):
    package = "llm"

    def llm(self, model, *words):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        (pathlib.Path(scratch.name) / "extra-openai-models.yaml").write_text(MODELS.format(model=model))
        self.program = CliRunner(env={"LLM_USER_PATH": scratch.name})
        return self.again(*words)

    def again(self, *words):
        """Runs the program with the files of its last run."""
        done = self.program.invoke(cli, words)
        if done.exit_code:
            raise RuntimeError(done.output)
        return done.output

    @feature("chat, streamed")
    def test_chat(self, model):
        self.assert_knows_capital(self.llm(model, "-m", "chat", *OPTIONS, CAPITAL))

    @feature("chat and a second turn")
    def test_turns(self, model):
        self.assert_knows_capital(self.llm(model, "-m", "chat", "--no-stream", *OPTIONS, CAPITAL))
        self.assertTrue(self.again("-c", "--no-stream", *OPTIONS, "Are you sure?"))

    @feature("completions")
    def test_completions(self, model):
        self.assert_knows_capital(self.llm(model, "-m", "completions", *OPTIONS, "The capital of France is"))

    @feature("tools")
    def test_tools(self, model):
        for more in ([], ["--no-stream"]):
            text = self.llm(model, "-m", "chat", *more, "--functions", WEATHER, *OPTIONS, QUESTION)
            if model.writes_calls:
                self.assertIn("sunny", text)

    @feature("structured output, `--schema`")
    def test_schema(self, model):
        self.assertIn("name", self.llm(model, "-m", "chat", "--schema", "name: a city", *OPTIONS, CAPITAL))

    @feature("responses")
    def test_responses(self, model):
        self.assert_knows_capital(self.llm(model, "-m", "responses", CAPITAL))


if __name__ == "__main__":
    unittest.main()
