"""Values: outputs that the program itself writes, such as a tool's result or a user's words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from typing import Any, Union, cast

import grpc

from .building import draw_id
from .errors import BatonError, from_rpc
from .messages import MESSAGES
from .prompts import Announced, Options, TokenIds
from .task_watch import TaskWatch

# A text or token ids, whole or in parts. All parts are of one kind.
Content = Union[str, TokenIds, Iterable[Union[str, TokenIds]]]
AsyncContent = Union[Content, AsyncIterable[Union[str, TokenIds]]]


class Parts:
    """Makes the messages of one value."""

    def __init__(self, workflow: str, agent: str | Announced, options: Options):
        name = agent.agent if isinstance(agent, Announced) else agent
        self.id = agent.id if isinstance(agent, Announced) else draw_id(name or "value")
        self._names: dict[str, str] = {"request_id": self.id, "workflow": workflow, "agent": name,
                                       "cache_salt": options.cache_salt or ""}
        self._model = options.model
        # Why the content ended early.
        self.cause: Exception | None = None

    def message(self, part: str | TokenIds) -> Any:
        """Returns the message of a part. The first message also has the names.

        After an exception, the next message has them."""
        names = self._names
        if isinstance(part, str):
            message = MESSAGES["PutOutputRequest"](text=part, **names)
        elif not isinstance(part, TokenIds):
            raise TypeError(f"a value has texts or TokenIds, not {type(part).__name__}")
        elif names and not self._model:
            raise ValueError("token ids need the name of their model (Options.model)")
        else:
            model = {"model": self._model} if names else {}
            message = MESSAGES["PutOutputRequest"](token_ids=part.ids, **names, **model)
        self._names = {}
        return message

    def last(self) -> Iterator[Any]:
        """Yields the message after the last part, if one is needed."""
        if self.cause is not None:
            names, self._names = self._names, {}
            yield MESSAGES["PutOutputRequest"](error=self.reason(), **names)
        elif self._names:  # a value without parts is empty
            yield self.message("")

    def reason(self) -> str:
        # The server accepts 1,024 bytes.
        return f"{type(self.cause).__name__}: {self.cause}".encode()[:1024].decode(errors="ignore")

    def check(self) -> None:
        """Raises BatonError if the content raised an exception."""
        if self.cause is not None:
            raise BatonError(grpc.StatusCode.ABORTED, self.reason()) from self.cause

    def all(self, content: Content) -> Iterator[Any]:
        """Yields all messages. If the content raises an exception, the value fails."""
        try:
            for part in (content,) if isinstance(content, (str, TokenIds)) else content:
                yield self.message(part)
        except Exception as error:
            self.cause = error
        yield from self.last()

    async def all_async(self, content: AsyncContent) -> AsyncIterator[Any]:
        """As all(), also for a content that is produced asynchronously."""
        if isinstance(content, (str, Sequence, TokenIds)):
            for message in self.all(content):
                yield message
            return
        try:
            async for part in content if isinstance(content, AsyncIterable) else in_thread(content):
                yield self.message(part)
        except Exception as error:
            self.cause = error
        for message in self.last():
            yield message


async def in_thread(content: Iterable[str | TokenIds]) -> AsyncIterator[str | TokenIds]:
    """Yields the parts of a content whose iterator may block."""
    parts, end = iter(content), object()
    while (part := await asyncio.to_thread(next, parts, end)) is not end:
        yield cast(Union[str, TokenIds], part)


def check(content: Any) -> None:
    """Raises TypeError at the call for a content that is certainly wrong, such as bytes."""
    iterable = isinstance(content, (Iterable, AsyncIterable)) and not isinstance(content, (bytes, bytearray))
    if not isinstance(content, (str, TokenIds)) and not iterable:
        raise TypeError(f"a value has texts or TokenIds, not {type(content).__name__}")


class Value:
    """A value that Workflow.value() sends. Prompts may contain it, as they contain a run.

    A thread of gRPC sends it, so that the caller never waits."""

    def __init__(self, call: Any, parts: Parts):
        self._call = call
        self._parts = parts
        # gRPC cancels a call to which no reference is left. This one keeps the call until its end.
        call.add_done_callback(self._ended)

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

    def _ended(self, _: Any) -> None:
        pass


class AsyncValue:
    """A value that AsyncWorkflow.value() sends. Prompts may contain it, as they contain a run.

    It is cancelled with its tasks, as an AsyncRun is."""

    def __init__(self, call: Any, parts: Parts):
        self._call = call
        self._parts = parts
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
