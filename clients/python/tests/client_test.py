"""Tests of the synchronous client with a real server."""

import asyncio
import dataclasses
import pickle
import shutil
import threading
import unittest

import grpc
from baton_client import (AgentName, Announced, AsyncClient, BatonError, Client, Group, Message, Options, OutputOf,
                          Sampling, TokenIds)
from serving import Certificate, Keys, Server
from traces import await_requests

GREEDY = Sampling(temperature=0, repetition_penalty=1, max_tokens=24, ignore_eos=True)
# Special tokens of the tiny model. An output in a prompt does not contain them.
SPECIAL = {0, 1}


class ClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)

    def setUp(self):
        self.client = Client(self.server.grpc)
        self.addCleanup(self.client.close)

    def assert_fails(self, code, run, words):
        with self.assertRaises(BatonError) as caught:
            run.result()
        self.assertIs(caught.exception.code, code)
        self.assertIn(words, caught.exception.message)

    def error_of(self, run):
        with self.assertRaises(BatonError) as caught:
            run.result()
        return caught.exception

    def test_stream_equals_result_for_each_reader(self):
        run = self.client.workflow("w").agent("a", "Once upon a time", sampling=GREEDY)
        streamed = []
        other = threading.Thread(target=lambda: streamed.extend(run.stream()))
        other.start()
        chunks = list(run.chunks())
        other.join()
        result = run.result()
        self.assertEqual(result.text, "".join(streamed))
        self.assertEqual(result.text, "".join(run.stream()))
        self.assertEqual(result.token_ids, tuple(id for chunk in chunks for id in chunk.token_ids))
        self.assertEqual(result.usage.completion_tokens, len(result.token_ids))
        self.assertEqual(result.request_id, run.id)
        times = dataclasses.asdict(result.timings)
        total = times.pop("total_ms")
        self.assertAlmostEqual(times.pop("first_token_ms"), total - times["decode_ms"])
        self.assertAlmostEqual(sum(times.values()), total)
        self.assertTrue(run.over)
        self.assertLessEqual(run.times["started"], run.times["first_token"])

    def test_sampling_reaches_the_model(self):
        flow = self.client.workflow("w")
        drawn = [flow.agent("a", "abc", sampling=Sampling(max_tokens=20, temperature=1, seed=seed, ignore_eos=True,
                                                          logprobs=2)).result() for seed in (1, 1, 2)]
        self.assertEqual(drawn[0].token_ids, drawn[1].token_ids)
        self.assertNotEqual(drawn[0].token_ids, drawn[2].token_ids)
        self.assertEqual(drawn[0].finish_reason, "length")
        self.assertEqual([len(token.top) for token in drawn[0].logprobs], [2] * 20)
        first = drawn[0].token_ids[0]
        stopped = flow.agent("a", "abc", sampling=Sampling(max_tokens=20, temperature=1, seed=1, stop_ids=[first])).result()
        self.assertEqual((stopped.finish_reason, stopped.token_ids), ("stop", (first,)))

    def test_a_prompt_has_log_probabilities_without_and_with_an_output(self):
        flow = self.client.workflow("w")
        scored = [flow.agent("a", TokenIds([72, 73, 74, 75]), sampling=dataclasses.replace(
            GREEDY, max_tokens=most, prompt_logprobs=2)).result() for most in (0, 3)]
        for result in scored:
            self.assertEqual(result.prompt_logprobs.token_ids, (72, 73, 74, 75))
            self.assertEqual([len(token.top) for token in result.prompt_logprobs.logprobs], [2] * 3)
            self.assertTrue(all(token.rank >= 1 for token in result.prompt_logprobs.logprobs))
        self.assertEqual(scored[0].prompt_logprobs, scored[1].prompt_logprobs)
        self.assertEqual(scored[0].token_ids, ())
        plain = flow.agent("a", TokenIds([72, 73, 74, 75]), sampling=dataclasses.replace(GREEDY, max_tokens=3)).result()
        self.assertEqual(scored[1].token_ids, plain.token_ids)
        self.assertIsNone(plain.prompt_logprobs)

    def test_a_reference_stands_for_the_tokens_of_the_output_to_the_bit(self):
        flow = self.client.workflow("trip")
        facts = flow.agent("facts", "List three facts about the sea", sampling=GREEDY)
        story = flow.agent("story", "The facts: ", facts, " Tell a story.", sampling=dataclasses.replace(GREEDY, logprobs=5))
        output = [id for id in facts.result().token_ids if id not in SPECIAL]
        alone = self.client.workflow("alone", Options(cache_salt="none of the other's KV")).agent(
            "story", "The facts: ", TokenIds(output), " Tell a story.", sampling=dataclasses.replace(GREEDY, logprobs=5))
        self.assertEqual(story.result().token_ids, alone.result().token_ids)
        self.assertEqual(story.result().logprobs, alone.result().logprobs)
        self.assertEqual(story.result().usage.prompt_tokens, alone.result().usage.prompt_tokens)
        other = flow.agent("story", "The facts: ", TokenIds(output[:-1]), " Tell a story.", sampling=dataclasses.replace(
            GREEDY, logprobs=5))
        self.assertNotEqual(other.result().logprobs, alone.result().logprobs)

    def output_ids(self, run):
        return TokenIds([id for id in run.result().token_ids if id not in SPECIAL])

    def assert_same_prompt(self, run, *parts):
        """Checks that a prompt with these parts gives the same answer."""
        sampling = dataclasses.replace(GREEDY, logprobs=5)
        alone = self.client.workflow("alone", Options(cache_salt="none of the other's KV")).agent("a", *parts, sampling=sampling)
        self.assertEqual(run.result().token_ids, alone.result().token_ids)
        self.assertEqual(run.result().logprobs, alone.result().logprobs)
        self.assertEqual(run.result().usage.prompt_tokens, alone.result().usage.prompt_tokens)

    def test_a_group_names_its_agent_and_is_left_out_without_output(self):
        flow = self.client.workflow("w")
        facts = flow.agent("facts", "List three facts about the sea", sampling=GREEDY)
        quiet = flow.agent("quiet", "x", sampling=Sampling(max_tokens=0))
        judge = flow.agent("judge", "Read: ", Group(quiet, "; ", label="[{agent}] "), Group("(", AgentName(), ") ", facts, ";"),
                           "Answer.", sampling=dataclasses.replace(GREEDY, logprobs=5))
        self.assert_same_prompt(judge, "Read: ", "(", "facts", ") ", self.output_ids(facts), ";", "Answer.")

    def test_a_prompt_uses_the_outputs_that_complete_first(self):
        flow = self.client.workflow("w")
        late, second = flow.announce("late"), flow.announce("second")
        first = flow.agent("first", "one", sampling=GREEDY)
        judge = flow.agent("judge", "Read: ", *(Group(run, ";", label="[{agent}] ") for run in (late, second, first)), "!",
                           sampling=dataclasses.replace(GREEDY, logprobs=5), options=Options(join="arrival", first=2))
        first.result()
        self.assertFalse(judge.over)
        second = flow.agent(second, "two", sampling=GREEDY)
        self.assert_same_prompt(judge, "Read: ", "[", "first", "] ", self.output_ids(first), ";",
                                "[", "second", "] ", self.output_ids(second), ";", "!")
        for parts, words in (((Group("x"),), "group.parts: expected one output_of"),
                             ((Group(Group(first)),), "a group must not contain a group"),
                             ((AgentName(),), "agent_name is for parts of a group"),
                             ((first,), "first: expected [0, 1]")):
            self.assert_fails(grpc.StatusCode.INVALID_ARGUMENT, flow.agent("a", *parts, options=Options(first=2)), words)

    def test_a_chat_may_contain_an_output(self):
        flow = self.client.workflow("w")
        facts = flow.agent("facts", Message("system", "You list facts."), Message("user", "the sea"), sampling=GREEDY)
        judge = flow.agent("judge", Message("assistant", "", reasoning_content="hm"), Message("user", "Is this true? ", Group(
                           facts, label="{agent}: "), "Answer."), sampling=GREEDY, options=Options(template_kwargs={"enable_thinking": False}))
        self.assertGreater(judge.result().usage.prompt_tokens, facts.result().usage.completion_tokens)
        [trace] = [request for request in flow.trace().requests if request.agent == "judge"]
        self.assertEqual(trace.upstreams, (facts.id,))
        self.assertRegex(trace.trace_id, "^[0-9a-f]{32}$")

    def test_a_graph_grows_while_it_runs(self):
        flow = self.client.workflow("w")
        last = flow.announce("last")
        reader = flow.agent("reader", "Praise: ", last, sampling=GREEDY)
        draft = flow.agent("draft", "Why is the sky blue?", sampling=GREEDY)
        draft.result()
        self.assertFalse(reader.over)
        written = flow.agent(last, "Shorten: ", draft, sampling=GREEDY)
        self.assertEqual(written.id, last.id)
        reader.result()
        trace = flow.trace()
        self.assertEqual({request.agent: set(request.upstreams) for request in trace.requests},
                         {"reader": {last.id}, "draft": set(), "last": {draft.id}})
        for request in trace.requests:
            self.assertTrue(request.over)
            self.assertEqual(request.spans[0].begin_us, request.arrived_us)
            # A router that is late receives all tokens at once, and the phase `decode` is empty.
            self.assertIn(request.spans[-1].phase, ("first_step", "decode"))
            self.assertEqual(request.spans[-1].end_us, request.ended_us)

    def test_cancel_ends_run_and_fails_downstream_requests(self):
        flow = self.client.workflow("w")
        run = flow.agent("a", "Wait for ", flow.announce("never"), sampling=GREEDY)
        waits = flow.agent("b", "Wait for ", run, sampling=GREEDY)
        survivor = flow.agent("c", "Wait for ", OutputOf(run, on_failure="substitute", substitute="nothing"), sampling=GREEDY)
        with self.assertRaises(TimeoutError):
            run.result(timeout=0.01)
        await_requests(flow, 3)
        run.cancel()
        self.assert_fails(grpc.StatusCode.CANCELLED, run, "")
        self.assert_fails(grpc.StatusCode.ABORTED, waits, run.id)
        self.assertGreater(survivor.result().usage.completion_tokens, 0)

    def test_a_run_is_cancelled_when_no_run_needs_its_output_any_more(self):
        flow = self.client.workflow("w")
        never = flow.announce("never")
        draft = flow.agent("draft", "Wait for ", never, sampling=GREEDY)
        kept = flow.agent("kept", "Wait for ", never, sampling=GREEDY, options=Options(keep=True))
        readers = [flow.agent("reader", draft, kept, sampling=GREEDY) for _ in range(2)]
        await_requests(flow, 4)
        readers[0].cancel()
        self.assert_fails(grpc.StatusCode.CANCELLED, readers[0], "")
        self.assertFalse(draft.over)
        readers[1].cancel()
        self.assert_fails(grpc.StatusCode.CANCELLED, draft, "set `keep`")
        self.assertFalse(kept.over)
        flow.agent(never, "x", sampling=GREEDY)
        self.assertEqual(kept.result().usage.completion_tokens, 24)

    def test_a_refused_request_fails_those_that_refer_to_it(self):
        flow = self.client.workflow("w")
        bad = flow.announce("bad")
        waits = flow.agent("a", "Wait for ", bad, sampling=GREEDY)
        further = flow.agent("b", "Wait for ", waits, sampling=GREEDY)
        survivors = [flow.agent("c", "Wait for ", OutputOf(bad, on_failure=on_failure, substitute=substitute), sampling=GREEDY)
                     for on_failure, substitute in (("substitute", "nothing"), ("partial", ""))]
        await_requests(flow, 4)
        refused = flow.agent(bad, "x", sampling=Sampling(top_p=2))
        self.assert_fails(grpc.StatusCode.INVALID_ARGUMENT, refused, "top_p")
        self.assert_fails(grpc.StatusCode.ABORTED, waits, bad.id)
        late = flow.agent("d", "Wait for ", refused, sampling=GREEDY)
        for error in map(self.error_of, (waits, further, late)):
            root = error.root
            self.assertEqual((root.request_id, root.agent, root.code), (bad.id, "bad", grpc.StatusCode.INVALID_ARGUMENT))
            self.assertIn("top_p", root.message)
            self.assertEqual(pickle.loads(pickle.dumps(error)).root, root)
        for survivor in survivors:
            self.assertGreater(survivor.result().usage.completion_tokens, 0)
        self.assertIsNone(self.error_of(refused).root)

    def test_processes_join_a_workflow_by_its_id(self):
        flow = self.client.workflow("w")
        flow.agent("a", "One", sampling=GREEDY).result()
        with Client(self.server.grpc) as other:
            joined = other.attach(flow.id)
            joined.agent("b", "Two", sampling=GREEDY).result()
            joined.cancel()
        self.assertEqual({request.agent for request in flow.trace().requests}, {"a", "b"})

    def test_timeouts_are_in_seconds(self):
        flow = self.client.workflow("w")
        never = flow.announce("never")
        late = flow.agent("a", "Wait for ", OutputOf(never, timeout=0.05, on_failure="substitute", substitute="nothing"),
                          sampling=GREEDY)
        self.assertGreater(late.result().usage.completion_tokens, 0)
        with self.assertWarns(DeprecationWarning):
            late = flow.agent("a", "Wait for ", OutputOf(never, timeout_ms=50), sampling=GREEDY)
        self.assert_fails(grpc.StatusCode.ABORTED, late, "timeout")

    def test_cancelling_a_workflow_ends_all_of_its_runs_and_no_others(self):
        flow, other = self.client.workflow("w"), self.client.workflow("w")
        waits = flow.announce("never")
        runs = [flow.agent("a", "Wait for ", waits) for _ in range(3)]
        survivor = other.agent("a", "Wait for ", waits)
        flow.cancel()
        for run in runs:
            self.assert_fails(grpc.StatusCode.CANCELLED, run, "")
        flow.agent(waits, "Here I am", sampling=GREEDY).result()
        self.assertGreater(survivor.result().usage.completion_tokens, 0)

    def test_runs_fail_when_server_dies_or_is_absent(self):
        server = Server()
        self.addCleanup(server.stop)
        with Client(server.grpc) as client:
            flow = client.workflow("w")
            run = flow.agent("a", "Wait for ", flow.announce("never"))
            await_requests(flow, 1)
            server.kill()
            self.assert_fails(grpc.StatusCode.UNAVAILABLE, run, "")
            self.assert_fails(grpc.StatusCode.UNAVAILABLE, flow.agent("a", "x"), "")

    def test_close_cancels_unfinished_runs(self):
        with Client(self.server.grpc) as client:
            flow = client.workflow("w")
            run = flow.agent("a", "Wait for ", flow.announce("never"), sampling=GREEDY)
        self.assert_fails(grpc.StatusCode.CANCELLED, run, "")

    def test_a_prompt_is_prefilled_ahead_and_continued(self):
        flow = self.client.workflow("w")
        length = 0
        for piece in ("Monday: rain and a strong wind. ", "Tuesday: fog until noon, then sun. "):
            added = flow.prefill_only(piece, options=Options(context_id="trip", context_length=length))
            self.assertGreater(added.context_length, length)
            self.assertGreater(added.lease_ms, 0)
            length = added.context_length
        run = flow.agent("a", "The best day is", sampling=GREEDY, options=Options(context_id="trip", context_length=length))
        # KV is cached in blocks of 16 tokens.
        self.assertGreaterEqual(run.result().usage.cached_tokens, length - 16)
        with self.assertRaises(BatonError) as caught:
            flow.prefill_only("more", options=Options(context_id="trip", context_length=3))
        self.assertIs(caught.exception.code, grpc.StatusCode.FAILED_PRECONDITION)

    def test_a_chat_continues_a_context_that_has_its_first_messages(self):
        flow = self.client.workflow("w", Options(cache_salt="chat_context"))
        history = [Message("system", "You list facts about the sea."), Message("user", "How deep is it at its deepest point?")]
        context = Options(context_id="history")
        added = flow.prefill_only(*history, options=context)
        answer = flow.agent("a", *history, sampling=GREEDY, options=context).result()
        self.assertGreaterEqual(answer.usage.cached_tokens, added.context_length - 16)
        alone = flow.agent("a", *history, sampling=GREEDY, options=Options(cache_salt="alone")).result()
        self.assertEqual(answer.token_ids, alone.token_ids)
        # The answer goes back as it was generated.
        history += [Message("assistant", TokenIds(answer.token_ids)), Message("user", "And where?")]
        longer = flow.prefill_only(*history, options=context)
        self.assertGreater(longer.context_length, added.context_length + len(answer.token_ids))
        other = flow.agent("a", Message("system", "You list lies."), *history[1:], sampling=GREEDY, options=context)
        self.assert_fails(grpc.StatusCode.FAILED_PRECONDITION, other, "differ at token")

    def test_a_tool_loop_prefills_its_history_while_the_tool_runs(self):
        flow = self.client.workflow("w", Options(cache_salt="tool_context"))
        context = Options(context_id="loop")
        history = [Message("system", "You call tools."), Message("user", "How is the weather?"),
                   Message("assistant", "I ask the tool.")]
        added = flow.prefill_only(*history, options=context)
        history.append(Message("tool", "Rain.", tool_call_id="1"))
        answer = flow.agent("a", *history, sampling=GREEDY, options=context).result()
        self.assertGreaterEqual(answer.usage.cached_tokens, added.context_length - 16)
        alone = flow.agent("a", *history, sampling=GREEDY, options=Options(cache_salt="alone")).result()
        self.assertEqual(answer.token_ids, alone.token_ids)

    def test_a_session_finds_its_kv(self):
        flow = self.client.workflow("w", Options(session_id="s", cache_salt="test_a_session"))
        prompt = "A prompt of more than one block of sixteen tokens, for the cache. "
        first, second = (flow.agent("a", prompt, sampling=GREEDY).result() for _ in range(2))
        self.assertEqual(first.usage.cached_tokens, 0)
        self.assertGreater(second.usage.cached_tokens, 0)
        self.assertEqual(first.token_ids, second.token_ids)

    def test_errors_name_what_is_wrong(self):
        flow = self.client.workflow("w")
        code = grpc.StatusCode
        self.assert_fails(code.INVALID_ARGUMENT, flow.agent("a", "x", sampling=Sampling(top_p=2)), "top_p")
        self.assert_fails(code.NOT_FOUND, flow.agent("a", "x", OutputOf("no-such-request")), "no-such-request")
        self.assert_fails(code.INVALID_ARGUMENT, flow.agent("a", "x", options=Options(model="nope")), "nope")
        waits = flow.agent("a", flow.announce("never"), options=Options(timeout=0.2))
        self.assert_fails(code.DEADLINE_EXCEEDED, waits, "")
        variables = Options(template_kwargs={"messages": []})
        refused = flow.agent("a", Message("user", "x"), options=variables)
        self.assert_fails(code.INVALID_ARGUMENT, refused, "messages: a client may not set this variable")
        for wrong in ((3,), (Message("user", "x"), "y"), (OutputOf(None),)):
            with self.assertRaises(TypeError):
                flow.agent("a", *wrong)
        with self.assertRaises(TypeError):
            flow.agent("a", "no chat", options=variables)
        with self.assertRaises(BatonError) as caught:
            self.client.workflow("nothing").trace()
        self.assertIs(caught.exception.code, code.NOT_FOUND)

    def test_an_id_that_is_used_twice_is_refused(self):
        flow = self.client.workflow("w")
        first = flow.announce("a")
        waiting = flow.agent(first, flow.announce("never"))
        await_requests(flow, 1)
        self.assert_fails(grpc.StatusCode.ALREADY_EXISTS, flow.agent(Announced(first.id, "a"), "x"), first.id)
        waiting.cancel()

    def test_models_are_listed(self):
        [model] = self.client.models()
        self.assertEqual((model.name, model.ready), ("tiny_llama3_bf16", True))


