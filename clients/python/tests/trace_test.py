"""Tests of the trace of a workflow: refused requests, root causes, and sums of each agent."""

import unittest

import grpc
from baton_client import BatonError, Client, Options, OutputOf, Sampling
from serving import Keys, Server, post
from traces import await_requests

GREEDY = Sampling(temperature=0, repetition_penalty=1, max_tokens=24, ignore_eos=True)
TEXT = "Once upon a time there was a boat that sailed over the sea. "


class TraceTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)

    def setUp(self):
        self.client = Client(self.server.grpc)
        self.addCleanup(self.client.close)

    def test_requests_that_both_apis_refuse_are_in_the_trace(self):
        flow = self.client.workflow("refusals")
        accepted = flow.agent("writer", "x", sampling=GREEDY)
        accepted.result()
        refused = flow.agent("judge", "x", sampling=Sampling(top_p=2))
        with self.assertRaises(BatonError):
            refused.result()
        with self.assertRaises(BatonError):
            flow.prefill_only("x", options=Options(model="nope"))
        for path, body in (("/v1/completions", {"prompt": "x", "top_p": 2}),
                           ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "top_p": 2}),
                           ("/generate", {"segments": {"segments": [{"text": "x"}]}, "sampling": {"top_p": 2}})):
            self.assertEqual(post(self.server, path, body | {"request_id": "http" + path.replace("/", ":"), "agent": "http"},
                                       {"x-workflow": flow.id}), 400)
        trace = flow.trace()
        # The limit of max_tokens depends on the prompt, so these are read further than those above.
        for path, body in (("/v1/completions", {"prompt": "x"}),
                           ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})):
            self.assertEqual(post(self.server, path, body | {"max_tokens": 10 ** 6}, {"x-workflow": flow.id}), 400)
        unnamed = flow.trace().requests[len(trace.requests):]
        self.assertEqual([(request.refused, request.request_id) for request in unnamed], 2 * [(True, "")])
        self.assertEqual([request.refused for request in trace.requests], [False] + 5 * [True])
        self.assertEqual([request.agent for request in trace.requests], ["writer", "judge", "", "http", "http", "http"])
        self.assertEqual(trace.requests[1].request_id, refused.id)
        self.assertEqual(trace.requests[3].request_id, "http:v1:completions")
        for request in trace.requests[1:]:
            self.assertTrue(request.over)
            self.assertEqual(request.arrived_us, request.ended_us)
            self.assertGreaterEqual(request.arrived_us, trace.requests[0].ended_us)
            self.assertEqual((request.spans, request.upstreams, request.usage.prompt_tokens), ((), (), 0))
            self.assertRegex(request.error, "^INVALID_ARGUMENT: " + ("model" if request.agent == "" else ".*top_p"))
        sums = {sums.agent: (sums.requests, sums.refused) for sums in trace.agents}
        self.assertEqual(sums, {"writer": (1, 0), "judge": (0, 1), "": (0, 1), "http": (0, 3)})

    def test_a_flood_of_refusals_hides_no_request_that_ran(self):
        flow = self.client.workflow("flood")
        accepted = flow.agent("writer", "x", sampling=GREEDY)
        accepted.result()
        for run in [flow.agent("judge", "x", sampling=Sampling(top_p=2)) for _ in range(200)]:
            with self.assertRaises(BatonError):
                run.result()
        trace = flow.trace()
        self.assertEqual(trace.requests[0].request_id, accepted.id)
        self.assertEqual((len(trace.requests), trace.omitted, trace.refused_omitted), (65, 0, 136))

    def test_refusals_for_a_quota_are_in_the_trace_of_their_tenant(self):
        keys = Keys("tokens_per_minute = 30")
        self.addCleanup(keys.close)
        server = Server("--keys", keys.path)
        self.addCleanup(server.stop)
        with Client(server.grpc, api_key=keys.key) as client:
            flow = client.workflow("quota")
            accepted = 0
            with self.assertRaises(BatonError):
                while True:
                    flow.agent("writer", TEXT, sampling=GREEDY).result()
                    accepted += 1
            bearer = {"authorization": "Bearer " + keys.key}
            self.assertEqual(post(server, "/v1/completions", {"prompt": "x", "workflow": flow.id, "agent": "third"}, bearer), 429)
            trace = flow.trace()
        self.assertEqual([(request.agent, request.refused) for request in trace.requests],
                         accepted * [("writer", False)] + [("writer", True), ("third", True)])
        for request in trace.requests[accepted:]:
            self.assertRegex(request.error, "^RESOURCE_EXHAUSTED: ")

    def test_a_failed_request_names_its_root_cause(self):
        flow = self.client.workflow("roots")
        first = flow.announce("first")
        middle = flow.agent("middle", "m", OutputOf(first, announced=True), sampling=GREEDY)
        last = flow.agent("last", "l", middle, sampling=GREEDY)
        await_requests(flow, 2)
        with self.assertRaises(BatonError):
            flow.agent(first, "x", sampling=Sampling(top_p=2)).result()
        with self.assertRaises(BatonError):
            last.result()
        by_agent = {request.agent: request for request in flow.trace().requests}
        self.assertTrue(by_agent["first"].refused)
        self.assertIsNone(by_agent["first"].root)
        for agent in ("middle", "last"):
            self.assertFalse(by_agent[agent].refused)
            root = by_agent[agent].root
            self.assertEqual((root.request_id, root.agent, root.code),
                             (first.id, "first", grpc.StatusCode.INVALID_ARGUMENT))
            self.assertIn("top_p", root.message)

    def test_sums_have_the_tokens_that_overlapped_with_an_upstream(self):
        flow = self.client.workflow("sums")
        upstream = flow.announce("writer")
        waiting = flow.agent("reader", TEXT * 8, OutputOf(upstream, announced=True), sampling=GREEDY)
        # A prefill worker computes the beginning of the waiting prompt before these later ones, or
        # beside them.
        for word in ("one", "two", "three"):
            flow.agent("probe", word + TEXT, sampling=GREEDY).result()
        flow.agent(upstream, "Write.", sampling=GREEDY).result()
        usage = waiting.result().usage
        trace = flow.trace()
        by_agent = {sums.agent: sums for sums in trace.agents}
        reader, writer = by_agent["reader"], by_agent["writer"]
        self.assertEqual(reader.requests, 1)
        self.assertEqual((reader.prompt_tokens, reader.cached_tokens, reader.completion_tokens),
                         (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens))
        self.assertGreaterEqual(reader.overlap_tokens, 64)
        self.assertLess(reader.overlap_tokens, usage.prompt_tokens - usage.cached_tokens)
        self.assertEqual(writer.overlap_tokens, 0)
        self.assertGreater(reader.upstream_ms, writer.total_ms)
        self.assertGreater(reader.total_ms, reader.upstream_ms + reader.queued_ms)
        self.assertEqual(by_agent["probe"].requests, 3)
        [traced] = [request for request in trace.requests if request.agent == "reader"]
        self.assertEqual(traced.overlap_tokens, reader.overlap_tokens)


if __name__ == "__main__":
    unittest.main()
