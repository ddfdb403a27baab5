"""Tests of values: outputs that the program itself writes, with a real server."""

import asyncio
import dataclasses
import gc
import math
import threading
import time
import unittest

import grpc
from baton_client import AsyncClient, BatonError, Client, Group, Options, OutputOf, Sampling, TokenIds
from serving import Server

GREEDY = Sampling(temperature=0, repetition_penalty=1, max_tokens=16, ignore_eos=True, logprobs=5)
# Names of special tokens are text, and a character has several tokens.
WORDS = ["Rain at ", "caf\u00e9 \u6f22\u5b57", " <|begin_of_text|>", " \U0001f642.\n", ""]


class ValuesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)

    def setUp(self):
        self.client = Client(self.server.grpc)
        self.addCleanup(self.client.close)
        self.flow = self.client.workflow("w")

    def assert_same_prompt(self, run, *parts):
        """Checks that a prompt with these parts gives the same answer, without the other's KV."""
        alone = self.client.workflow("alone", Options(cache_salt="none")).agent("a", *parts, sampling=GREEDY).result()
        result = run.result()
        self.assertEqual(result.token_ids, alone.token_ids)
        self.assertEqual(result.logprobs, alone.logprobs)
        self.assertEqual(result.usage.prompt_tokens, alone.usage.prompt_tokens)

    def error_of(self, run):
        with self.assertRaises(BatonError) as caught:
            run.result()
        return caught.exception

    def traced(self):
        """Returns the requests and values of the workflow that have arrived."""
        try:
            return self.flow.trace().requests
        except BatonError as error:
            self.assertIs(error.code, grpc.StatusCode.NOT_FOUND)
            return ()

    def test_a_value_equals_its_text_to_the_bit_whole_and_in_parts(self):
        text = "".join(WORDS)
        for content in (text, iter(WORDS), (character for character in text)):
            place = self.flow.announce("tool")
            early = self.flow.agent("early", "The tool: ", place, " End.", sampling=GREEDY)
            value = self.flow.value(place, content)
            self.assertEqual(value.id, place.id)
            self.assertIsNone(value.result())
            self.assertTrue(value.over and value.known)
            late = self.flow.agent("late", "The tool: ", value, " End.", sampling=GREEDY)
            for run in (early, late):
                self.assert_same_prompt(run, "The tool: ", text, " End.")

    def test_a_value_of_token_ids_equals_these_ids(self):
        options = Options(model="tiny_llama3_bf16")
        value = self.flow.value("tool", [TokenIds([72, 73]), TokenIds([74])], options)
        run = self.flow.agent("a", "x", value, "y", sampling=GREEDY)
        self.assert_same_prompt(run, "x", TokenIds([72, 73, 74]), "y")
        with self.assertRaises(ValueError) as caught:
            self.error_of_content(TokenIds([1]))
        self.assertIn("Options.model", str(caught.exception))
        wrong = self.flow.value("tool", TokenIds([1 << 30]), options)
        self.assertIs(self.error_of(wrong).code, grpc.StatusCode.INVALID_ARGUMENT)

    def error_of_content(self, content):
        """Raises the exception that ended the content."""
        raise self.error_of(self.flow.value("tool", content)).__cause__

    def test_a_prompt_waits_for_the_last_part_of_its_value(self):
        arrived = threading.Event()

        def words():
            yield "word " * 40
            arrived.wait()
            yield "end"

        value = self.flow.value("tool", words())
        run = self.flow.agent("a", "The tool: ", value, sampling=GREEDY)
        while len(self.traced()) < 2:
            time.sleep(0.01)
        self.assertFalse(value.over or run.over)
        arrived.set()
        self.assert_same_prompt(run, "The tool: ", "word " * 40 + "end")
        requests = {request.agent: request for request in self.flow.trace().requests}
        self.assertEqual(requests["a"].upstreams, (value.id,))

    def test_a_value_whose_content_raises_fails_with_its_reason(self):
        def words():
            yield "half"
            raise OSError("the tool died")

        place = self.flow.announce("tool")
        run = self.flow.agent("a", "x", place, sampling=GREEDY)
        partial = self.flow.agent("b", "x", OutputOf(place, on_failure="partial"), sampling=GREEDY)
        error = self.error_of(self.flow.value(place, words()))
        self.assertIsInstance(error.__cause__, OSError)
        root = self.error_of(run).root
        self.assertEqual((root.request_id, root.agent, root.message), (place.id, "tool", "OSError: the tool died"))
        self.assert_same_prompt(partial, "x", "half")

    def test_the_reason_of_a_failure_is_text_of_at_most_1024_bytes(self):
        for message, reason in (("\udcff", "OSError: \\udcff"), ("\u6f22" * 1000, "OSError: " + "\u6f22" * 338),
                                ("\udcff" * 1000, ("OSError: " + "\\udcff" * 1000)[:1024])):
            def words():
                raise OSError(message)
                yield

            value = self.flow.value("tool", words())
            error = self.error_of(value)
            self.assertEqual((error.code, error.message), (grpc.StatusCode.ABORTED, reason))
            self.assertEqual(self.error_of(self.flow.agent("a", "x", value)).root.message, reason)

    def test_the_workflows_model_does_not_make_a_value_token_ids(self):
        flow = self.client.workflow("w", Options(model="tiny_llama3_bf16"))
        for content in ("text", iter(["te", "xt"])):
            self.assert_same_prompt(flow.agent("a", "x", flow.value("tool", content), sampling=GREEDY), "x", "text")
        self.assert_same_prompt(flow.agent("a", "x", flow.value("tool", TokenIds([72])), sampling=GREEDY), "x",
                                TokenIds([72]))
        value = flow.value("tool", iter([TokenIds([72])]))
        self.assertIn("Options.model of the value", self.error_of(value).message)

    def test_names_that_cannot_be_sent_are_refused_at_the_call(self):
        with self.assertRaises(ValueError):
            self.flow.value("\udcff", "x")

    def test_cancelling_a_value_or_its_workflow_breaks_it_off(self):
        never = threading.Event()
        self.addCleanup(never.set)

        def words():
            yield "half"
            never.wait()

        for cancel in (lambda value: value.cancel(), lambda value: self.flow.cancel()):
            value = self.flow.value("tool", words())
            run = self.client.workflow("reader").agent(
                "a", "x", OutputOf(value, on_failure="substitute", substitute="none"), sampling=GREEDY)
            with self.assertRaises(TimeoutError):
                value.result(timeout=0)
            while not any(request.request_id == value.id for request in self.traced()):
                time.sleep(0.01)  # a value that has not arrived is one that is not known to fail
            cancel(value)
            self.assertIs(self.error_of(value).code, grpc.StatusCode.CANCELLED)
            self.assert_same_prompt(run, "x", "none")

    def test_a_value_is_sent_although_the_program_keeps_no_reference(self):
        place = self.flow.announce("tool")
        begun = threading.Event()

        def words():
            yield "half "
            begun.wait()
            yield "whole"

        self.flow.value(place, words())
        gc.collect()
        begun.set()
        self.assert_same_prompt(self.flow.agent("a", "x", place, sampling=GREEDY), "x", "half whole")

    def test_a_value_is_written_once(self):
        value = self.flow.value("tool", "once")
        value.result()
        place = dataclasses.replace(self.flow.announce("tool"), id=value.id)
        self.assertIs(self.error_of(self.flow.value(place, "twice")).code, grpc.StatusCode.ALREADY_EXISTS)
        self.assert_same_prompt(self.flow.agent("a", "x", value, sampling=GREEDY), "x", "once")

    def test_a_value_of_another_salt_is_unknown(self):
        value = self.flow.value("tool", "secret", Options(cache_salt="other"))
        value.result()
        self.assertIs(self.error_of(self.flow.agent("a", "x", value)).code, grpc.StatusCode.NOT_FOUND)

    def test_a_group_of_an_empty_value_vanishes(self):
        for content, parts in (("", ()), ([], ()), ("sun", ("[", "tool", "] ", "sun"))):
            value = self.flow.value("tool", content)
            run = self.flow.agent("a", "x", Group(value, label="[{agent}] "), "y", sampling=GREEDY)
            self.assert_same_prompt(run, "x", *parts, "y")

    def test_other_contents_are_refused_at_the_call(self):
        for content in (b"bytes", 7, None):
            with self.assertRaises(TypeError):
                self.flow.value("tool", content)
        self.assertIsInstance(self.error_of(self.flow.value("tool", ["a", 7])).__cause__, TypeError)

    def test_a_value_whose_first_part_is_wrong_fails_at_once(self):
        for content, kind in (([7], TypeError), ([b"x", "y"], TypeError), (TokenIds([1]), ValueError)):
            place = self.flow.announce("tool")
            run = self.flow.agent("a", "x", place, sampling=GREEDY, options=Options(timeout=20))
            error = self.error_of(self.flow.value(place, content))
            self.assertIsInstance(error.__cause__, kind)
            root = self.error_of(run).root
            self.assertEqual((root.request_id, root.agent), (place.id, "tool"))
            self.assertIn(kind.__name__, root.message)

    def test_a_result_stands_in_a_prompt_for_its_output(self):
        facts = self.flow.agent("facts", "List facts", sampling=GREEDY).result()
        run = self.flow.agent("a", "x", facts, "y", sampling=GREEDY)
        self.assert_same_prompt(run, "x", TokenIds([id for id in facts.token_ids if id not in (0, 1)]), "y")
        unknown = dataclasses.replace(facts, request_id="unknown")
        self.assertIs(self.error_of(self.flow.agent("a", "x", unknown)).code, grpc.StatusCode.NOT_FOUND)


