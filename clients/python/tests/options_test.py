"""Tests of the options of runs and workflows: their merge, and the separation by cache salt."""

import dataclasses
import math
import unittest
from typing import get_args, get_type_hints
from unittest import mock

import grpc
from baton_client import AsyncClient, BatonError, Client, Message, Options, OutputOf, Sampling, Span, Timings
from baton_client.building import generate_request
from baton_client.messages import MESSAGES
from serving import Server, close, settled

GREEDY = Sampling(temperature=0, repetition_penalty=1, max_tokens=8, ignore_eos=True)
WORKFLOW = Options(model="base", session_id="s", cache_salt="secret", priority=7, join="arrival", first=2, keep=True, expected_tokens=40,
                   context_id="c", context_length=16, template_kwargs={"enable_thinking": False}, timeout=30)
# Values that differ from None and are false in Python. `join` has no such value.
OWN = Options(model="", session_id="", cache_salt="", priority=0, join="order", first=0, keep=False, expected_tokens=0, context_id="",
              context_length=0, template_kwargs={}, timeout=0)


class MergeTest(unittest.TestCase):
    def test_every_field_is_none_by_default(self):
        self.assertEqual(set(dataclasses.asdict(Options()).values()), {None})

    def test_a_field_that_is_none_has_the_workflows_value(self):
        self.assertEqual(Options().merged_over(WORKFLOW), WORKFLOW)
        for field in dataclasses.fields(Options):
            own = getattr(OWN, field.name)
            with self.subTest(field.name):
                expected = dataclasses.replace(WORKFLOW, **{field.name: own})
                # The workflow's length does not belong to this context.
                if field.name == "context_id":
                    expected = dataclasses.replace(expected, context_length=None)
                self.assertEqual(Options(**{field.name: own}).merged_over(WORKFLOW), expected)

    def test_a_field_that_is_empty_or_zero_is_the_runs_own(self):
        self.assertEqual(OWN.merged_over(WORKFLOW), OWN)
        self.assertEqual(OWN.merged_over(Options()), OWN)


class RefusedTest(unittest.TestCase):
    def test_an_argument_that_cannot_be_sent_is_refused_by_name(self):
        for make, text in (
            (lambda: Options(join="random"), "Options.join: expected one of 'order', 'arrival', got 'random'"),
            (lambda: Options(join=1), "Options.join: expected one of 'order', 'arrival', got 1"),
            (lambda: Options(timeout=math.nan), "Options.timeout: expected seconds, got nan"),
            (lambda: OutputOf("id", on_failure="ignore"),
             "OutputOf.on_failure: expected one of 'abort', 'partial', 'substitute', got 'ignore'"),
            (lambda: OutputOf("id", timeout=math.nan), "OutputOf.timeout: expected seconds, got nan"),
            (lambda: Client("127.0.0.1:1").workflow("w", deadline=math.nan),
             "deadline of a workflow: expected more than 0 s, got nan"),
        ):
            with self.subTest(text), self.assertRaises(ValueError) as caught:
                make()
            self.assertEqual(str(caught.exception), text)


class SamplingTest(unittest.TestCase):
    def test_it_has_the_fields_of_the_protocol(self):
        self.assertEqual({field.name for field in dataclasses.fields(Sampling)},
                         set(MESSAGES["Sampling"].DESCRIPTOR.fields_by_name))

    def test_its_texts_and_biases_reach_the_message(self):
        sampling = Sampling(stop="end", bad_words=["a", "b"], logit_bias={7: -100, 9: 0.5}, thinking_token_budget=0)
        sent = generate_request("w", "agent", ["x"], Options(), sampling, None, ()).sampling
        self.assertEqual((list(sent.stop), list(sent.bad_words)), (["end"], ["a", "b"]))
        self.assertEqual({bias.id: bias.bias for bias in sent.logit_bias}, {7: -100, 9: 0.5})
        self.assertTrue(sent.HasField("thinking_token_budget"))


class ResultsTest(unittest.TestCase):
    def test_timings_have_the_fields_of_the_protocol(self):
        self.assertEqual({field.name for field in dataclasses.fields(Timings)},
                         set(MESSAGES["Timings"].DESCRIPTOR.fields_by_name))

    def test_a_span_has_the_phases_of_the_protocol(self):
        phases = MESSAGES["Span"].DESCRIPTOR.fields_by_name["phase"].enum_type.values_by_name
        self.assertEqual(set(get_args(get_type_hints(Span)["phase"])),
                         {name.removeprefix("PHASE_").lower() for name in phases})


