"""Helpers of the tests of unmodified packages: the two models, and the record of results.

A test method with @feature runs once with each model. With BATON_CLIENT_RESULTS=FILE in the
environment, each run appends a line of JSON to FILE. tools/make_clients writes docs/clients.md from
these lines. Features that do not work yet are rows of expected.toml."""

import asyncio
import atexit
import dataclasses
import functools
import importlib.metadata
import json
import os
import pathlib
import re
import tempfile
import tomllib
import unittest

from serving import ROOT, Server

SMOLLM = ROOT / "models/smollm2-135m-instruct"
HERE = pathlib.Path(__file__).parent
# Greedy and short, so that a run is quick and each run gives the same tokens.
GREEDY = {"temperature": 0, "max_tokens": 40}
CAPITAL = "What is the capital of France?"
QUESTION = "Weather in Paris?"


@dataclasses.dataclass(frozen=True)
class Model:
    """A served model: the address of its API, its name there, and its directory."""

    url: str
    name: str
    path: pathlib.Path
    # Whether its template has tools, and the model answers QUESTION with a call of the first tool.
    writes_calls: bool


def _directory_with_template():
    """Makes a model directory: SmolLM2's weights with the template template.jinja.

    The template shows four calls of the first tool before the chat. The model, which was not
    trained on calls, continues this pattern with the city of the last question. After the result of
    a tool, it repeats the result."""
    scratch = tempfile.TemporaryDirectory()
    atexit.register(scratch.cleanup)
    directory = pathlib.Path(scratch.name) / "smollm2-with-tools"
    directory.mkdir()
    for file in SMOLLM.iterdir():
        if file.name != "tokenizer_config.json":
            (directory / file.name).symlink_to(file.resolve())
    config = json.loads((SMOLLM / "tokenizer_config.json").read_text())
    template = (HERE / "template.jinja").read_text()
    (directory / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": template}))
    return directory


@functools.cache
def model_of(column):
    """Returns the model of a column of docs/clients.md. Its server lives as long as the process."""
    path = {"template": _directory_with_template, "plain": lambda: SMOLLM}[column]()
    server = Server("--model-alias", f"gpt-*={path.name}", model=path, threads=2, kv_memory_mb=256)
    atexit.register(server.kill)
    return Model(f"{server.http}/v1", path.name, path, writes_calls=column == "template")


def _message_of(error):
    """Returns the server's message, if an error or one of its causes has it."""
    chain = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None and cause not in chain:
        chain.append(cause)
    for error in chain:
        if isinstance(body := getattr(error, "body", None), dict) and "message" in body:
            return body["message"]
    for error in chain:
        if found := re.search(r'"message":"((?:[^"\\]|\\.)*)"|Error code: \d+ - (.*)', str(error)):
            return found[1] or found[2]
    return str(chain[0]).strip()


@functools.cache
def expected():
    """Returns the causes in expected.toml by package, feature and model."""
    causes = tomllib.loads((HERE / "expected.toml").read_text())["refused"]
    return {(package, feature, column): cause for cause in causes for package, features in cause["features"].items()
            for feature in features for column in cause.get("models", ("template", "plain"))}


def feature(name, models=("template", "plain")):
    """Makes a test of the feature `name`, with each of the models."""

    def decorate(test):
        @functools.wraps(test)
        def run(self):
            for column in models:
                with self.subTest(model=column):
                    self.judge(name, column, test)
        run.feature, run.models = name, models
        return run

    return decorate


class PackageTest(unittest.TestCase):
    """The tests of one package. `package` is its name at PyPI."""

    package = ""

    def setUp(self):
        self.closers = []

    async def _finish(self, running):
        """Awaits a test, and closes the clients that it added to `closers`, in the loop of both."""
        try:
            await running
        finally:
            while self.closers:
                await self.closers.pop()()

    def judge(self, name, column, test):
        """Runs a test, and compares its outcome with expected.toml."""
        cause = expected().get((self.package, name, column))
        try:
            running = test(self, model_of(column))
            if asyncio.iscoroutine(running):
                asyncio.run(self._finish(running))
        except Exception as error:
            message = _message_of(error)
            if cause is None or cause["error"] not in message:
                raise
            # A message begins with the field.
            self._record(name, column, f"refused: `{message.split(': ')[0]}` ({cause['why']})")
        else:
            if cause is not None:
                self.fail(f"{name}, model {column}: works now; remove it from expected.toml")
            self._record(name, column, "works")

    def _record(self, name, column, result):
        if path := os.environ.get("BATON_CLIENT_RESULTS"):
            line = {"package": self.package, "version": importlib.metadata.version(self.package),
                    "feature": name, "model": column, "result": result}
            with open(path, "a") as out:
                out.write(json.dumps(line) + "\n")

    def assert_knows_capital(self, text):
        self.assertIn("Paris", text)

    def assert_used_tool(self, model, cities, text):
        """Checks a loop of an agent that was asked QUESTION. `cities` are the arguments of calls.

        A model whose template has no tools need not write a call."""
        if model.writes_calls:
            self.assertEqual(cities, ["Paris"])
            self.assertIn("sunny", text)
        else:
            self.assertTrue(text)


class Weather:
    """A tool that records the cities of its calls."""

    def __init__(self):
        self.cities = []

        def weather(city: str) -> str:
            """The weather of a city.

            Args:
                city: The name of the city.
            """
            self.cities.append(city)
            return f"sunny in {city}"

        self.tool = weather
