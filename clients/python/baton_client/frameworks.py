"""Streaming prefill between agents of frameworks that speak OpenAI's API, by one line:

    ChatOpenAI(base_url="http://127.0.0.1:8000/v1", ..., http_client=streaming_prefill_sync())         # LangGraph
    OpenAIChatCompletionClient(base_url="http://127.0.0.1:8000/v1", ..., http_client=streaming_prefill())  # AutoGen

A framework asks an agent when the outputs that it needs are there. The clients made here watch the calls, learn which agent's
prompt contains whose output, and from then on have the server prefill that prompt while the output is still written. No call
or answer is changed but for a request_id, so answers are what they are without; a wrong guess costs a prefill. Wants `openai`."""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai

from .foresight import Foresight, text_of

# httpx, or the one that this openai uses in its place. Its transports are its public way to stand between.
httpx: Any = importlib.import_module(openai.DefaultHttpxClient.__bases__[0].__module__.partition(".")[0])

_LOG = logging.getLogger(__name__)
_MOST_BYTES = 8 << 20  # of a request or an answer that is looked at
_MOST_GUESSES = 32  # of one client that wait

# By server and key, as agents may have a client each.
_foresights: dict[tuple[str, str], Foresight] = {}
_foresights_lock = threading.Lock()


def streaming_prefill(**transport: Any) -> openai.DefaultAsyncHttpxClient:
    """The `http_client` of an openai.AsyncOpenAI, or of what makes one. The options are httpx.AsyncHTTPTransport's, such as
    `verify` and `proxy`, which is not taken from the environment."""
    return openai.DefaultAsyncHttpxClient(transport=_AsyncTransport(*_transports(httpx.AsyncHTTPTransport, transport)))


def streaming_prefill_sync(**transport: Any) -> openai.DefaultHttpxClient:
    """The `http_client` of an openai.OpenAI, or of what makes one. The options are httpx.HTTPTransport's."""
    return openai.DefaultHttpxClient(transport=_SyncTransport(*_transports(httpx.HTTPTransport, transport)))


def _transports(kind: Any, options: dict[str, Any]) -> tuple[Any, Any]:
    """For calls, and for guesses: these wait for calls, which therefore must never wait for a connection that they have."""
    calls = httpx.Limits(max_connections=1000, max_keepalive_connections=100)  # as openai has it
    return kind(**{"limits": calls, **options}), kind(**options)


def _foresight(request: Any) -> Foresight:
    server = f"{request.url.scheme}://{request.url.netloc.decode()}"
    with _foresights_lock:
        return _foresights.setdefault((server, request.headers.get("authorization", "")), Foresight())


class _Watched:
    """One chat on its way: what is sent in its place, what to prefill beside it, and what it answers."""

    def __init__(self, request: Any, body: dict[str, Any]):
        body["request_id"] = self.id = body.get("request_id") or f"ahead-{uuid.uuid4().hex}"
        self.request = _remade(request, body)
        self._foresight = _foresight(request)
        self.guesses = [_remade(request, _prefill_only(guess, body)) for guess in self._foresight.begin(self.id, body)]
        self._answer = bytearray()
        self._ended = False

    def take(self, data: bytes) -> None:
        if len(self._answer) < _MOST_BYTES:
            self._answer += data

    def end(self) -> None:
        if not self._ended:
            self._ended = True
            self._foresight.end(self.id, _answer_text(bytes(self._answer)))

    def fail(self) -> None:
        self._answer.clear()
        self.end()


def _watch(request: Any, content: bytes) -> _Watched | None:
    """None: it is no chat of one choice whose messages are text."""
    if request.method != "POST" or not request.url.path.endswith("/chat/completions") or len(content) > _MOST_BYTES:
        return None
    try:
        body = json.loads(content)
        messages = body["messages"]
        if (body.get("n") or 1) != 1 or not messages or not all(isinstance(one["role"], str) for one in messages):
            return None
        # Who refers to outputs himself needs no guesses.
        if any(one.get("content") is not None and text_of(one) is None for one in messages):
            return None
        return _Watched(request, body)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None  # the server says what is wrong with it


