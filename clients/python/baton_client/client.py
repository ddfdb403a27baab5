"""The synchronous client. Its objects may be used from any thread."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import grpc

from . import building, results
from .calls import Calls
from .connection import CHANNEL_OPTIONS, Stub, call_metadata, credentials, deadline
from .errors import BatonError, from_rpc
from .messages import MESSAGES
from .prompts import Announced, Message, Options, Part, Sampling
from .values import Content, Parts, Value


class Run:
    """A running request of one agent. The prompts of other agents may contain it.

    The request starts when the object is made. A thread reads the response, so that the server
    never waits for the caller."""

    def __init__(self, call: Any, id: str):
        self._id = id
        self._call = call
        # Guards the fields after it.
        self._changed = threading.Condition()
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
        """The times of events, in seconds of time.monotonic(), by name.

        The names are "started", "first_token" and "ended". An event appears when it happens."""
        with self._changed:
            return dict(self._times)

    def chunks(self) -> Iterator[results.Chunk]:
        """Yields all chunks of the response. Each iterator begins with the first chunk.

        Raises BatonError if the run fails."""
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
        """Yields the text in pieces, from its beginning. Raises BatonError if the run fails."""
        return (chunk.text for chunk in self.chunks() if chunk.text)

    def result(self, timeout: float | None = None) -> results.Result:
        """Waits for the end of the run and returns its result.

        Raises BatonError if the run failed or was cancelled. Its `partial` has the output so far.
        Raises TimeoutError after `timeout` seconds."""
        with self._changed:
            if not self._changed.wait_for(self._ended, timeout):
                raise TimeoutError(f"{self._id} still runs after {timeout} s")
            if self._error is not None:
                raise self._error
            assert self._result is not None
            return self._result

    def cancel(self) -> None:
        """Cancels the run. The server frees its resources.

        Downstream requests fail, unless their OutputOf sets another `on_failure`."""
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
            if error is not None:
                error.partial = results.read_partial(self._chunks)
            else:
                self._result = results.read_result(self._id, self._chunks, final)
            self._changed.notify_all()


class Workflow:
    """A run of cooperating agents.

    All requests may be submitted at once. A request waits on the server for the outputs that its
    prompt refers to. At an exception inside `with workflow`, cancel() is called."""

    def __init__(self, client: Client, id: str, options: Options, deadline: float | None, max_tokens: int | None):
        # The name of this workflow for `baton trace`.
        self.id = id
        self._options = building.WorkflowOptions(options, deadline, max_tokens)
        self._client = client
        # Guards _runs.
        self._lock = threading.Lock()
        # The thread of an unfinished run keeps a reference to it.
        self._runs: weakref.WeakSet[Run | Value] = weakref.WeakSet()

    def __enter__(self) -> Workflow:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.cancel()

    def agent(self, agent: str | Announced, *prompt: Part | Message, max_tokens: int | None = None,
              sampling: Sampling | None = None, options: Options | None = None, tools: Sequence[Any] = ()) -> Run:
        """Submits a request and returns at once.

        `agent` is the name of the agent, or a result of announce(). The prompt is a sequence of
        texts, TokenIds, runs and OutputOf, or a sequence of Messages. A chat may have `tools` in
        OpenAI's format. A field of `options` that is None has the workflow's value. `max_tokens` is
        the old form of Sampling.max_tokens. Version 0.2 drops it.

        Raises TypeError or ValueError if a prompt or an option cannot be sent, or if the client is
        closed. The methods of the run raise all other errors."""
        merged = self._options.merge(options)
        request = self._options.limit(
            building.generate_request(self.id, agent, prompt, merged, sampling, max_tokens, tools))
        run = self._client._start(request, merged.timeout)
        with self._lock:
            self._runs.add(run)
        return run

    def value(self, agent: str | Announced, content: Content, options: Options | None = None) -> Value:
        """Writes an output that no model makes, and returns at once. Prompts may contain it.

        `agent` is a name such as "tool", or a result of announce(), which the value then fulfils.
        `content` is a text, TokenIds of the model that the options name, or an iterator of either,
        which is sent as it comes. If the content raises an exception, the value fails, and the
        requests that need it receive the text of the exception. `options` may set cache_salt,
        timeout and model. An iterator of TokenIds needs the model in these options, because the
        workflow's model does not apply to it.

        Raises TypeError or ValueError if the content is of another type or a name cannot be sent.
        Value.result() raises all other errors."""
        merged = self._options.merge(options)
        parts = Parts(self.id, agent, content, merged, options or Options())
        self._options.limit(parts.first)
        value = self._client._put(parts, merged.timeout)
        with self._lock:
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
        with self._lock:
            runs = list(self._runs)
        for run in runs:
            run.cancel()

    def cancel_all(self) -> int:
        """Cancels all live requests of the workflow, also those of other processes.

        Returns how many the server had. Requests that arrive at the server later are not
        cancelled. Calls the server once for each cache salt of the requests, and then cancel().
        Raises BatonError."""
        cancelled = 0
        for salt in self._options.salts():
            response = self._client._call(self._client._stub.cancel_workflow, building.cancel_request(self.id, salt), None)
            cancelled += response.cancelled_requests
        self.cancel()
        return cancelled

    def prefill_only(self, *prompt: Part | Message, options: Options | None = None) -> results.Prefilled:
        """Computes the KV of a prompt before a request needs it.

        With options.context_id, it appends the prompt to that context. Raises BatonError."""
        merged = self._options.merge(options)
        request = self._options.limit(building.prefill_request(self.id, prompt, merged))
        return results.read_prefilled(self._client._call(self._client._stub.prefill_only, request, merged.timeout))

    def trace(self) -> results.Trace:
        """Returns the requests of this workflow with the times of their phases.

        Calls the server once for each cache salt of the requests. Raises BatonError. The code is
        NOT_FOUND if the server has no request of this workflow."""
        found, missing = [], None
        for salt in self._options.salts():
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
    """A connection to the server at "host:port". close() cancels unfinished runs.

    The connection is encrypted if `ca` (a PEM file) or `tls` is given. Without encryption, the
    client sends `api_key` as clear text. Raises OSError if `ca` cannot be read. The client connects
    at the first call, so only that call reports an unreachable server."""

    def __init__(self, address: str, api_key: str | None = None, ca: str | os.PathLike[str] | None = None,
                 tls: bool = False):
        secure = credentials(ca, tls)
        self._channel = (grpc.insecure_channel(address, CHANNEL_OPTIONS) if secure is None
                         else grpc.secure_channel(address, secure, CHANNEL_OPTIONS))
        self._stub = Stub(self._channel)
        self._metadata = call_metadata(api_key)
        self._calls = Calls(self._stub.put_output, self._metadata)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancels unfinished runs and closes the connection.

        It also cancels a run whose end has not arrived yet. A caller that needs the result must
        call result() first."""
        self._calls.close()
        self._channel.close()

    def workflow(self, name: str, options: Options = Options(), *, deadline: float | None = None,
                 max_tokens: int | None = None) -> Workflow:
        """Starts a run of the workflow `name`. Sends nothing to the server.

        `deadline` is in seconds since the server received the first request. When it passes, all
        runs of the workflow end with DEADLINE_EXCEEDED. `max_tokens` bounds the generated tokens of
        all runs. When it is reached, the runs that are not complete end with FAILED_PRECONDITION.
        Later runs are refused with the same error."""
        return Workflow(self, building.draw_id(name), options, deadline, max_tokens)

    def attach(self, id: str, options: Options = Options(), *, deadline: float | None = None,
               max_tokens: int | None = None) -> Workflow:
        """Returns the workflow with this id (Workflow.id). Another process may have started it.

        Runs of this object join its traces. cancel() cancels only the runs of this object, and
        cancel_all() all of the workflow. The limits can only lower those that it has."""
        return Workflow(self, id, options, deadline, max_tokens)

    def models(self) -> list[results.Model]:
        """Returns the models that the server serves. Raises BatonError."""
        return results.read_models(self._call(self._stub.list_models, MESSAGES["ListModelsRequest"](), None))

    def _start(self, request: Any, timeout: float | None) -> Run:
        call = self._stub.generate(request, timeout=deadline(timeout), metadata=self._metadata)
        self._calls.watch(call, request)
        return Run(call, request.request_id)

    def _put(self, parts: Parts, timeout: float | None) -> Value:
        call = self._stub.put_output.future(parts.all(), timeout=deadline(timeout), metadata=self._metadata)
        self._calls.watch(call, parts.first)
        return Value(call, parts)

    def _call(self, method: Any, request: Any, timeout: float | None) -> Any:
        try:
            return method(request, timeout=deadline(timeout), metadata=self._metadata)
        except grpc.RpcError as error:
            raise from_rpc(error) from None
