"""Runs the examples with and without their line for Baton, with unmodified frameworks."""

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
    """Makes each call of a client with hints wait until earlier hints are prefilled."""

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
    """Runs an example and returns its output."""
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
        """Runs an example with the line and without it, each on a new server.

        Checks that both get the same answers to the same number of requests."""
        printed = []
        for with_the_line in (True, False):
            server = Server(model=MODEL, threads=2)
            self.addCleanup(server.kill)
            printed.append(run(example, with_the_line, server))
            self.assertEqual(server.metric('baton_requests_total{code="OK"}'), answers)
            self.assertEqual(server.metric('baton_followers_total{code="OK"}') > 0, with_the_line)
        without_counts = [re.sub(r" \(\d+ of \d+ tokens were there\)", "", text) for text in printed]
        self.assertEqual(*without_counts)
        texts = re.findall(r"^[\w ]+: (['\"].*['\"])$", without_counts[0], re.M)
        self.assertEqual(len(texts), answers, printed[0])
        self.assertTrue(all(len(text) > 10 for text in texts), printed[0])
        return printed

    def left(self, printed):
        """Returns the number of tokens that were not cached, for each prompt of the critic.

        The critic's prompts are every second one."""
        return [int(whole) - int(share) for share, whole in re.findall(r"\((\d+) of (\d+) tokens were there\)", printed)][1::2]

    def assert_prefilled_ahead(self, example):
        ahead, plain = map(self.left, self.run_twice(example, 6))
        # The first call of the critic has no hint before it.
        self.assertEqual(ahead[0], plain[0])
        for left, without in zip(ahead[1:], plain[1:]):
            # At most a partial block of 16 tokens and the end of the prompt are not cached.
            self.assertLess(left, 22)
            # The writer's output is not cached without hints.
            self.assertGreater(without, 32)

    def test_langgraph(self):
        self.assert_prefilled_ahead("langgraph_agents")

    def test_agent_framework(self):
        self.assert_prefilled_ahead("agent_framework_agents")

    def test_autogen(self):
        # AutoGen does not report cached tokens. Its log has them, but not for streams.
        class Calls(logging.Handler):
            def emit(self, record):
                if isinstance(record.msg, LLMCallEvent):
                    usage = record.msg.kwargs["response"]["usage"]
                    left.append(usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"])

        left, handler, logger = [], Calls(), logging.getLogger(EVENT_LOGGER_NAME)
        logger.setLevel(logging.INFO)
        logger.addHandler(handler)
        self.addCleanup(logger.removeHandler, handler)
        self.run_twice("autogen_agents", 8)
        # The writer's prompts, two for each subject.
        ahead, plain = left[:4], left[4:]
        self.assertLess(ahead[3], 22)
        # The critic's output is not cached without hints.
        self.assertGreater(plain[3], 32)


if __name__ == "__main__":
    unittest.main()
