"""The client for asyncio. An object may be used only in the event loop in which it was made."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import grpc

from . import building, results
from .calls import AsyncCalls
from .connection import CHANNEL_OPTIONS, Stub, call_metadata, credentials, deadline
from .errors import BatonError, from_rpc
from .messages import MESSAGES
from .prompts import Announced, Message, Options, Part, Sampling
from .task_watch import TaskWatch
from .values import AsyncContent, AsyncValue, Parts


class AsyncRun:
    """A running request of one agent. The prompts of other agents may contain it.

    The request starts when the object is made. A task reads the response, so that the server never
    waits for the caller. Cancellation of a task cancels its runs: the run is cancelled if a task is
    cancelled that awaits it or has started it, unless another task awaits it."""

    def __init__(self, call: Any, id: str):
        self._id = id
        self._call = call
        self._changed = asyncio.Condition()
        self._chunks: list[results.Chunk] = []
        self._result: results.Result | None = None
        self._error: BatonError | None = None
        self._watch = TaskWatch(self.cancel)
        self._reader = asyncio.create_task(self._read(), name=f"baton {id}")

    @property
    def id(self) -> str:
        return self._id

    @property
    def over(self) -> bool:
        return self._result is not None or self._error is not None

    @property
    def known(self) -> bool:
        return bool(self._chunks) or self.over

    async def chunks(self) -> AsyncIterator[results.Chunk]:
        """Yields all chunks of the response. Each iterator begins with the first chunk.

        Raises BatonError if the run fails."""
        index = 0
        while True:
            await self._wait(lambda: len(self._chunks) > index or self.over)
            if index == len(self._chunks):
                break
            index += 1
            yield self._chunks[index - 1]
        await self.result()

    async def stream(self) -> AsyncIterator[str]:
        """Yields the text in pieces, from its beginning. Raises BatonError if the run fails."""
        async for chunk in self.chunks():
            if chunk.text:
                yield chunk.text

    async def result(self) -> results.Result:
        """Waits for the end of the run and returns its result.

        Raises BatonError if the run failed or was cancelled. Its `partial` has the output so far. A
        timeout of asyncio.wait_for() or asyncio.timeout() cancels the run too.
        asyncio.shield(run.result()) lets it go on."""
        await self._wait(lambda: self.over)
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    def cancel(self) -> None:
        """Cancels the run. The server frees its resources.

        Downstream requests fail, unless their OutputOf sets another `on_failure`."""
        self._call.cancel()

    async def _wait(self, condition: Callable[[], bool]) -> None:
        with self._watch.awaited():
            async with self._changed:
                await self._changed.wait_for(condition)

    async def _read(self) -> None:
        error: BatonError | None = BatonError(grpc.StatusCode.UNKNOWN, "the stream ended without a result")
        final = None
        try:
            async for response in self._call:
                if response.HasField("final"):
                    final, error = response.final, None
                async with self._changed:
                    self._chunks.append(results.read_chunk(response))
                    self._changed.notify_all()
        except grpc.RpcError as rpc_error:
            error = from_rpc(rpc_error)
        # gRPC raises this if this client cancelled the call.
        except asyncio.CancelledError:
            error = BatonError(grpc.StatusCode.CANCELLED, "cancelled by this client")
        self._error = error
        if error is not None:
            error.partial = results.read_partial(self._chunks)
        else:
            self._result = results.read_result(self._id, self._chunks, final)
        self._watch.end()
        async with self._changed:
            self._changed.notify_all()


class AsyncWorkflow:
    """A run of cooperating agents.

    All requests may be submitted at once. A request waits on the server for the outputs that its
    prompt refers to. At an exception inside `async with workflow`, cancel() is called."""

    def __init__(self, client: AsyncClient, id: str, options: Options, deadline: float | None, max_tokens: int | None):
        # The name of this workflow for `baton trace`.
        self.id = id
        self._options = building.WorkflowOptions(options, deadline, max_tokens)
        self._client = client
        # The client keeps a reference to each unfinished run.
        self._runs: weakref.WeakSet[AsyncRun | AsyncValue] = weakref.WeakSet()

    async def __aenter__(self) -> AsyncWorkflow:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.cancel()

    def agent(self, agent: str | Announced, *prompt: Part | Message, max_tokens: int | None = None,
              sampling: Sampling | None = None, options: Options | None = None, tools: Sequence[Any] = ()) -> AsyncRun:
        """Submits a request and returns at once.

        The arguments and errors are those of Workflow.agent(). REQUIRES: an event loop runs."""
        merged = self._options.merge(options)
        request = self._options.limit(
            building.generate_request(self.id, agent, prompt, merged, sampling, max_tokens, tools))
        run = self._client._start(request, merged.timeout)
        self._runs.add(run)
        return run

    def value(self, agent: str | Announced, content: AsyncContent, options: Options | None = None) -> AsyncValue:
        """Writes an output that no model makes, and returns at once. Prompts may contain it.

        `agent` is a name such as "tool", or a result of announce(), which the value then fulfils.
        `content` is a text, TokenIds of the model that the options name, or an iterator, also an
        asynchronous one, of either, which is sent as it comes. A thread waits for each part of an
        ordinary iterator. If the content raises an exception, the value fails, and the requests
        that need it receive the text of the exception. `options` may set cache_salt, timeout and
        model. An iterator of TokenIds needs the model in these options, because the workflow's
        model does not apply to it.

        Raises TypeError or ValueError if the content is of another type or a name cannot be sent.
        AsyncValue.result() raises all other errors. REQUIRES: an event loop runs."""
        merged = self._options.merge(options)
        parts = Parts(self.id, agent, content, merged, options or Options())
        self._options.limit(parts.first)
        value = self._client._put(parts, merged.timeout)
        self._runs.add(value)
        return value

    @property
    def options(self) -> Options:
        """The default options of the workflow's runs. A run uses them for fields that are None."""
        return self._options.defaults

    def announce(self, agent: str) -> Announced:
        """Returns a reference to an agent that is submitted later. Prompts may contain it."""
        return Announced(building.draw_id(agent), agent)

    def cancel(self) -> None:
        """Cancels all runs and values of this object. It can still submit new ones."""
        for run in list(self._runs):
            run.cancel()

    async def cancel_all(self) -> int:
        """Cancels all live requests of the workflow, also those of other processes.

        Returns how many the server had. Requests that arrive at the server later are not
        cancelled. Calls the server once for each cache salt of the requests, and then cancel().
        Raises BatonError."""
        cancelled = 0
        for salt in self._options.salts():
            response = await self._client._call(self._client._stub.cancel_workflow, building.cancel_request(self.id, salt), None)
            cancelled += response.cancelled_requests
        self.cancel()
        return cancelled

    async def prefill_only(self, *prompt: Part | Message, options: Options | None = None) -> results.Prefilled:
        """Computes the KV of a prompt before a request needs it.

        With options.context_id, it appends the prompt to that context. Raises BatonError."""
        merged = self._options.merge(options)
        request = self._options.limit(building.prefill_request(self.id, prompt, merged))
        return results.read_prefilled(await self._client._call(self._client._stub.prefill_only, request, merged.timeout))

    async def trace(self) -> results.Trace:
        """Returns the requests of this workflow with the times of their phases.

        Calls the server once for each cache salt of the requests. Raises BatonError. The code is
        NOT_FOUND if the server has no request of this workflow."""
        found, missing = [], None
        for salt in self._options.salts():
            try:
                found.append(await self._client._call(self._client._stub.trace, building.trace_request(self.id, salt), None))
            except BatonError as error:
                if error.code is not grpc.StatusCode.NOT_FOUND:
                    raise
                missing = error
        if missing is not None and not found:
            raise missing
        return results.read_traces(found)


