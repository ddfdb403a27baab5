"""Streaming prefill between agents of frameworks that speak OpenAI's API, by one line:

    ChatOpenAI(base_url="http://127.0.0.1:8000/v1", ..., http_client=streaming_prefill_sync())             # LangGraph
    OpenAIChatCompletionClient(base_url="http://127.0.0.1:8000/v1", ..., http_client=streaming_prefill())  # AutoGen

A framework asks an agent when the outputs that it needs are there. The clients made here watch the chats, learn which agent's
prompt contains whose output, and from then on say with a chat what will follow it ("followers"), so that the server prefills that
while it still writes. Answers are what they are without. Nothing is learned across servers, keys, salts and users, and nothing is
sent to a server that has not said, with an answer before, that it takes it: others get every request as it is. Wants `openai`."""

from __future__ import annotations

import collections
import importlib
import json
import threading
from collections.abc import AsyncIterator, Hashable, Iterator
from typing import Any, Optional

import openai

from .foresight import Call, Foresight

# httpx, or the one that this openai uses in its place. Its transports are its public way to stand between.
httpx: Any = importlib.import_module(openai.DefaultHttpxClient.__bases__[0].__module__.partition(".")[0])

_MOST_BYTES = 4 << 20  # of a request or an answer that is looked at
_KEPT_SCOPES = 16
_MOST_REFUSALS = 2
_WHO = ("cache_salt", "user", "safety_identifier")  # fields of a chat that tell people apart
_LIMIT = "x-baton-followers"  # a header of answers: so many may be named


class _Scope:
    """What may know of each other."""

    def __init__(self) -> None:
        self.foresight = Foresight()
        self.told = 0  # by the server, how many may be named
        self.refusals = 0

    @property
    def limit(self) -> int:
        return self.told if self.refusals < _MOST_REFUSALS else 0


# Of all clients of the process, as agents may have one each.
_scopes: collections.OrderedDict[Hashable, _Scope] = collections.OrderedDict()
_scopes_lock = threading.Lock()


def streaming_prefill(**transport: Any) -> openai.DefaultAsyncHttpxClient:
    """The `http_client` of an openai.AsyncOpenAI, or of what makes one. The options are httpx.AsyncHTTPTransport's, such as
    `verify` and `proxy`, which is not taken from the environment."""
    return openai.DefaultAsyncHttpxClient(transport=_AsyncTransport(httpx.AsyncHTTPTransport(**_with_limits(transport))))


def streaming_prefill_sync(**transport: Any) -> openai.DefaultHttpxClient:
    """The `http_client` of an openai.OpenAI, or of what makes one. The options are httpx.HTTPTransport's."""
    return openai.DefaultHttpxClient(transport=_SyncTransport(httpx.HTTPTransport(**_with_limits(transport))))


def _with_limits(options: dict[str, Any]) -> dict[str, Any]:
    return {"limits": httpx.Limits(max_connections=1000, max_keepalive_connections=100), **options}  # as openai has it


def _scope(request: Any, body: dict[str, Any]) -> _Scope:
    who = tuple(request.headers.get(name) for name in ("authorization", "openai-organization", "openai-project"))
    key = (str(request.url), who, json.dumps([body.get(name) for name in _WHO]))
    with _scopes_lock:
        scope = _scopes.setdefault(key, _Scope())
        _scopes.move_to_end(key)
        while len(_scopes) > _KEPT_SCOPES:
            _scopes.popitem(last=False)
        return scope


