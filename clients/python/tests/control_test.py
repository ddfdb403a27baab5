"""Tests of deadlines, partial outputs, cancellation and limits of workflows, with both clients."""

import asyncio
import gc
import http.client
import json
import threading
import unittest
import urllib.error
import urllib.request
import weakref

import grpc
from baton_client import AsyncClient, BatonError, Client, Options, Sampling
from baton_client.messages import MESSAGES
from serving import Server, settled

GREEDY = Sampling(temperature=0, repetition_penalty=1, max_tokens=8, ignore_eos=True)
# Uses up the context length of the model.
LONG = Sampling(temperature=0, repetition_penalty=1, ignore_eos=True)


class ControlTest(unittest.IsolatedAsyncioTestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)

    async def asyncSetUp(self):
        self.client = Client(self.server.grpc)
        self.addCleanup(self.client.close)
        self.async_client = AsyncClient(self.server.grpc)
        self.addAsyncCleanup(self.async_client.close)

    def clients(self):
        for client in (self.client, self.async_client):
            with self.subTest(type(client).__name__):
                yield client

    async def error_of(self, awaitable):
        try:
            result = await settled(awaitable())
        except BatonError as error:
            return error
        raise AssertionError(f"no error but {result}")

    async def await_requests(self, flow, count):
        """Waits until the trace of the workflow has `count` requests."""
        while True:
            try:
                trace = await settled(flow.trace())
                if len(trace.requests) >= count:
                    return trace
            except BatonError as error:
                self.assertIs(error.code, grpc.StatusCode.NOT_FOUND)
            await asyncio.sleep(0.01)

    def deadlines(self):
        return self.server.metric('baton_requests_total{code="DEADLINE_EXCEEDED"}')

    # --- deadlines -------------------------------------------------------------------------------

    async def test_a_deadline_names_what_the_request_waits_for(self):
        for client in self.clients():
            before = self.deadlines()
            flow = client.workflow("w")
            never = flow.announce("never")
            run = flow.agent("a", "Read ", never, options=Options(timeout=0.1))
            error = await self.error_of(run.result)
            text = f"the output of '{never.id}' (announced, not submitted)"
            self.assertEqual((error.code, error.message), (grpc.StatusCode.DEADLINE_EXCEEDED,
                                                           f"the deadline passed while the request waited for {text}"))
            [traced] = (await settled(flow.trace())).requests
            self.assertEqual(traced.error.split(":")[0], "DEADLINE_EXCEEDED")
            self.assertEqual((traced.waits_for, traced.awaited), ("", ()))
            self.assertEqual(self.deadlines(), before + 1)

    async def test_a_timeout_that_has_passed_ends_a_run_at_once(self):
        for client in self.clients():
            for timeout in (0, -1):
                run = client.workflow("w").agent("a", "Hello", options=Options(timeout=timeout))
                error = await self.error_of(run.result)
                self.assertEqual((error.code, error.message), (grpc.StatusCode.DEADLINE_EXCEEDED,
                                                               "the timeout passed before the server reported an end"))

    async def test_a_deadline_of_grpc_counts_as_a_deadline(self):
        flow = self.client.workflow("w")
        request = MESSAGES["GenerateRequest"](workflow=flow.id)
        reference = request.segments.segments.add().output_of
        reference.request_id, reference.announced = "never", True
        before = self.deadlines()
        with self.assertRaises(grpc.RpcError) as caught:
            list(self.client._stub.generate(request, timeout=0.2))
        self.assertIs(caught.exception.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
        self.server.await_no_live_request()
        [traced] = flow.trace().requests
        self.assertEqual(traced.error, "DEADLINE_EXCEEDED: the deadline passed while the request waited for the output of "
                         "'never' (announced, not submitted)")
        self.assertEqual(self.deadlines(), before + 1)

    async def test_a_deadline_of_a_value_counts_as_a_deadline(self):
        async def endless():
            yield "half"
            await asyncio.Event().wait()

        flow = self.async_client.workflow("w", Options(timeout=0.2))
        value = flow.value("tool", endless())
        self.assertIs((await self.error_of(value.result)).code, grpc.StatusCode.DEADLINE_EXCEEDED)
        while not (trace := await self.await_requests(flow, 1)).requests[0].over:
            await asyncio.sleep(0.01)
        self.assertEqual(trace.requests[0].error, "DEADLINE_EXCEEDED: the deadline of the call passed")

    async def test_a_trace_names_what_a_request_waits_for(self):
        flow = self.client.workflow("w")
        never = flow.announce("never")
        run = flow.agent("a", "Read ", never, sampling=GREEDY)
        [traced] = (await self.await_requests(flow, 1)).requests
        self.assertEqual(traced.waits_for, f"the output of '{never.id}' (announced, not submitted)")
        self.assertEqual(traced.awaited, (never.id,))
        run.cancel()

    # --- partial outputs -------------------------------------------------------------------------

    async def cancel_midway(self, client):
        """Returns the error of a run that was cancelled after its first chunk."""
        while True:
            run = client.workflow("w").agent("a", "Once upon a time", sampling=LONG)
            if client is self.client:
                next(run.chunks())
            else:
                await anext(run.chunks())
            run.cancel()
            try:
                await settled(run.result())  # its end arrived before the cancellation
            except BatonError as error:
                return error

    async def test_a_cancelled_run_has_its_output_so_far(self):
        for client in self.clients():
            error = await self.cancel_midway(client)
            self.assertIs(error.code, grpc.StatusCode.CANCELLED)
            self.assertGreater(len(error.partial.token_ids), 0)
            whole = await settled(client.workflow("w").agent("a", "Once upon a time", sampling=LONG).result())
            self.assertEqual(error.partial.token_ids, whole.token_ids[:len(error.partial.token_ids)])
            self.assertTrue(whole.text.startswith(error.partial.text))

    async def test_a_run_without_output_has_no_partial(self):
        for client in self.clients():
            error = await self.error_of(client.workflow("w").agent("a", "x", sampling=Sampling(top_p=2)).result)
            self.assertIsNone(error.partial)

    # --- workflows as a whole --------------------------------------------------------------------

    async def test_cancel_all_ends_the_runs_of_all_processes_and_may_be_repeated(self):
        for client in self.clients():
            flow = client.workflow("w", Options(cache_salt="s"))
            other = client.attach(flow.id, Options(cache_salt="s"))
            runs = [flow.agent("a", "Read ", flow.announce("never"), sampling=GREEDY) for _ in range(3)]
            # A run without the salt is not the workflow's for `other`, which has used none.
            elsewhere = client.attach(flow.id).agent("a", "Read ", flow.announce("never"), sampling=GREEDY)
            await self.await_requests(flow, 3)
            self.assertEqual(await settled(other.cancel_all()), 3)
            for run in runs:
                error = await self.error_of(run.result)
                self.assertEqual((error.code, error.message), (grpc.StatusCode.CANCELLED, "its workflow was cancelled"))
            self.assertEqual(await settled(other.cancel_all()), 0)
            self.assertFalse(elsewhere.over)
            elsewhere.cancel()
            later = flow.agent("a", "x", sampling=GREEDY)
            self.assertEqual((await settled(later.result())).finish_reason, "length")

    async def test_delete_cancels_a_workflow_over_http(self):
        flow = self.client.workflow("w")
        run = flow.agent("a", "Read ", flow.announce("never"), sampling=GREEDY)
        await self.await_requests(flow, 1)
        request = urllib.request.Request(f"{self.server.http}/v1/workflows/{flow.id}", method="DELETE")
        with urllib.request.urlopen(request) as answer:
            self.assertEqual(json.load(answer), {"cancelled_requests": 1})
        self.assertIs((await self.error_of(run.result)).code, grpc.StatusCode.CANCELLED)

    async def test_clients_that_leave_before_their_upstream_starts_leave_nothing(self):
        flow = self.client.workflow("w")
        place = flow.announce("up")
        run = flow.agent("down", "Read ", place, sampling=GREEDY)
        body = {"workflow": flow.id, "max_tokens": 4,
                "segments": [{"output_of": {"request_id": place.id, "announced": True}}]}
        connection = http.client.HTTPConnection(self.server.http.removeprefix("http://"))
        connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
        trace = await self.await_requests(flow, 2)
        self.assertEqual([request.awaited for request in trace.requests], 2 * [(place.id,)])
        run.cancel()
        connection.close()
        self.server.await_no_live_request()
        # No request awaits the output now. Later prompts find it.
        result = flow.agent(place, "Once upon a time", sampling=GREEDY).result()
        self.assertEqual(result.finish_reason, "length")
        self.assertEqual(flow.agent("down", "Read ", result, sampling=GREEDY).result().finish_reason, "length")

    async def test_a_value_ends_with_its_workflow(self):
        async def endless():
            yield "half"
            await asyncio.Event().wait()

        flow = self.async_client.workflow("w", deadline=0.3)
        waits = flow.agent("a", "Read ", flow.announce("never"), sampling=GREEDY)
        value = flow.value("tool", endless())
        error = await self.error_of(value.result)
        self.assertIs(error.code, grpc.StatusCode.DEADLINE_EXCEEDED)
        self.assertIn("passed before the value was complete", error.message)
        await self.error_of(waits.result)
        flow = self.async_client.workflow("w")
        value = flow.value("tool", endless())
        await self.await_requests(flow, 1)
        self.assertEqual(await self.async_client.attach(flow.id).cancel_all(), 1)
        self.assertEqual((await self.error_of(value.result)).message, "its workflow was cancelled")

    def endless(self):
        """Returns a content that has no part until the end of the test."""
        never = threading.Event()
        self.addCleanup(never.set)

        def wait():
            never.wait()
            yield "never"

        return wait()

    async def test_a_value_states_the_limits_of_its_workflow(self):
        for client in self.clients():
            # The value is the only request of the workflow. It ends after 20 s without the limit.
            flow = client.workflow("w", Options(timeout=20), deadline=0.3)
            error = await self.error_of(flow.value("tool", self.endless()).result)
            self.assertIs(error.code, grpc.StatusCode.DEADLINE_EXCEEDED)
            self.assertIn("passed before the value was complete", error.message)

    async def test_a_value_without_a_part_ends_with_its_workflow(self):
        for client in self.clients():
            flow = client.workflow("w")
            value = flow.value("tool", self.endless())
            # A run that does not end with the value fails at its deadline.
            reader = client.workflow("reader", Options(timeout=20)).agent("a", "Read ", value, sampling=GREEDY)
            while not reader.over and not await settled(client.attach(flow.id).cancel_all()):
                await asyncio.sleep(0.01)
            root = (await self.error_of(reader.result)).root
            self.assertEqual((root.request_id, root.code, root.message),
                             (value.id, grpc.StatusCode.CANCELLED, "its workflow was cancelled"))

    async def test_the_deadline_of_a_workflow_ends_its_runs(self):
        for client in self.clients():
            flow = client.workflow("w", deadline=0.3)
            first = flow.agent("a", "Read ", flow.announce("never"), sampling=GREEDY)
            second = flow.agent("b", "Read ", first, sampling=GREEDY)
            for run, awaited in ((first, "never"), (second, first.id)):
                error = await self.error_of(run.result)
                self.assertIs(error.code, grpc.StatusCode.DEADLINE_EXCEEDED)
                self.assertIn(f"the deadline of workflow '{flow.id}' (300ms after its first request) passed", error.message)
                self.assertIn(awaited, error.message)
            error = await self.error_of(client.attach(flow.id).agent("late", "x", sampling=GREEDY).result)
            self.assertIs(error.code, grpc.StatusCode.DEADLINE_EXCEEDED)

    async def test_a_workflow_stops_at_its_token_limit(self):
        for client in self.clients():
            flow = client.workflow("w", max_tokens=20)
            for _ in range(2):
                self.assertEqual(len((await settled(flow.agent("a", "x", sampling=GREEDY).result())).token_ids), 8)
            error = await self.error_of(flow.agent("a", "Once upon a time", sampling=LONG).result)
            self.assertIs(error.code, grpc.StatusCode.FAILED_PRECONDITION)
            self.assertIn(f"workflow '{flow.id}' has generated", error.message)
            self.assertIsNone(error.retry_after)
            self.assertGreaterEqual(len(error.partial.token_ids), 4)
            error = await self.error_of(flow.agent("late", "x", sampling=GREEDY).result)
            self.assertIs(error.code, grpc.StatusCode.FAILED_PRECONDITION)

    async def test_limits_over_http(self):
        body = {"prompt": "Once upon a time", "workflow": "http", "workflow_limits": {"max_tokens": 3}, "ignore_eos": True,
                "max_tokens": 400, "temperature": 0}
        request = urllib.request.Request(f"{self.server.http}/v1/completions", json.dumps(body).encode(),
                                         {"content-type": "application/json"})
        with self.assertRaises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request)
        with caught.exception as answer:
            self.assertEqual(answer.code, 400)
            self.assertIsNone(answer.headers["retry-after"])
            error = json.load(answer)["error"]
        self.assertEqual(error["code"], "failed_precondition")
        self.assertTrue(error["partial"][0]["text"])

    # --- tasks of asyncio ------------------------------------------------------------------------

    def waiting_run(self):
        # A run that is not cancelled fails its test at the deadline.
        flow = self.async_client.workflow("w", Options(timeout=20))
        return flow.agent("a", "Read ", flow.announce("never"), sampling=GREEDY)

    def waiting_value(self):
        async def endless():
            yield "half"
            await asyncio.Event().wait()

        return self.async_client.workflow("w", Options(timeout=20)).value("tool", endless())

    async def cancel(self, task):
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def assert_cancelled(self, run):
        self.assertIs((await self.error_of(run.result)).code, grpc.StatusCode.CANCELLED)

    async def test_a_cancelled_task_cancels_the_run_that_it_awaits(self):
        async def read(run):
            async for _ in run.chunks():
                pass

        async def result(run):
            await run.result()

        for start, awaits in ((self.waiting_run, result), (self.waiting_run, read), (self.waiting_value, result)):
            run = start()
            task = asyncio.create_task(awaits(run))
            await asyncio.sleep(0)
            await self.cancel(task)
            await self.assert_cancelled(run)

    async def test_a_cancelled_task_cancels_the_runs_that_it_has_started(self):
        runs = []

        async def agent():
            runs.extend((self.waiting_run(), self.waiting_run(), self.waiting_value()))
            await asyncio.Event().wait()

        task = asyncio.create_task(agent())
        await asyncio.sleep(0)
        await self.cancel(task)
        for run in runs:
            await self.assert_cancelled(run)

    async def test_a_run_goes_on_while_another_task_awaits_it(self):
        for run in (self.waiting_run(), self.waiting_value()):
            first, second = (asyncio.create_task(run.result()) for _ in range(2))
            await asyncio.sleep(0)
            await self.cancel(first)
            self.assertFalse(run.over)
            await self.cancel(second)
            await self.assert_cancelled(run)

    async def test_a_shielded_run_goes_on_after_a_timeout(self):
        run = self.waiting_run()
        waits = asyncio.create_task(run.result())
        for wait in (asyncio.shield(waits), run.result()):
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(wait, 0.01)
            self.assertFalse(run.over)
        run.cancel()
        await self.assert_cancelled(run)
        await asyncio.gather(waits, return_exceptions=True)

    async def test_a_failed_task_group_cancels_its_runs(self):
        runs = [self.waiting_run() for _ in range(2)]

        async def fail():
            raise ValueError

        if not hasattr(asyncio, "TaskGroup"):
            self.skipTest("Python 3.10 has no TaskGroup")
        with self.assertRaises(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                for run in runs:
                    group.create_task(run.result())
                group.create_task(fail())
        for run in runs:
            await self.assert_cancelled(run)

    async def test_an_exception_cancels_the_runs_of_its_workflow(self):
        with self.assertRaises(ValueError), self.client.workflow("w", Options(timeout=20)) as flow:
            run = flow.agent("a", "Read ", flow.announce("never"), sampling=GREEDY)
            raise ValueError
        await self.assert_cancelled(run)

        if not hasattr(asyncio, "timeout"):
            self.skipTest("Python 3.10 has no asyncio.timeout")
        # This task goes on, and it does not await the run when the time is over.
        with self.assertRaises(asyncio.TimeoutError):
            async with asyncio.timeout(0.01), self.async_client.workflow("w", Options(timeout=20)) as flow:
                run = flow.agent("a", "Read ", flow.announce("never"), sampling=GREEDY)
                await asyncio.Event().wait()
        await self.assert_cancelled(run)

    async def test_a_workflow_that_is_left_without_an_exception_goes_on(self):
        with self.client.workflow("w") as flow:
            run = flow.agent("a", "x", sampling=GREEDY)
        self.assertEqual(run.result().finish_reason, "length")
        async with self.async_client.workflow("w") as flow:
            run = flow.agent("a", "x", sampling=GREEDY)
        self.assertEqual((await run.result()).finish_reason, "length")

    async def test_a_task_keeps_no_finished_run(self):
        run = self.async_client.workflow("w").agent("a", "x", sampling=GREEDY)
        await run.result()
        kept = weakref.ref(run)
        del run
        for _ in range(100):  # until the task that reads the response has ended
            gc.collect()
            await asyncio.sleep(0)
        self.assertIsNone(kept())

    async def test_max_tokens_of_an_agent_is_deprecated_and_works(self):
        for client in self.clients():
            with self.assertWarnsRegex(DeprecationWarning, r"Sampling\(max_tokens=\.\.\.\)") as caught:
                run = client.workflow("w").agent("a", "x", max_tokens=3, sampling=GREEDY)
            self.assertEqual(caught.filename, __file__)
            self.assertEqual(len((await settled(run.result())).token_ids), 3)


if __name__ == "__main__":
    unittest.main()