class AsyncClient:
    """A connection to a server for asyncio. The arguments and errors are those of Client.

    REQUIRES: an event loop runs when the client is made. close() cancels unfinished runs."""

    def __init__(self, address: str, api_key: str | None = None, ca: str | os.PathLike[str] | None = None,
                 tls: bool = False):
        secure = credentials(ca, tls)
        self._channel = (grpc.aio.insecure_channel(address, CHANNEL_OPTIONS) if secure is None
                         else grpc.aio.secure_channel(address, secure, CHANNEL_OPTIONS))
        self._stub = Stub(self._channel)
        self._metadata = call_metadata(api_key)
        self._calls = AsyncCalls(self._stub.put_output, self._metadata)
        # asyncio itself keeps no reference to a task.
        self._readers: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Cancels unfinished runs and closes the connection.

        It also cancels a run whose end has not arrived yet. A caller that needs the result must
        await result() first."""
        try:
            await self._calls.close()
        finally:
            await self._channel.close()

    def workflow(self, name: str, options: Options = Options(), *, deadline: float | None = None,
                 max_tokens: int | None = None) -> AsyncWorkflow:
        """Starts a run of the workflow `name`. Sends nothing to the server.

        `deadline` is in seconds since the server received the first request. When it passes, all
        runs of the workflow end with DEADLINE_EXCEEDED. `max_tokens` bounds the generated tokens of
        all runs. When it is reached, the runs that are not complete end with FAILED_PRECONDITION.
        Later runs are refused with the same error."""
        return AsyncWorkflow(self, building.draw_id(name), options, deadline, max_tokens)

    def attach(self, id: str, options: Options = Options(), *, deadline: float | None = None,
               max_tokens: int | None = None) -> AsyncWorkflow:
        """Returns the workflow with this id. Another process may have started it.

        Runs of this object join its traces. cancel() cancels only the runs of this object, and
        cancel_all() all of the workflow. The limits can only lower those that it has."""
        return AsyncWorkflow(self, id, options, deadline, max_tokens)

    async def models(self) -> list[results.Model]:
        """Returns the models that the server serves. Raises BatonError."""
        return results.read_models(await self._call(self._stub.list_models, MESSAGES["ListModelsRequest"](), None))

    def _start(self, request: Any, timeout: float | None) -> AsyncRun:
        self._calls.check_open()
        call = self._stub.generate(request, timeout=deadline(timeout), metadata=self._metadata)
        self._calls.watch(call, request)
        run = AsyncRun(call, request.request_id)
        self._keep(run._reader)
        return run

    def _put(self, parts: Parts, timeout: float | None) -> AsyncValue:
        self._calls.check_open()
        call = self._stub.put_output(parts.all_async(), timeout=deadline(timeout), metadata=self._metadata)
        self._calls.watch(call, parts.first)
        value = AsyncValue(call, parts)
        self._keep(value._reader)
        return value

    def _keep(self, reader: asyncio.Task[None]) -> None:
        self._readers.add(reader)
        reader.add_done_callback(self._readers.discard)

    async def _call(self, method: Any, request: Any, timeout: float | None) -> Any:
        try:
            return await method(request, timeout=deadline(timeout), metadata=self._metadata)
        except grpc.RpcError as error:
            raise from_rpc(error) from None
