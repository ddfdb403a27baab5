"""The client for asyncio. Its objects belong to the event loop in which they were made."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc

from . import building, results
from .connection import CHANNEL_OPTIONS, Stub, call_metadata, credentials, deadline
from .errors import BatonError, from_rpc
from .messages import MESSAGES
from .prompts import Announced, Message, Options, Part, Sampling


class AsyncRun:
    """One agent's request, which runs from its making. Another's prompt may contain it.

    A task of its own reads what comes, so that nothing stalls where nobody looks."""

    def __init__(self, call: Any, id: str):
        self._id = id
        self._call = call
        self._changed = asyncio.Condition()
        self._chunks: list[results.Chunk] = []
        self._result: results.Result | None = None
        self._error: BatonError | None = None
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
        """All that comes, from the beginning, whoever else reads it. Raises BatonError where the run fails."""
        index = 0
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: len(self._chunks) > index or self.over)
            if index == len(self._chunks):
                break
            index += 1
            yield self._chunks[index - 1]
        await self.result()

    async def stream(self) -> AsyncIterator[str]:
        """The text, piece by piece, from the beginning. Raises BatonError where the run fails."""
        async for chunk in self.chunks():
            if chunk.text:
                yield chunk.text

    async def result(self) -> results.Result:
        """Waits for the end. Raises BatonError where the run failed or was cancelled. Bound it by asyncio.wait_for, which
        leaves the run alone."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.over)
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    def cancel(self) -> None:
        """Gives back all that it holds on the server; what waits for its output fails, unless it says otherwise."""
        self._call.cancel()

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
        except asyncio.CancelledError:  # as gRPC says that the call was cancelled here
            error = BatonError(grpc.StatusCode.CANCELLED, "cancelled by this client")
        self._error = error
        if error is None:
            self._result = results.read_result(self._id, self._chunks, final)
        async with self._changed:
            self._changed.notify_all()


class AsyncWorkflow:
    """Cooperating agents. What they are asked may be submitted all at once: each waits for what its prompt refers to."""

    def __init__(self, client: AsyncClient, id: str, options: Options):
        self.id = id  # what `baton trace` knows it by
        self._options = building.WorkflowOptions(options)
        self._client = client
        self._runs: weakref.WeakSet[AsyncRun] = weakref.WeakSet()  # a run that is not over is kept by the client

    def agent(self, agent: str | Announced, *prompt: Part | Message, max_tokens: int | None = None,
              sampling: Sampling | None = None, options: Options | None = None, tools: Sequence[Any] = ()) -> AsyncRun:
        """As Workflow.agent: submits a request and returns at once. Wants a running event loop."""
        merged = self._options.merge(options)
        request = building.generate_request(self.id, agent, prompt, merged, sampling, max_tokens, tools)
        run = self._client._start(request, merged.timeout)
        self._runs.add(run)
        return run

    @property
    def options(self) -> Options:
        """A run has these values where its own are None."""
        return self._options.defaults

    def announce(self, agent: str) -> Announced:
        """An agent whose output may stand in prompts before it is submitted."""
        return Announced(building.draw_id(agent), agent)

    def cancel(self) -> None:
        """Cancels all runs that were submitted by it. It may be used on."""
        for run in list(self._runs):
            run.cancel()

    async def prefill_only(self, *prompt: Part | Message, options: Options | None = None) -> results.Prefilled:
        """Computes a prompt ahead, or adds it to options.context_id. Raises BatonError."""
        merged = self._options.merge(options)
        request = building.prefill_request(self.id, prompt, merged)
        return results.read_prefilled(await self._client._call(self._client._stub.prefill_only, request, merged.timeout))

    async def trace(self) -> results.Trace:
        """The requests of this workflow, with the times of their phases. Raises BatonError; NOT_FOUND: it has none.

        It asks the server once for each cache salt that the requests have used."""
        found, missing = [], None
        for salt in self._options.trace_salts():
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
    """As Client, for asyncio. Make it where an event loop runs. Closing it cancels what runs."""

    def __init__(self, address: str, api_key: str | None = None, ca: str | os.PathLike[str] | None = None,
                 tls: bool = False):
        secure = credentials(ca, tls)
        self._channel = (grpc.aio.insecure_channel(address, CHANNEL_OPTIONS) if secure is None
                         else grpc.aio.secure_channel(address, secure, CHANNEL_OPTIONS))
        self._stub = Stub(self._channel)
        self._metadata = call_metadata(api_key)
        self._readers: set[asyncio.Task[None]] = set()  # asyncio itself keeps no task alive

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Breaks off what is not over, also a run whose end is still on its way: who wants its result waits for that before."""
        await self._channel.close()

    def workflow(self, name: str, options: Options = Options()) -> AsyncWorkflow:
        """A new run of the workflow `name`. Nothing is sent yet."""
        return AsyncWorkflow(self, building.draw_id(name), options)

    async def models(self) -> list[results.Model]:
        """What the server serves. Raises BatonError."""
        return results.read_models(await self._call(self._stub.list_models, MESSAGES["ListModelsRequest"](), None))

    def _start(self, request: Any, timeout: float | None) -> AsyncRun:
        run = AsyncRun(self._stub.generate(request, timeout=deadline(timeout), metadata=self._metadata), request.request_id)
        self._readers.add(run._reader)
        run._reader.add_done_callback(self._readers.discard)
        return run

    async def _call(self, method: Any, request: Any, timeout: float | None) -> Any:
        try:
            return await method(request, timeout=deadline(timeout), metadata=self._metadata)
        except grpc.RpcError as error:
            raise from_rpc(error) from None