class AsyncValuesTest(unittest.IsolatedAsyncioTestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)

    async def asyncSetUp(self):
        self.client = AsyncClient(self.server.grpc)
        self.addAsyncCleanup(self.client.close)
        self.flow = self.client.workflow("w")

    async def error_of(self, run):
        with self.assertRaises(BatonError) as caught:
            await run.result()
        return caught.exception

    async def test_a_value_equals_its_text_whole_and_in_parts(self):
        async def words():
            for word in WORDS:
                await asyncio.sleep(0)
                yield word

        text = "".join(WORDS)
        alone = self.client.workflow("alone", Options(cache_salt="none"))
        plain = await alone.agent("a", "The tool: ", text, "!", sampling=GREEDY).result()
        for content in (text, WORDS, words()):
            place = self.flow.announce("tool")
            run = self.flow.agent("a", "The tool: ", place, "!", sampling=GREEDY)
            value = self.flow.value(place, content)
            self.assertIsNone(await value.result())
            self.assertTrue(value.known)
            result = await run.result()
            self.assertEqual((result.token_ids, result.logprobs), (plain.token_ids, plain.logprobs))
            again = await self.flow.agent("b", "x", result, sampling=GREEDY).result()
            self.assertEqual(again.finish_reason, "length")

    async def test_an_iterator_that_blocks_does_not_block_the_event_loop(self):
        released = threading.Event()

        def words():
            yield "The "
            assert released.wait(20), "the event loop did not go on"
            yield "tool."

        value = self.flow.value("tool", words())
        run = self.flow.agent("a", value, sampling=GREEDY)
        await self.client.models()
        released.set()
        await value.result()
        plain = await self.flow.agent("a", "The tool.", sampling=GREEDY).result()
        self.assertEqual((await run.result()).token_ids, plain.token_ids)

    async def test_a_value_that_is_refused_has_the_servers_error(self):
        async def words():
            yield "twice"

        value = self.flow.value("tool", "once")
        await value.result()
        place = dataclasses.replace(self.flow.announce("tool"), id=value.id)
        for _ in range(20):
            for content in ("twice", ["twice"], iter(["twice"]), words()):
                error = await self.error_of(self.flow.value(place, content))
                self.assertIs(error.code, grpc.StatusCode.ALREADY_EXISTS, error)

    async def test_the_reason_of_a_failure_may_have_lone_surrogates(self):
        async def words():
            raise OSError("\udcff")
            yield

        value = self.flow.value("tool", words())
        self.assertEqual((await self.error_of(value)).message, "OSError: \\udcff")
        run = self.flow.agent("a", "x", value)
        self.assertEqual((await self.error_of(run)).root.message, "OSError: \\udcff")

    async def test_a_value_that_raises_or_is_cancelled_fails(self):
        async def words():
            yield "half"
            raise OSError("the tool died")

        async def endless():
            yield "half"
            await asyncio.sleep(math.inf)

        wrong = self.flow.value("tool", [7])
        run = self.flow.agent("a", "x", wrong, sampling=GREEDY)
        self.assertIsInstance((await self.error_of(wrong)).__cause__, TypeError)
        self.assertIn("TypeError", (await self.error_of(run)).root.message)
        broken = self.flow.value("tool", words())
        run = self.flow.agent("a", "x", broken, sampling=GREEDY)
        self.assertIsInstance((await self.error_of(broken)).__cause__, OSError)
        self.assertEqual((await self.error_of(run)).root.message, "OSError: the tool died")
        value = self.flow.value("tool", endless())
        waits = asyncio.create_task(value.result())
        with self.assertRaises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(waits), 0.01)
        self.assertFalse(value.over)
        self.flow.cancel()
        self.assertIs((await self.error_of(value)).code, grpc.StatusCode.CANCELLED)
        await asyncio.gather(waits, return_exceptions=True)
        with self.assertRaises(TypeError):
            self.flow.value("tool", b"bytes")


if __name__ == "__main__":
    unittest.main()
