"""Cancels calls to the server together with the asyncio tasks that need them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any


class TaskWatch:
    """Cancels one call with its tasks.

    The call is cancelled if a task is cancelled that awaits it or has started it, unless another
    task awaits it. The task that makes the object has started the call."""

    def __init__(self, cancel: Callable[[], None]):
        self._cancel = cancel
        self._awaiting = 0  # number of tasks
        self._owner = asyncio.current_task()
        if self._owner is not None:
            self._owner.add_done_callback(self._on_owner_done)

    @contextlib.contextmanager
    def awaited(self) -> Iterator[None]:
        """The present task awaits the call inside this context."""
        self._awaiting += 1
        try:
            yield
        except asyncio.CancelledError:
            if self._awaiting == 1:
                self._cancel()
            raise
        finally:
            self._awaiting -= 1

    def end(self) -> None:
        """The call is over. The task keeps no reference to it."""
        if self._owner is not None:
            self._owner.remove_done_callback(self._on_owner_done)
            self._owner = None

    def _on_owner_done(self, owner: asyncio.Task[Any]) -> None:
        if owner.cancelled() and not self._awaiting:
            self._cancel()
