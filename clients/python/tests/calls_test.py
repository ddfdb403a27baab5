"""Tests of calls that end before the server has received them, with both clients."""

import asyncio
import itertools
import threading
import unittest
from unittest import mock

import grpc
from baton_client import Announced, AsyncClient, BatonError, Client, Options, Sampling
from baton_client.connection import CHANNEL_OPTIONS
from serving import Server, close, settled

GREEDY = Sampling(temperature=0, repetition_penalty=1, max_tokens=8, ignore_eos=True)
CANCELLED = "cancelled by this client before the server received it"


class CallsTest(unittest.IsolatedAsyncioTestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)

    async def asyncSetUp(self):
        self.reader = AsyncClient(self.server.grpc)
        self.addAsyncCleanup(self.reader.close)
        self.never = threading.Event()
        self.addCleanup(self.never.set)

    def new_client(self, kind):
        """Returns a client without a connection. A call that ends before it has one is not sent."""
        # The channels of a process normally share a connection.
        options = [*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1)]
        with mock.patch(f"{kind.__module__}.CHANNEL_OPTIONS", options):
            client = kind(self.server.grpc)
        self.addAsyncCleanup(close, client)
        return client

    def run_of(self, flow, place, options=None):
        return flow.agent(place, "Read ", flow.announce("never"), sampling=GREEDY, options=options)

    def value_of(self, flow, place, options=None):
        def endless():
            self.never.wait()
            yield "never"

        async def endless_async():
            await asyncio.Event().wait()
            yield "never"

        return flow.value(place, endless() if isinstance(flow._client, Client) else endless_async(), options)

    async def waiting_reader(self, place):
        """Returns a run that waits for the output of `place`. Without it, it ends after 20 s."""
        flow = self.reader.workflow("reader", Options(timeout=20))
        run = flow.agent("reader", "x", place, sampling=GREEDY)
        await self.await_trace(flow, lambda traced: traced.awaited == (place.id,))
        return run

    async def await_trace(self, flow, matches):
        """Waits until the trace of the workflow has a request that matches."""
        while True:
            try:
                if any(map(matches, (await settled(flow.trace())).requests)):
                    return
            except BatonError as error:
                self.assertIs(error.code, grpc.StatusCode.NOT_FOUND)
            await asyncio.sleep(0.01)

    async def root_of(self, run):
        with self.assertRaises(BatonError) as caught:
            await run.result()
        self.assertIsNotNone(caught.exception.root, caught.exception)
        return caught.exception.root

    async def test_readers_end_with_a_call_that_ends_at_once(self):
        ends = {"cancel": lambda client, flow, run: run.cancel(),
                "cancel of the workflow": lambda client, flow, run: flow.cancel(),
                "close": lambda client, flow, run: client.close(),
                "timeout": lambda client, flow, run: None}
        for kind, start, name in itertools.product((Client, AsyncClient), (self.run_of, self.value_of), ends):
            with self.subTest(f"{kind.__name__} {start.__name__} {name}"):
                client = self.new_client(kind)
                flow = client.workflow("w", Options(timeout=0 if name == "timeout" else None))
                place = flow.announce("writer")
                reader = await self.waiting_reader(place)
                await settled(ends[name](client, flow, start(flow, place)))
                root = await self.root_of(reader)
                self.assertEqual((root.request_id, root.agent), (place.id, "writer"))
                # Otherwise the server may have received the call, and has an error of its own.
                if kind is AsyncClient or name == "timeout":
                    text = "the timeout passed before the server received it" if name == "timeout" else CANCELLED
                    self.assertEqual((root.code, root.message), (grpc.StatusCode.ABORTED, text))

    async def test_readers_of_another_salt_are_not_concerned(self):
        flow = self.new_client(AsyncClient).workflow("w", Options(cache_salt="other"))
        place = flow.announce("writer")
        reader = await self.waiting_reader(place)
        other = flow.agent("reader", "x", place, sampling=GREEDY, options=Options(timeout=20))
        self.run_of(flow, place).cancel()
        self.assertEqual((await self.root_of(other)).message, CANCELLED)
        self.assertFalse(reader.over)
        reader.cancel()

    async def test_readers_end_with_a_task_group_that_fails_at_once(self):
        if not hasattr(asyncio, "TaskGroup"):
            self.skipTest("Python 3.10 has no TaskGroup")
        flow = self.new_client(AsyncClient).workflow("w")
        place = flow.announce("writer")
        reader = await self.waiting_reader(place)

        async def write():
            await self.run_of(flow, place).result()

        async def fail():
            raise ValueError

        with self.assertRaises(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
                group.create_task(write())
        root = await self.root_of(reader)
        self.assertEqual((root.request_id, root.agent), (place.id, "writer"))

    async def test_a_call_that_the_server_has_received_is_not_reported(self):
        for kind in (Client, AsyncClient):
            for start in (self.run_of, self.value_of):
                with self.subTest(f"{kind.__name__} {start.__name__}"):
                    client = self.new_client(kind)
                    flow = client.workflow("w")
                    run = start(flow, flow.announce("writer"))
                    await self.await_trace(flow, lambda traced: traced.request_id == run.id)
                    reader = await self.waiting_reader(run)
                    run.cancel()
                    self.assertIs((await self.root_of(reader)).code, grpc.StatusCode.CANCELLED)
                    await close(client)
                    [traced] = (await self.reader.attach(flow.id).trace()).requests
                    self.assertTrue(traced.error.startswith("CANCELLED"), traced.error)

    async def test_a_closed_client_starts_no_call(self):
        for kind in (Client, AsyncClient):
            client = self.new_client(kind)
            flow = client.workflow("w")
            await close(client)
            for start in (lambda: flow.agent("a", "x"), lambda: flow.value("tool", "x")):
                with self.assertRaises(ValueError):
                    start()

    async def test_the_content_of_a_refused_value_does_not_begin(self):
        began = []

        async def content():
            began.append("asynchronous")
            yield "x"

        def blocking_content():
            began.append("blocking")
            yield "x"

        flow = self.reader.workflow("w")
        first = flow.value("tool", "x")
        await first.result()
        for parts in (content(), blocking_content()):
            with self.assertRaises(BatonError) as caught:
                await flow.value(Announced(first.id, "tool"), parts).result()
            self.assertIs(caught.exception.code, grpc.StatusCode.ALREADY_EXISTS)
        await self.reader.close()
        self.assertEqual(began, [])

    async def test_a_client_closes_although_no_server_is_there(self):
        for kind in (Client, AsyncClient):
            client = kind("127.0.0.1:1")
            run = client.workflow("w").agent("a", "x")
            await close(client)
            with self.assertRaises(BatonError):
                await settled(run.result())


if __name__ == "__main__":
    unittest.main()
