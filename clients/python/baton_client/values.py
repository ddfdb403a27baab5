"""Values: outputs that the program itself writes, such as a tool's result or a user's words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from typing import Any, Union, cast

import grpc

from .building import draw_id
from .calls import until_received
from .errors import BatonError, from_rpc
from .messages import MESSAGES
from .prompts import Announced, Options, TokenIds
from .task_watch import TaskWatch

# A text or token ids, whole or in parts. All parts are of one kind.
Content = Union[str, TokenIds, Iterable[Union[str, TokenIds]]]
AsyncContent = Union[Content, AsyncIterable[Union[str, TokenIds]]]


class Parts:
    """Makes the messages of one value.

    Raises TypeError for a content that is certainly wrong, such as bytes, and ValueError for names
    that cannot be sent. A part that is wrong makes the value fail."""

    def __init__(self, workflow: str, agent: str | Announced, content: AsyncContent, options: Options, own: Options):
        """`own` are the options of the value without those of its workflow."""
        if not isinstance(content, (str, TokenIds, Iterable, AsyncIterable)) or isinstance(content, (bytes, bytearray)):
            raise TypeError(f"a value has texts or TokenIds, not {type(content).__name__}")
        self._content = content
        name = agent.agent if isinstance(agent, Announced) else agent
        self.id = agent.id if isinstance(agent, Announced) else draw_id(name or "value")
        # A message without content. It is sent before a content in parts has its first one. From
        # then on, the server ends the prompts that wait for the value together with it.
        self.first = MESSAGES["PutOutputRequest"](request_id=self.id, workflow=workflow, agent=name,
                                                  cache_salt=options.cache_salt)
        # A value with a model has token ids only. It is not known yet whether an iterator has them,
        # so the workflow's model does not apply to it.
        if not isinstance(content, str):
            self.first.model = (options if isinstance(content, TokenIds) else own).model or ""
        # Why the content ended early.
        self.cause: Exception | None = None
        # The call with these messages. Only all_async() needs it.
        self.call: Any = None

    def reason(self) -> str:
        # The server accepts 1,024 bytes. The text of an exception may have lone surrogates.
        text = f"{type(self.cause).__name__}: {self.cause}".encode(errors="backslashreplace")
        return text[:1024].decode(errors="ignore")

    def check(self) -> None:
        """Raises BatonError if the content raised an exception."""
        if self.cause is not None:
            raise BatonError(grpc.StatusCode.ABORTED, self.reason()) from self.cause

    def all(self) -> Iterator[Any]:
        """Yields all messages. REQUIRES: the content is not asynchronous."""
        content = cast(Content, self._content)
        if isinstance(content, (str, TokenIds)):
            yield self._whole(content)
            return
        yield self.first
        try:
            for part in content:
                yield self._message(part)
        except Exception as error:
            yield self._failure(error)

    async def all_async(self) -> AsyncIterator[Any]:
        """Yields all messages. A thread waits for each part of an ordinary iterator."""
        if isinstance(self._content, (str, TokenIds)):
            yield self._whole(self._content)
            return
        yield self.first
        # If the server refuses a call while grpc.aio writes, grpc.aio loses the error.
        await until_received(self.call)
        if self.call.done():  # the content does not begin
            return
        try:
            async for part in iterate(self._content):
                yield self._message(part)
        except Exception as error:
            yield self._failure(error)

    def _whole(self, content: str | TokenIds) -> Any:
        """Returns the only message of a content that is not in parts."""
        try:
            message = self._message(content)
        except Exception as error:
            message = self._failure(error)
        message.MergeFrom(self.first)
        return message

    def _message(self, part: str | TokenIds) -> Any:
        if isinstance(part, str):
            return MESSAGES["PutOutputRequest"](text=part)
        if not isinstance(part, TokenIds):
            raise TypeError(f"a value has texts or TokenIds, not {type(part).__name__}")
        if not self.first.model:
            raise ValueError("token ids need the name of their model (Options.model of the value)")
        return MESSAGES["PutOutputRequest"](token_ids=part.ids)

    def _failure(self, cause: Exception) -> Any:
        self.cause = cause
        return MESSAGES["PutOutputRequest"](error=self.reason())


async def iterate(content: Iterable[str | TokenIds] | AsyncIterable[str | TokenIds]) -> AsyncIterator[str | TokenIds]:
    """Yields the parts of a content. A thread waits for those of an iterator that may block."""
    if isinstance(content, AsyncIterable):
        async for part in content:
            yield part
    elif isinstance(content, Sequence):
        for part in content:
            yield part
    else:
        parts, end = iter(content), object()
        while (following := await asyncio.to_thread(next, parts, end)) is not end:
            yield cast(Union[str, TokenIds], following)


class Value:
    """A value that Workflow.value() sends. Prompts may contain it, as they contain a run.

    A thread of gRPC sends it, so that the caller never waits."""

    def __init__(self, call: Any, parts: Parts):
        self._call = call
        self._parts = parts

    @property
    def id(self) -> str:
        return self._parts.id

    @property
    def over(self) -> bool:
        return bool(self._call.done())

    @property
    def known(self) -> bool:
        return self.over

    def result(self, timeout: float | None = None) -> None:
        """Waits until the server has the whole value.

        Raises BatonError if it was refused, has failed or was cancelled. Its cause is the exception
        that the content raised, if there is one. Raises TimeoutError after `timeout` seconds."""
        try:
            self._call.result(timeout)
        except grpc.FutureTimeoutError:
            raise TimeoutError(f"{self.id} is not complete after {timeout} s") from None
        except grpc.FutureCancelledError:
            raise BatonError(grpc.StatusCode.CANCELLED, "cancelled by this client") from None
        except grpc.RpcError as error:
            raise from_rpc(error) from self._parts.cause
        self._parts.check()

    def cancel(self) -> None:
        """Breaks the value off. Downstream requests fail, as for a run."""
        self._call.cancel()


class AsyncValue:
    """A value that AsyncWorkflow.value() sends. Prompts may contain it, as they contain a run.

    It is cancelled with its tasks, as an AsyncRun is."""

    def __init__(self, call: Any, parts: Parts):
        self._call = call
        self._parts = parts
        parts.call = call
        self._error: BatonError | None = None
        self._watch = TaskWatch(self.cancel)
        self._reader = asyncio.create_task(self._read(), name=f"baton {parts.id}")

    @property
    def id(self) -> str:
        return self._parts.id

    @property
    def over(self) -> bool:
        return self._reader.done()

    @property
    def known(self) -> bool:
        return self.over

    async def result(self) -> None:
        """Waits until the server has the whole value. Raises BatonError as Value.result() does.

        A timeout of asyncio.wait_for() or asyncio.timeout() cancels the value too, as that of a
        run. asyncio.shield(value.result()) lets it go on."""
        with self._watch.awaited():
            await asyncio.shield(self._reader)
        if self._error is not None:
            raise self._error from self._parts.cause
        self._parts.check()

    def cancel(self) -> None:
        """Breaks the value off. Downstream requests fail, as for a run."""
        self._call.cancel()

    async def _read(self) -> None:
        try:
            await self._call
        except grpc.RpcError as error:
            self._error = from_rpc(error)
        # gRPC raises this if this client cancelled the call.
        except asyncio.CancelledError:
            self._error = BatonError(grpc.StatusCode.CANCELLED, "cancelled by this client")
        self._watch.end()
