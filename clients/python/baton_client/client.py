"""The synchronous client. Every object of it may be used from any thread."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import grpc

from . import building, results
from .connection import CHANNEL_OPTIONS, Stub, call_metadata, credentials, deadline
from .errors import BatonError, from_rpc
from .messages import MESSAGES
from .prompts import Announced, Message, Options, Part, Sampling


class Run:
    """One agent's request, which runs from its making. Another's prompt may contain it.

    A thread of its own reads what comes, so that nothing stalls where nobody looks."""

    def __init__(self, call: Any, id: str):
        self._id = id
        self._call = call
        self._changed = threading.Condition()  # guards what follows
        self._chunks: list[results.Chunk] = []
        self._result: results.Result | None = None
        self._error: BatonError | None = None
        self._times = {"started": time.monotonic()}
        threading.Thread(target=self._read, name=f"baton {id}", daemon=True).start()

    @property
    def id(self) -> str:
        return self._id

    @property
    def over(self) -> bool:
        with self._changed:
            return self._ended()

    @property
    def known(self) -> bool:
        with self._changed:
            return bool(self._chunks) or self._ended()

    @property
    def times(self) -> dict[str, float]:
        """Seconds of time.monotonic(): "started", and as they come "first_token" and "ended"."""
        with self._changed:
            return dict(self._times)

    def chunks(self) -> Iterator[results.Chunk]:
        """All that comes, from the beginning, whoever else reads it. Raises BatonError where the run fails."""
        index = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: len(self._chunks) > index or self._ended())
                if index == len(self._chunks):
                    break
                chunk = self._chunks[index]
            index += 1
            yield chunk
        self.result()

    def stream(self) -> Iterator[str]:
        """The text, piece by piece, from the beginning. Raises BatonError where the run fails."""
        return (chunk.text for chunk in self.chunks() if chunk.text)

    def result(self, timeout: float | None = None) -> results.Result:
        """Waits for the end. Raises BatonError where the run failed or was cancelled, TimeoutError after so many seconds."""
        with self._changed:
            if not self._changed.wait_for(self._ended, timeout):
                raise TimeoutError(f"{self._id} still runs after {timeout} s")
            if self._error is not None:
                raise self._error
            assert self._result is not None
            return self._result

    def cancel(self) -> None:
        """Gives back all that it holds on the server; what waits for its output fails, unless it says otherwise."""
        self._call.cancel()

    def _ended(self) -> bool:
        return self._result is not None or self._error is not None

    def _read(self) -> None:
        error: BatonError | None = BatonError(grpc.StatusCode.UNKNOWN, "the stream ended without a result")
        final = None
        try:
            for response in self._call:
                if response.HasField("final"):
                    final, error = response.final, None
                with self._changed:
                    if response.token_ids:
                        self._times.setdefault("first_token", time.monotonic())
                    self._chunks.append(results.read_chunk(response))
                    self._changed.notify_all()
        except grpc.RpcError as rpc_error:
            error = from_rpc(rpc_error)
        with self._changed:
            self._times["ended"] = time.monotonic()
            self._error = error
            if error is None:
                self._result = results.read_result(self._id, self._chunks, final)
            self._changed.notify_all()


class Workflow:
    """Cooperating agents. What they are asked may be submitted all at once: each waits for what its prompt refers to."""

    def __init__(self, client: Client, id: str, options: Options):
        self.id = id  # what `baton trace` knows it by
        self._options = building.WorkflowOptions(options)
        self._client = client
        self._lock = threading.Lock()  # guards what follows
        self._runs: weakref.WeakSet[Run] = weakref.WeakSet()  # a run that is not over is kept by its thread

    def agent(self, agent: str | Announced, *prompt: Part | Message, max_tokens: int | None = None,
              sampling: Sampling | None = None, options: Options | None = None, tools: Sequence[Any] = ()) -> Run:
        """Submits a request and returns at once. `agent` is its name, or what `announce` returned.

        The prompt is texts, TokenIds, runs and OutputOf, or Messages of a chat. A chat may have `tools`, in OpenAI's form.
        A field of `options` that is None has the workflow's value. The run raises errors, except TypeError and ValueError:
        this call raises them for a prompt or an option that cannot be sent, and for a client that is closed."""
        merged = self._options.merge(options)
        request = building.generate_request(self.id, agent, prompt, merged, sampling, max_tokens, tools)
        run = self._client._start(request, merged.timeout)
        with self._lock:
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
        with self._lock:
            runs = list(self._runs)
        for run in runs:
            run.cancel()

    def prefill_only(self, *prompt: Part | Message, options: Options | None = None) -> results.Prefilled:
        """Computes a prompt ahead, or adds it to options.context_id. Raises BatonError."""
        merged = self._options.merge(options)
        request = building.prefill_request(self.id, prompt, merged)
        return results.read_prefilled(self._client._call(self._client._stub.prefill_only, request, merged.timeout))

    def trace(self) -> results.Trace:
        """The requests of this workflow, with the times of their phases. Raises BatonError; NOT_FOUND: it has none.

        It asks the server once for each cache salt that the requests have used."""
        found, missing = [], None
        for salt in self._options.trace_salts():
            try:
                found.append(self._client._call(self._client._stub.trace, building.trace_request(self.id, salt), None))
            except BatonError as error:
                if error.code is not grpc.StatusCode.NOT_FOUND:
                    raise
                missing = error
        if missing is not None and not found:
            raise missing
        return results.read_traces(found)


class Client:
    """A server, at "host:port". Closing it cancels what runs.

    `ca`: a PEM file; with it, or with `tls`, the connection is encrypted. A key without it is sent in the clear.
    Raises OSError where `ca` cannot be read; whether the server is there shows with the first call."""

    def __init__(self, address: str, api_key: str | None = None, ca: str | os.PathLike[str] | None = None,
                 tls: bool = False):
        secure = credentials(ca, tls)
        self._channel = (grpc.insecure_channel(address, CHANNEL_OPTIONS) if secure is None
                         else grpc.secure_channel(address, secure, CHANNEL_OPTIONS))
        self._stub = Stub(self._channel)
        self._metadata = call_metadata(api_key)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Breaks off what is not over, also a run whose end is still on its way: who wants its result waits for that before."""
        self._channel.close()

    def workflow(self, name: str, options: Options = Options()) -> Workflow:
        """A new run of the workflow `name`. Nothing is sent yet."""
        return Workflow(self, building.draw_id(name), options)

    def models(self) -> list[results.Model]:
        """What the server serves. Raises BatonError."""
        return results.read_models(self._call(self._stub.list_models, MESSAGES["ListModelsRequest"](), None))

    def _start(self, request: Any, timeout: float | None) -> Run:
        return Run(self._stub.generate(request, timeout=deadline(timeout), metadata=self._metadata), request.request_id)

    def _call(self, method: Any, request: Any, timeout: float | None) -> Any:
        try:
            return method(request, timeout=deadline(timeout), metadata=self._metadata)
        except grpc.RpcError as error:
            raise from_rpc(error) from None
