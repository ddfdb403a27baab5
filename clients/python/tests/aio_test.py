"""Tests of the asyncio client with a real server."""

import asyncio
import unittest

import grpc
from baton_client import AsyncClient, BatonError, Client, Group, Options, Sampling, TokenIds
from serving import Keys, Server

GREEDY = Sampling(temperature=0, repetition_penalty=1, max_tokens=24, ignore_eos=True)


class AsyncClientTest(unittest.IsolatedAsyncioTestCase):
    @classmethod
    def setUpClass(cls):
        cls.keys = Keys()
        cls.addClassCleanup(cls.keys.close)
        cls.server = Server("--keys", cls.keys.path)
        cls.addClassCleanup(cls.server.stop)

    async def asyncSetUp(self):
        self.client = AsyncClient(self.server.grpc, api_key=self.keys.key)
        self.addAsyncCleanup(self.client.close)

    async def assert_fails(self, code, run):
        with self.assertRaises(BatonError) as caught:
            await run.result()
        self.assertIs(caught.exception.code, code)

    async def test_a_workflow_has_the_results_of_the_synchronous_client(self):
        flow = self.client.workflow("trip")
        facts = flow.agent("facts", "List three facts about the sea", sampling=GREEDY)
        story = flow.agent("story", "The facts: ", facts, " Tell a story.", sampling=GREEDY)
        streamed = [text async for text in story.stream()]
        result = await story.result()
        self.assertEqual(result.text, "".join(streamed))
        self.assertEqual(result.text, "".join([chunk.text async for chunk in story.chunks()]))
        # The stream of `facts` may end later than the other one.
        await facts.result()

        def again():
            with Client(self.server.grpc, api_key=self.keys.key) as client:
                flow = client.workflow("trip")
                facts = flow.agent("facts", "List three facts about the sea", sampling=GREEDY)
                return flow.agent("story", "The facts: ", facts, " Tell a story.", sampling=GREEDY).result()

        self.assertEqual(result.token_ids, (await asyncio.to_thread(again)).token_ids)
        trace = await flow.trace()
        self.assertEqual([request.agent for request in trace.requests if request.upstreams], ["story"])

    async def test_a_graph_grows_and_many_run_side_by_side(self):
        flow = self.client.workflow("w")
        last = flow.announce("last")
        readers = [flow.agent("reader", f"Praise {n}: ", last, sampling=GREEDY) for n in range(20)]
        flow.agent(last, "Say it", sampling=GREEDY)
        results = await asyncio.gather(*(reader.result() for reader in readers))
        self.assertEqual([result.finish_reason for result in results], ["length"] * 20)

    async def test_a_prompt_uses_the_outputs_that_complete_first(self):
        flow = self.client.workflow("w")
        late = flow.announce("late")
        first = flow.agent("first", "one", sampling=GREEDY)
        judge = flow.agent("judge", *(Group(run, ";", label="[{agent}] ") for run in (late, first)), sampling=GREEDY,
                           options=Options(join="arrival", first=1))
        output = [id for id in (await first.result()).token_ids if id not in (0, 1)]
        alone = flow.agent("alone", "[", "first", "] ", TokenIds(output), ";", sampling=GREEDY)
        self.assertEqual((await judge.result()).token_ids, (await alone.result()).token_ids)

    async def test_a_run_is_cancelled_when_no_run_needs_its_output_any_more(self):
        flow = self.client.workflow("w")
        never = flow.announce("never")
        draft = flow.agent("draft", never, sampling=GREEDY)
        kept = flow.agent("kept", never, sampling=GREEDY, options=Options(keep=True))
        first = flow.agent("first", "one", sampling=Sampling(max_tokens=1))
        await first.result()
        while len((await flow.trace()).requests) < 3:
            await asyncio.sleep(0.01)
        judge = flow.agent("judge", draft, kept, first, sampling=GREEDY, options=Options(first=1))
        await judge.result()
        with self.assertRaisesRegex(BatonError, "set `keep`") as caught:
            await draft.result()
        self.assertEqual(caught.exception.code, grpc.StatusCode.CANCELLED)
        self.assertFalse(kept.over)
        kept.cancel()

    async def test_cancelling_or_a_timeout_ends_a_run(self):
        flow = self.client.workflow("w")
        run = flow.agent("a", flow.announce("never"))
        with self.assertRaises(asyncio.TimeoutError):
            await asyncio.wait_for(run.result(), 0.05)
        await self.assert_fails(grpc.StatusCode.CANCELLED, run)
        run = flow.agent("a", flow.announce("never"))
        run.cancel()
        await self.assert_fails(grpc.StatusCode.CANCELLED, run)

    async def test_cancelling_a_workflow_ends_all_of_its_runs(self):
        flow = self.client.workflow("w")
        waits = flow.announce("never")
        runs = [flow.agent("a", "Wait for ", waits) for _ in range(3)]
        flow.cancel()
        for run in runs:
            await self.assert_fails(grpc.StatusCode.CANCELLED, run)

    async def test_close_cancels_unfinished_runs(self):
        async with AsyncClient(self.server.grpc, api_key=self.keys.key) as client:
            flow = client.workflow("w")
            run = flow.agent("a", flow.announce("never"))
        await self.assert_fails(grpc.StatusCode.CANCELLED, run)

    async def test_errors(self):
        flow = self.client.workflow("w")
        await self.assert_fails(grpc.StatusCode.INVALID_ARGUMENT, flow.agent("a", "x", sampling=Sampling(top_p=2)))
        waits = flow.agent("a", flow.announce("never"), options=Options(timeout=0.2))
        await self.assert_fails(grpc.StatusCode.DEADLINE_EXCEEDED, waits)
        async with AsyncClient(self.server.grpc, api_key="baton-wrong") as stranger:
            await self.assert_fails(grpc.StatusCode.UNAUTHENTICATED, stranger.workflow("w").agent("a", "x"))
            with self.assertRaises(BatonError):
                await stranger.models()

    async def test_prefill_ahead_and_models(self):
        flow = self.client.workflow("w")
        added = await flow.prefill_only("Monday: rain. ", options=Options(context_id="aio"))
        run = flow.agent("a", sampling=GREEDY, options=Options(context_id="aio", context_length=added.context_length))
        self.assertEqual((await run.result()).usage.prompt_tokens, added.context_length)
        self.assertEqual([model.name for model in await self.client.models()], ["tiny_llama3_bf16"])


if __name__ == "__main__":
    unittest.main()
