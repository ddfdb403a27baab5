"""The unfinished calls of a client. A call that the server has not received is reported to it.

A program may cancel a run or a value before gRPC has sent it. The server then never receives its
id, and the prompts that announced the id would wait for two minutes. The report is a value with the
same names that has failed. If the server has had the id meanwhile, it ignores the report."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from typing import Any

import grpc

from .messages import MESSAGES

# The codes of a call that the client itself may have ended, and the errors of their reports.
_REASONS = {
    grpc.StatusCode.CANCELLED: "cancelled by this client before the server received it",
    grpc.StatusCode.DEADLINE_EXCEEDED: "the timeout passed before the server received it",
    # grpc.aio makes this code if the timeout passes while it writes.
    grpc.StatusCode.INTERNAL: "the call failed before the server received it",
}
# Seconds that a report may take. They also bound close().
_TIMEOUT = 2


def _report_of(request: Any) -> Any:
    """Returns a report without its error, for a request or the first message of a value."""
    return MESSAGES["PutOutputRequest"](request_id=request.request_id, workflow=request.workflow,
                                        agent=request.agent, cache_salt=request.cache_salt, if_unknown=True)


def _received(initial_metadata: Iterable[tuple[str, str | bytes]]) -> bool:
    """Returns whether the server has received a call. It then sends the id before all else."""
    return any(key == "x-request-id" for key, _ in initial_metadata)


async def until_received(call: Any) -> None:
    """Waits until the server has received a call of an AsyncClient, or the call has ended."""
    if not _received(await call.initial_metadata()):
        await call.code()


class Calls:
    """The unfinished calls of a Client, with their reports."""

    def __init__(self, put_output: Any, metadata: list[tuple[str, str]]):
        self._put_output = put_output
        self._metadata = metadata
        # Guards the fields after it.
        self._changed = threading.Condition()
        self._closed = False
        self._calls: set[Any] = set()
        # Ended calls with their reports, which one thread sends while there are any.
        self._ended: list[tuple[Any, Any]] = []
        self._reporting = False

    def watch(self, call: Any, request: Any) -> None:
        """Keeps a call until its end. gRPC cancels a call to which no reference is left.

        Raises ValueError if the client is closed."""
        report = _report_of(request)
        with self._changed:
            if self._closed:
                call.cancel()
                raise ValueError("the client is closed")
            self._calls.add(call)
        call.add_done_callback(lambda call: self._on_end(call, report))

    def close(self) -> None:
        """Cancels all calls and waits for their reports."""
        with self._changed:
            self._closed = True
            calls = list(self._calls)
        for call in calls:
            call.cancel()
        with self._changed:
            self._changed.wait_for(lambda: not self._calls, _TIMEOUT)

    def _on_end(self, call: Any, report: Any) -> None:
        if call.code() not in _REASONS:
            return self._drop(call)
        with self._changed:
            self._ended.append((call, report))
            if self._reporting:
                return
            self._reporting = True
        # A thread of gRPC runs this method. The metadata may arrive only after its return.
        try:
            threading.Thread(target=self._report_all, name="baton reports", daemon=True).start()
        except RuntimeError:  # the program ends
            self._report_all(only_drop=True)

    def _report_all(self, only_drop: bool = False) -> None:
        while True:
            with self._changed:
                if not self._ended:
                    self._reporting = False
                    return
                call, report = self._ended.pop(0)
            if not only_drop:
                self._report(call, report)
            self._drop(call)

    def _report(self, call: Any, report: Any) -> None:
        if _received(call.initial_metadata()):
            return
        report.error = _REASONS[call.code()]
        try:
            self._put_output(iter((report,)), timeout=_TIMEOUT, metadata=self._metadata)
        except (grpc.RpcError, ValueError):  # ValueError: the channel is closed
            pass

    def _drop(self, call: Any) -> None:
        with self._changed:
            self._calls.discard(call)
            self._changed.notify_all()


class AsyncCalls:
    """The unfinished calls of an AsyncClient, with their reports."""

    def __init__(self, put_output: Any, metadata: list[tuple[str, str]]):
        self._put_output = put_output
        self._metadata = metadata
        self._closed = False
        # By the task that waits for the end of the call. asyncio keeps no reference to a task.
        self._calls: dict[asyncio.Task[None], Any] = {}

    def check_open(self) -> None:
        """Raises ValueError if the client is closed."""
        if self._closed:
            raise ValueError("the client is closed")

    def watch(self, call: Any, request: Any) -> None:
        """Keeps a call until its end."""
        task = asyncio.create_task(self._follow(call, _report_of(request)))
        self._calls[task] = call
        task.add_done_callback(self._calls.pop)

    async def close(self) -> None:
        """Cancels all calls and waits for their reports."""
        self._closed = True
        for call in self._calls.values():
            call.cancel()
        if self._calls:
            await asyncio.wait(list(self._calls), timeout=_TIMEOUT)

    async def _follow(self, call: Any, report: Any) -> None:
        code = await call.code()
        if code not in _REASONS or _received(await call.initial_metadata()):
            return
        report.error = _REASONS[code]
        try:
            await self._put_output(iter((report,)), timeout=_TIMEOUT, metadata=self._metadata)
        except (grpc.RpcError, grpc.aio.UsageError):  # UsageError: the channel is closed
            pass