class _Watched:
    """One chat on its way. `request`: what is sent in place of `plain`."""

    def __init__(self, plain: Any, body: dict[str, Any]):
        self.request = self.plain = plain
        self._scope = _scope(plain, body)
        self._call: Optional[Call]
        self._call, followers = self._scope.foresight.begin(body, self._scope.limit)
        if followers:
            self.request = _remade(plain, {**body, "followers": followers})
        self._answer = bytearray()

    def may_mind(self, response: Any) -> bool:
        """Whether what was added may be what the server did not take. Then `refused` says so, once the response has been read."""
        return self.request is not self.plain and response.status_code in (400, 404, 413)

    def refused(self, response: Any) -> bool:
        """It is to be sent again as it was: nothing has been done for it."""
        if response.status_code != 413 and not _names_followers(response.content):
            return False
        self._scope.refusals += 1
        self.request = self.plain
        return True

    def begun(self, response: Any) -> None:
        if response.status_code != 200:
            self._call = None
            return
        limit = response.headers.get(_LIMIT, "")
        self._scope.told = int(limit) if limit in ("1", "2", "3", "4") else 0

    def take(self, data: bytes) -> None:
        if self._call is not None and len(self._answer) < _MOST_BYTES:
            self._answer += data

    def end(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            self._scope.foresight.end(call, _answer_text(bytes(self._answer)))


def _watch(request: Any, content: bytes) -> Optional[_Watched]:
    """None: it is no chat of one choice that could be followed."""
    if request.method != "POST" or not request.url.path.endswith("/chat/completions") or len(content) > _MOST_BYTES:
        return None
    try:
        body = json.loads(content)
        if (body.get("n") or 1) != 1 or not body["messages"] or "followers" in body:
            return None
        return _Watched(request, body)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None  # the server says what is wrong with it


def _remade(request: Any, body: dict[str, Any]) -> Any:
    headers = [(name, value) for name, value in request.headers.raw if name.lower() != b"content-length"]
    return httpx.Request(request.method, request.url, headers=headers, extensions=dict(request.extensions),
                         content=json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode())


def _names_followers(error: bytes) -> bool:
    try:
        return str(json.loads(error)["error"]["param"]).startswith("followers")
    except (ValueError, TypeError, KeyError, RecursionError):
        return False


def _answer_text(answer: bytes) -> str:
    """The text of a whole answer, streamed or not; empty: it is none, or calls tools."""
    try:
        if not answer.lstrip().startswith(b"data:"):
            said = [json.loads(answer)["choices"][0]["message"]]
        else:
            events = [line[5:].strip() for line in answer.split(b"\n") if line.startswith(b"data:")]
            if events[-1] != b"[DONE]":
                return ""
            said = [choice["delta"] for event in events[:-1] for choice in json.loads(event)["choices"]]
        return "" if any(part.get("tool_calls") for part in said) else "".join(part.get("content") or "" for part in said)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return ""


class _SyncAnswer(httpx.SyncByteStream):  # type: ignore[misc]
    def __init__(self, stream: Any, watched: _Watched):
        self._stream, self._watched = stream, watched

    def __iter__(self) -> Iterator[bytes]:
        for data in self._stream:
            self._watched.take(data)
            yield data
        self._watched.end()

    def close(self) -> None:
        self._watched.end()  # one that was not read to its end is no text
        self._stream.close()


class _AsyncAnswer(httpx.AsyncByteStream):  # type: ignore[misc]
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


class _SyncTransport(httpx.BaseTransport):  # type: ignore[misc]
    def __init__(self, inner: Any):
        self._inner = inner

    def handle_request(self, request: Any) -> Any:
        watched = _watch(request, request.read())
        if watched is None:
            return self._inner.handle_request(request)
        response = self._inner.handle_request(watched.request)
        if watched.may_mind(response):
            response.read()
            if watched.refused(response):
                response = self._inner.handle_request(watched.request)
        watched.begun(response)
        response.stream = _SyncAnswer(response.stream, watched)
        return response

    def close(self) -> None:
        self._inner.close()


class _AsyncTransport(httpx.AsyncBaseTransport):  # type: ignore[misc]
    def __init__(self, inner: Any):
        self._inner = inner

    async def handle_async_request(self, request: Any) -> Any:
        watched = _watch(request, await request.aread())
        if watched is None:
            return await self._inner.handle_async_request(request)
        response = await self._inner.handle_async_request(watched.request)
        if watched.may_mind(response):
            await response.aread()
            if watched.refused(response):
                response = await self._inner.handle_async_request(watched.request)
        watched.begun(response)
        response.stream = _AsyncAnswer(response.stream, watched)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()