class KeysTest(unittest.TestCase):
    def serve_with_keys(self, limits=""):
        """Starts a server with keys. Returns its address and a key."""
        keys = Keys(limits)
        self.addCleanup(keys.close)
        server = Server("--keys", keys.path)
        self.addCleanup(server.stop)
        return server.grpc, keys.key

    def test_the_key_lets_in_and_a_wrong_or_missing_one_does_not(self):
        address, right = self.serve_with_keys()
        with Client(address, api_key=right) as client:
            self.assertEqual(client.workflow("w").agent("a", "abc", sampling=GREEDY).result().finish_reason, "length")
        for key in (None, "baton-wrong"):
            with Client(address, api_key=key) as client, self.assertRaises(BatonError) as caught:
                client.workflow("w").agent("a", "abc").result()
            self.assertIs(caught.exception.code, grpc.StatusCode.UNAUTHENTICATED)

    def test_a_quota_that_is_used_up_says_when_to_try_again(self):
        # The first call uses the tokens of several hours.
        address, key = self.serve_with_keys("tokens_per_minute = 1")
        with Client(address, api_key=key) as client:
            flow = client.workflow("w")
            flow.agent("a", "x" * 200, sampling=GREEDY).result()
            with self.assertRaises(BatonError) as caught:
                flow.agent("b", "x", sampling=Sampling(max_tokens=1)).result()
        self.assertIs(caught.exception.code, grpc.StatusCode.RESOURCE_EXHAUSTED)
        self.assertGreater(caught.exception.retry_after, 1)

        async def ask_again():
            async with AsyncClient(address, api_key=key) as client:
                await client.workflow("w").agent("c", "x", sampling=Sampling(max_tokens=1)).result()

        with self.assertRaises(BatonError) as caught:
            asyncio.run(ask_again())
        self.assertGreater(caught.exception.retry_after, 1)


@unittest.skipUnless(shutil.which("openssl"), "makes certificates")
class TlsTest(unittest.TestCase):
    def test_a_server_is_trusted_by_its_authority_alone(self):
        ours, others = Certificate("ours"), Certificate("others")
        self.addCleanup(ours.close)
        self.addCleanup(others.close)
        server = Server("--tls-cert", ours.path, "--tls-key", ours.key)
        self.addCleanup(server.stop)
        with Client(server.grpc, ca=ours.path) as client:
            self.assertEqual(client.workflow("w").agent("a", "abc", sampling=GREEDY).result().finish_reason, "length")
        for wrong in ({"ca": others.path}, {"tls": True}, {}):
            with Client(server.grpc, **wrong) as client, self.assertRaises(BatonError) as caught:
                client.models()
            self.assertIs(caught.exception.code, grpc.StatusCode.UNAVAILABLE)
        with self.assertRaises(OSError):
            Client(server.grpc, ca=ours.path + ".not")


if __name__ == "__main__":
    unittest.main()
