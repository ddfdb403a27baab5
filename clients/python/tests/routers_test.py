"""Tests of two routers with the same workers: which names reach requests of the other router."""

import unittest

import grpc
import openai
import serving
from baton_client import BatonError, Client, Options, OutputOf, Sampling
from serving import MODEL
from traces import await_requests

GREEDY = Sampling(temperature=0, repetition_penalty=1, max_tokens=8, ignore_eos=True)
TEXT = "A text of more than two blocks of sixteen tokens, which both routers send to one worker. "


class RoutersTest(unittest.TestCase):
    @classmethod
    def keep(cls, process):
        cls.addClassCleanup(process.kill)
        return process

    @classmethod
    def setUpClass(cls):
        prefill, decode = (cls.keep(serving.start_worker(role)).grpc for role in ("prefill", "decode"))
        cls.routers = [cls.keep(serving.start("router", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
                                              "--prefill-workers", prefill, "--decode-workers", decode))
                       for _ in range(2)]
        cls.here, cls.other = (Client(router.grpc) for router in cls.routers)
        for client in (cls.here, cls.other):
            cls.addClassCleanup(client.close)

    def assert_not_found(self, call):
        with self.assertRaises(BatonError) as caught:
            call()
        self.assertIs(caught.exception.code, grpc.StatusCode.NOT_FOUND)
        self.assertIn("at this router", caught.exception.message)

    def test_an_output_belongs_to_the_router_of_its_request(self):
        run = self.here.workflow("w").agent("a", "x", sampling=GREEDY)
        run.result()
        self.assertTrue(self.here.workflow("w").agent("b", OutputOf(run.id), sampling=GREEDY).result().token_ids)
        self.assert_not_found(lambda: self.other.workflow("w").agent("b", OutputOf(run.id), sampling=GREEDY).result())
        with openai.OpenAI(base_url=f"{self.routers[1].http}/v1", api_key="none", max_retries=0) as client:
            with self.assertRaises(openai.NotFoundError) as caught:
                client.completions.create(model=MODEL.name, prompt=None,
                                          extra_body={"segments": [{"output_of": run.id}]})
        self.assertIn("at this router", str(caught.exception))

    def test_a_value_belongs_to_the_router_that_received_it(self):
        value = self.here.workflow("w").value("tool", "rain")
        value.result()
        self.assertTrue(self.here.workflow("w").agent("b", value, sampling=GREEDY).result().token_ids)
        self.assert_not_found(lambda: self.other.workflow("w").agent("b", value, sampling=GREEDY).result())

    def test_a_cancellation_ends_the_requests_of_one_router(self):
        flow = self.here.workflow("w")
        never = flow.announce("never")
        runs = [client.attach(flow.id).agent("a", never, sampling=GREEDY) for client in (self.here, self.other)]
        for client in (self.here, self.other):
            await_requests(client.attach(flow.id), 1)
        self.assertEqual(flow.cancel_all(), 1)
        with self.assertRaises(BatonError) as caught:
            runs[0].result()
        self.assertIs(caught.exception.code, grpc.StatusCode.CANCELLED)
        self.assertFalse(runs[1].over)
        self.assertEqual(self.other.attach(flow.id).cancel_all(), 1)

    def test_a_context_belongs_to_the_router_of_its_calls(self):
        options = Options(context_id="c")
        self.here.workflow("w").prefill_only(TEXT, options=options)
        self.here.workflow("w").agent("a", "x", sampling=GREEDY, options=options).result()
        self.assert_not_found(lambda: self.other.workflow("w").agent("a", "x", sampling=GREEDY, options=options).result())

    def test_a_trace_has_the_requests_of_one_router(self):
        flow = self.here.workflow("w")
        flow.agent("a", "x", sampling=GREEDY).result()
        self.assertEqual(len(flow.trace().requests), 1)
        self.assert_not_found(self.other.attach(flow.id).trace)

    def test_kv_reaches_requests_of_every_router(self):
        salt = Options(cache_salt="kv")
        first = self.here.workflow("w").agent("a", TEXT, sampling=GREEDY, options=salt).result()
        second = self.other.workflow("w").agent("a", TEXT, sampling=GREEDY, options=salt).result()
        self.assertEqual(first.usage.cached_tokens, 0)
        self.assertGreaterEqual(second.usage.cached_tokens, 32)
        self.assertEqual(first.token_ids, second.token_ids)


if __name__ == "__main__":
    unittest.main()