def _prefill_only(guess: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    """What shapes the prompt, and whom it may be shared with. Behind the agents that are asked already."""
    shaping = ("model", "messages", "tools", "tool_choice", "session_id", "cache_salt")
    priority = max((body.get("priority") or 0) - 1, -1000)
    return {key: guess[key] for key in shaping if key in guess} | {"max_tokens": 0, "priority": priority}


def _remade(request: Any, body: dict[str, Any]) -> Any:
    headers = [(name, value) for name, value in request.headers.raw if name.lower() != b"content-length"]
    return httpx.Request(request.method, request.url, headers=headers, extensions=dict(request.extensions),
                         content=json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode())


def _answer_text(answer: bytes) -> str | None:
    """The text of a whole answer, streamed or not; empty for one of tool calls. None: it is none."""
    try:
        if not answer.lstrip().startswith(b"data:"):
            return json.loads(answer)["choices"][0]["message"]["content"] or ""
        events = [line[5:].strip() for line in answer.split(b"\n") if line.startswith(b"data:")]
        if events[-1] != b"[DONE]":
            return None
        choices = [choice for event in events[:-1] for choice in json.loads(event)["choices"]]
        return "".join(choice["delta"].get("content") or "" for choice in choices)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return None


class _SyncAnswer(httpx.SyncByteStream):
    def __init__(self, stream: Any, watched: _Watched):
        self._stream, self._watched = stream, watched

    def __iter__(self) -> Iterator[bytes]:
        for data in self._stream:
            self._watched.take(data)
            yield data
        self._watched.end()

    def close(self) -> None:
        self._watched.end()
        self._stream.close()


class _AsyncAnswer(httpx.AsyncByteStream):
    def __init__(self, stream: Any, watched: _Watched):
        self._stream, self._watched = stream, watched

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for data in self._stream:
            self._watched.take(data)
            yield data
        self._watched.end()

    async def aclose(self) -> None:
        self._watched.end()
        await self._stream.aclose()


class _SyncTransport(httpx.BaseTransport):
    def __init__(self, inner: Any, ahead: Any):
        self._inner, self._ahead = inner, ahead
        self._free = threading.Semaphore(_MOST_GUESSES)

    def handle_request(self, request: Any) -> Any:
        watched = _watch(request, request.read())
        if watched is None:
            return self._inner.handle_request(request)
        for guess in watched.guesses:
            if self._free.acquire(blocking=False):
                threading.Thread(target=self._prefill, args=(guess,), name="baton prefill", daemon=True).start()
        try:
            response = self._inner.handle_request(watched.request)
        except BaseException:
            watched.fail()
            raise
        if response.status_code != 200:
            watched.fail()
        response.stream = _SyncAnswer(response.stream, watched)
        return response

    def _prefill(self, guess: Any) -> None:
        try:
            response = self._ahead.handle_request(guess)
            response.read()
            _LOG.debug("prefilled ahead: %s", response.text)
            response.close()
        except Exception as error:  # the agent's own call will say what is wrong
            _LOG.debug("not prefilled ahead: %s", error)
        finally:
            self._free.release()

    def close(self) -> None:
        self._inner.close()
        self._ahead.close()


class _AsyncTransport(httpx.AsyncBaseTransport):
    def __init__(self, inner: Any, ahead: Any):
        self._inner, self._ahead = inner, ahead
        self._prefills: set[asyncio.Task[None]] = set()  # asyncio itself keeps no task alive

    async def handle_async_request(self, request: Any) -> Any:
        watched = _watch(request, await request.aread())
        if watched is None:
            return await self._inner.handle_async_request(request)
        prefills = [asyncio.create_task(self._prefill(guess), name="baton prefill")
                    for guess in watched.guesses[:_MOST_GUESSES - len(self._prefills)]]
        for prefill in prefills:
            self._prefills.add(prefill)
            prefill.add_done_callback(self._prefills.discard)
        try:
            response = await self._inner.handle_async_request(watched.request)
        except BaseException:
            watched.fail()
            _cancel(prefills)
            raise
        if response.status_code != 200:
            watched.fail()
            _cancel(prefills)
        response.stream = _AsyncAnswer(response.stream, watched)
        return response

    async def _prefill(self, guess: Any) -> None:
        try:
            response = await self._ahead.handle_async_request(guess)
            await response.aread()
            _LOG.debug("prefilled ahead: %s", response.text)
            await response.aclose()
        except Exception as error:  # the agent's own call will say what is wrong
            _LOG.debug("not prefilled ahead: %s", error)

    async def aclose(self) -> None:
        _cancel(list(self._prefills))
        await self._inner.aclose()
        await self._ahead.aclose()


def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
