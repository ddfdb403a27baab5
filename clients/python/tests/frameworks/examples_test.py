"""The examples with and without their one line: unmodified frameworks, by base URL."""

import asyncio
import contextlib
import inspect
import io
import logging
import re
import unittest
from unittest import mock

from autogen_core import EVENT_LOGGER_NAME
from autogen_core.logging import LLMCallEvent
from baton_client import frameworks
from serving import ROOT, Server

MODEL = ROOT / "models/smollm2-135m-instruct"
THE_LINE = re.compile(r"^ +http_client=streaming_prefill.*\n", re.M)


@contextlib.contextmanager
def unhurried(server):
    """Makes each call of a client with hints wait until the hints of earlier calls are prefilled."""

    def send(client, *arguments, **options):
        server.await_no_live_request()
        return sends[0](client, *arguments, **options)

    async def send_async(client, *arguments, **options):
        server.await_no_live_request()
        return await sends[1](client, *arguments, **options)

    sends = frameworks._SyncClient.send, frameworks._AsyncClient.send
    with mock.patch.object(frameworks._SyncClient, "send", send), mock.patch.object(frameworks._AsyncClient, "send", send_async):
        yield


def run(example, with_the_line, server):
    """What it prints."""
    path = ROOT / "clients/python/examples" / f"{example}.py"
    program = path.read_text()
    if not with_the_line:
        program, lines = THE_LINE.subn("", program)
        assert lines == 1, f"{lines} such lines in {path}"
    space = {"__name__": example}
    exec(compile(program.replace("max_tokens=64", "max_tokens=32").replace('"max_tokens": 64', '"max_tokens": 32'), path,
                 "exec"), space)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), unhurried(server):
        result = space["main"](f"{server.http}/v1", MODEL.name)
        if inspect.isawaitable(result):
            asyncio.run(result)
    return printed.getvalue()


class ExamplesTest(unittest.TestCase):
    def run_twice(self, example, answers):
        """With the line and without it, each on a server of its own: the same answers to as many requests."""
        printed = []
        for with_the_line in (True, False):
            server = Server(model=MODEL, threads=2)
            self.addCleanup(server.kill)
            printed.append(run(example, with_the_line, server))
            self.assertEqual(server.metric('baton_requests_total{code="OK"}'), answers)
            self.assertEqual(server.metric('baton_followers_total{code="OK"}') > 0, with_the_line)
        without_counts = [re.sub(r" \(\d+ of \d+ tokens were there\)", "", text) for text in printed]
        self.assertEqual(*without_counts)
        said = re.findall(r"^[\w ]+: (['\"].*['\"])$", without_counts[0], re.M)
        self.assertEqual(len(said), answers, printed[0])
        self.assertTrue(all(len(text) > 10 for text in said), printed[0])
        return printed

    def left(self, printed):
        """Of the critic's prompts, which are every other: how many tokens of each were not there."""
        return [int(whole) - int(share) for share, whole in re.findall(r"\((\d+) of (\d+) tokens were there\)", printed)][1::2]

    def assert_prefilled_ahead(self, example):
        ahead, plain = map(self.left, self.run_twice(example, 6))
        self.assertEqual(ahead[0], plain[0])  # the critic had not been called yet
        for left, without in zip(ahead[1:], plain[1:]):
            self.assertLess(left, 22)  # what does not fill a block of 16, and what ends the prompt
            self.assertGreater(without, 32)  # the writer's words

    def test_langgraph(self):
        self.assert_prefilled_ahead("langgraph_agents")

    def test_agent_framework(self):
        self.assert_prefilled_ahead("agent_framework_agents")

    def test_autogen(self):
        class Calls(logging.Handler):  # AutoGen itself does not tell what was cached; streams are not among these
            def emit(self, record):
                if isinstance(record.msg, LLMCallEvent):
                    usage = record.msg.kwargs["response"]["usage"]
                    left.append(usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"])

        left, handler, logger = [], Calls(), logging.getLogger(EVENT_LOGGER_NAME)
        logger.setLevel(logging.INFO)
        logger.addHandler(handler)
        self.addCleanup(logger.removeHandler, handler)
        self.run_twice("autogen_agents", 8)
        ahead, plain = left[:4], left[4:]  # of the writer's prompts, two for each subject
        self.assertLess(ahead[3], 22)
        self.assertGreater(plain[3], 32)  # the critic's words


if __name__ == "__main__":
    unittest.main()
