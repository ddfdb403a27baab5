"""The examples as they stand there: unmodified frameworks, by base URL."""

import asyncio
import contextlib
import inspect
import io
import re
import unittest

from serving import ROOT, Server

MODEL = ROOT / "models/smollm2-135m-instruct"


def run(example, server):
    """What it prints."""
    path = ROOT / "clients/python/examples" / f"{example}.py"
    space = {"__name__": example}
    program = path.read_text().replace("max_tokens=64", "max_tokens=16").replace('"max_tokens": 64', '"max_tokens": 16')
    exec(compile(program, path, "exec"), space)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        result = space["main"](f"{server.http}/v1", MODEL.name)
        if inspect.isawaitable(result):
            asyncio.run(result)
    return printed.getvalue()


class ExamplesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(model=MODEL, threads=2)
        cls.addClassCleanup(cls.server.kill)

    def assert_agents_talk(self, example, answers):
        """Each answer has words, and where the framework tells it, the later prompts of an agent find KV of the earlier."""
        printed = run(example, self.server)
        said = re.findall(r"^[\w ]+: (['\"].*?['\"])(?: \((\d+) of \d+ tokens were there\))?$", printed, re.M)
        self.assertEqual(len(said), answers, printed)
        self.assertTrue(all(len(text) > 10 for text, _ in said), printed)
        cached = [int(count) for _, count in said if count]
        self.assertTrue(all(count > 0 for count in cached[2:]), printed)

    def test_langgraph(self):
        self.assert_agents_talk("langgraph_agents", 6)

    def test_agent_framework(self):
        self.assert_agents_talk("agent_framework_agents", 6)

    def test_autogen(self):
        self.assert_agents_talk("autogen_agents", 8)


if __name__ == "__main__":
    unittest.main()