class EndedCall:
    """A call of Client._stub that has ended without a response."""

    def __iter__(self):
        return iter(())

    def add_done_callback(self, callback):
        callback(self)

    def code(self):
        return grpc.StatusCode.OK


class AsyncEndedCall:
    """A call of AsyncClient._stub that has ended without a response."""

    async def __aiter__(self):
        return
        yield

    async def code(self):
        return grpc.StatusCode.OK


class SentTest(unittest.TestCase):
    """Tests of the requests that the clients send, and of the timeouts that they pass to gRPC."""

    def setUp(self):
        client = Client("127.0.0.1:1")
        self.addCleanup(client.close)
        self.flow = client.workflow("w", WORKFLOW)
        self.stub = client._stub = mock.Mock()
        self.stub.generate.return_value = EndedCall()

    def sent_by(self, options):
        run = self.flow.agent("a", Message("user", "x"), options=options)
        self.assertEqual(run.id, self.stub.generate.call_args.args[0].request_id)
        return self.stub.generate.call_args.args[0], self.stub.generate.call_args.kwargs["timeout"]

    def test_a_request_has_every_field_of_its_workflow(self):
        for options in (None, Options(), Options(priority=3)):
            request, timeout = self.sent_by(options)
            self.assertEqual((request.model, request.session_id, request.cache_salt, request.join, request.expected_tokens,
                              request.context_id, request.context_length, request.chat.template_kwargs, timeout),
                             ("base", "s", "secret", 1, 40, "c", 16, '{"enable_thinking": false}', 31))
            self.assertEqual(request.timeout_ms, 30_000)
            self.assertEqual(request.priority, 3 if options and options.priority else 7)
            self.assertEqual((request.first, request.keep), (2, True))

    def test_a_request_has_the_empty_fields_of_its_run(self):
        request, timeout = self.sent_by(OWN)
        self.assertEqual((request.model, request.session_id, request.cache_salt, request.priority, request.join,
                          request.expected_tokens, request.context_id, request.chat.template_kwargs, timeout),
                         ("", "", "", 0, 0, 0, "", "", -1))
        self.assertTrue(request.HasField("context_length"))
        self.assertEqual(request.context_length, 0)

    def test_a_run_with_an_infinite_timeout_has_no_deadline(self):
        request, timeout = self.sent_by(Options(timeout=math.inf))
        self.assertIsNone(timeout)
        self.assertEqual(request.timeout_ms, 0)

    def test_a_timeout_has_the_bounds_of_the_protocol(self):
        year = 365 * 24 * 3600
        for timeout, milliseconds, deadline in ((1e-9, 1, 1 + 1e-9), (-1, 1, -1), (-math.inf, 1, -1), (0.0001, 1, 1.0001),
                                                (1e12, year * 1000, year + 1), (1e300, year * 1000, year + 1)):
            request, passed = self.sent_by(Options(timeout=timeout))
            self.assertEqual((request.timeout_ms, passed), (milliseconds, deadline))

    def test_a_timeout_of_an_output_has_the_same_bounds(self):
        for timeout, milliseconds in ((0, 0), (math.inf, 0), (0.02, 20), (1e-9, 1), (-1, 1),
                                      (1e300, 365 * 24 * 3600 * 1000)):
            self.flow.agent("a", OutputOf("id", timeout=timeout), options=Options(template_kwargs={}))
            [segment] = self.stub.generate.call_args.args[0].segments.segments
            self.assertEqual(segment.output_of.timeout_ms, milliseconds)

    def test_a_prompt_that_is_prefilled_ahead_has_them_too(self):
        self.flow.prefill_only(Message("user", "x"), options=Options(priority=3))
        request = self.stub.prefill_only.call_args.args[0]
        self.assertEqual((request.session_id, request.cache_salt, request.priority, request.first), ("s", "secret", 3, 2))
        self.assertEqual(self.stub.prefill_only.call_args.kwargs["timeout"], 31)
        self.assertEqual(request.timeout_ms, 30_000)


class AsyncSentTest(unittest.IsolatedAsyncioTestCase):
    async def test_the_asynchronous_client_sends_the_fields_of_the_workflow_too(self):
        client = AsyncClient("127.0.0.1:1")
        self.addAsyncCleanup(client.close)
        stub = client._stub = mock.Mock()
        stub.generate.side_effect = lambda *_, **__: AsyncEndedCall()
        stub.prefill_only = mock.AsyncMock()
        flow = client.workflow("w", WORKFLOW)
        for options, timeout in ((None, 31), (Options(priority=3), 31), (Options(timeout=0), -1),
                                 (Options(timeout=math.inf), None)):
            flow.agent("a", Message("user", "x"), options=options)
            await flow.prefill_only(Message("user", "x"), options=options)
            for sent in (stub.generate.call_args, stub.prefill_only.call_args):
                with self.subTest(options=options, sent=sent):
                    self.assertEqual((sent.args[0].cache_salt, sent.args[0].session_id), ("secret", "s"))
                    self.assertEqual(sent.kwargs["timeout"], timeout)


class IsolationTest(unittest.IsolatedAsyncioTestCase):
    """Tests of the cache of a real server with both clients."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)

    async def asyncSetUp(self):
        self.clients = [Client(self.server.grpc), AsyncClient(self.server.grpc)]
        for client in self.clients:
            self.addAsyncCleanup(close, client)

    async def cached_tokens(self, flow, prompt, options=None):
        return (await settled(flow.agent("a", prompt, sampling=GREEDY, options=options).result())).usage.cached_tokens

    async def test_a_run_with_options_of_its_own_keeps_the_salt_of_its_workflow(self):
        for client in self.clients:
            with self.subTest(type(client).__name__):
                prompt = f"{type(client).__name__} asks with a prompt that fills several blocks of sixteen tokens each."
                owner, other = (client.workflow("w", Options(cache_salt=salt)) for salt in ("secret", "other"))
                self.assertEqual(await self.cached_tokens(owner, prompt, Options(priority=1)), 0)
                self.assertGreater(await self.cached_tokens(owner, prompt, Options(session_id="s")), 0)
                self.assertGreater(await self.cached_tokens(owner, prompt), 0)
                self.assertEqual(await self.cached_tokens(other, prompt, Options(session_id="s")), 0)
                self.assertEqual(await self.cached_tokens(client.workflow("w"), prompt), 0)
                # The empty salt is a value too, so this run finds the KV of the run before it.
                self.assertGreater(await self.cached_tokens(owner, prompt, Options(cache_salt="")), 0)
                self.assertEqual(await self.cached_tokens(client.workflow("w"), prompt, Options(cache_salt="third")), 0)

    async def test_a_prompt_that_is_prefilled_ahead_keeps_the_salt_of_its_workflow(self):
        for client in self.clients:
            with self.subTest(type(client).__name__):
                prompt = f"{type(client).__name__} prefills a prompt that fills several blocks of sixteen tokens each."
                owner = client.workflow("w", Options(cache_salt="secret"))
                await settled(owner.prefill_only(prompt, options=Options(priority=1)))
                self.assertEqual(await self.cached_tokens(client.workflow("w"), prompt), 0)
                self.assertGreater(await self.cached_tokens(owner, prompt), 0)

    async def test_a_trace_has_the_requests_of_every_salt_in_the_order_of_their_arrival(self):
        for client in self.clients:
            with self.subTest(type(client).__name__):
                flow = client.workflow("w", Options(cache_salt="secret"))
                with self.assertRaises(BatonError) as caught:
                    await settled(flow.trace())
                self.assertIs(caught.exception.code, grpc.StatusCode.NOT_FOUND)
                for agent, salt in (("a", None), ("b", "other"), ("c", None), ("d", "")):
                    await settled(flow.agent(agent, "x", sampling=GREEDY, options=Options(cache_salt=salt)).result())
                refused = flow.agent("e", "x", sampling=Sampling(top_p=2), options=Options(cache_salt="never seen"))
                with self.assertRaises(BatonError):
                    await settled(refused.result())
                traced = (await settled(flow.trace())).requests
                self.assertEqual([request.agent for request in traced], ["a", "b", "c", "d", "e"])
                requests = [request for request in traced if not request.refused]
                self.assertEqual(requests[0].arrived_us, 0)
                for earlier, later in zip(requests, requests[1:]):
                    self.assertGreaterEqual(later.arrived_us, earlier.ended_us)
                    self.assertEqual(later.spans[0].begin_us, later.arrived_us)
                    self.assertEqual(later.spans[-1].end_us, later.ended_us)


if __name__ == "__main__":
    unittest.main()
