"""Streaming prefill between agents of frameworks that speak OpenAI's API, by one line:

    ChatOpenAI(base_url="http://127.0.0.1:8000/v1", ..., http_client=streaming_prefill_sync())             # LangGraph
    OpenAIChatCompletionClient(base_url="http://127.0.0.1:8000/v1", ..., http_client=streaming_prefill())  # AutoGen

A framework asks an agent when the outputs that it needs are there. The clients made here watch the chats, learn which agent's
prompt contains whose output, and from then on say with a chat what will follow it ("followers"), so that the server prefills that
while it still writes. Answers are what they are without. Of a server that has not said, with an answer before, that it takes
followers, nothing is kept, and it gets every request as it is. Wants `openai`."""

from __future__ import annotations

import collections
import functools
import hashlib
import importlib
import itertools
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Optional

import openai

from .foresight import MOST_FOLLOWERS, MOST_OUTPUT, Call, Foresight

# httpx, or the one that this openai uses in its place.
httpx: Any = importlib.import_module(openai.DefaultHttpxClient.__bases__[0].__module__.partition(".")[0])

_MOST_BYTES = 1 << 18  # of a chat or an answer (of one that is streamed: of an event) that is looked at
_KEPT_SCOPES = 16
_LEFT_OUT_S = 60.0  # a server gets no followers after it seemed to mind some
_KEPT_LEFT_OUT = 64
_LIMIT = "x-baton-followers"  # a header of answers: so many may be named

# What tells people apart: these fields of a chat, and all headers but those of which it is known that they do not.
_WHO = ("cache_salt", "user", "safety_identifier", "prompt_cache_key", "metadata")
_NOT_WHO = ("accept", "accept-encoding", "connection", "content-length", "content-type", "traceparent", "tracestate")
_NOT_WHO_BEGIN = "x-stainless-"  # openai's version, system and number of the try

_CALLERS_OWN = (401, 403, 408, 429)  # refusals that are not of what a request says

_log = logging.getLogger(__name__)
_logged = threading.Event()


def _harmless(function: Callable[..., Any]) -> Callable[..., Any]:
    """What goes wrong in it is not the caller's affair: then it does nothing."""

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception:
            if not _logged.is_set():
                _logged.set()
                _log.debug("no streaming prefill for a call; further failures are not logged", exc_info=True)
            return None

    return call


class _Scope:
    """What may know of each other, of a server that takes so many followers."""

    def __init__(self, url: str, limit: int) -> None:
        self.url, self.limit = url, limit
        self.foresight = Foresight()


class _Scopes:
    """Of all clients of the process, as agents may have one each. Those of servers that take followers, the latest."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._scopes: collections.OrderedDict[bytes, _Scope] = collections.OrderedDict()
        self._left_out: collections.OrderedDict[str, float] = collections.OrderedDict()  # until when, by URL

    def takes_none(self, url: str) -> bool:
        with self._lock:
            return time.monotonic() < self._left_out.get(url, 0)

    def leave_out(self, url: str) -> None:
        with self._lock:
            self._left_out[url] = time.monotonic() + _LEFT_OUT_S
            self._left_out.move_to_end(url)
            while len(self._left_out) > _KEPT_LEFT_OUT:
                self._left_out.popitem(last=False)

    def has(self, url: str) -> bool:
        with self._lock:
            return any(scope.url == url for scope in self._scopes.values())

    def find(self, key: bytes) -> Optional[_Scope]:
        with self._lock:
            return self._scopes.get(key)

    def tell(self, key: bytes, url: str, limit: int) -> Optional[_Scope]:
        """The server has said how many it takes. None: then nothing is kept of it."""
        with self._lock:
            if limit == 0:
                self._scopes.pop(key, None)
                return None
            scope = self._scopes.setdefault(key, _Scope(url, limit))
            scope.limit = limit
            self._scopes.move_to_end(key)
            while len(self._scopes) > _KEPT_SCOPES:
                self._scopes.popitem(last=False)
            return scope


_scopes = _Scopes()
_owners = itertools.count(1)


class _Text:
    """The text of an answer, which comes in pieces: streamed as events, or whole."""

    def __init__(self, streamed: bool) -> None:
        self._streamed = streamed
        self._rest = bytearray()
        self._said: list[str] = []
        self._size = 0

    def take(self, data: bytes) -> Optional[str]:
        """The text, once it is complete. Empty: it is none, or more than is looked at, or calls tools."""
        if len(self._rest) + len(data) > _MOST_BYTES:
            return ""
        self._rest += data
        if self._streamed and b"\n" in data:
            *lines, self._rest = self._rest.split(b"\n")
            for event in (line[5:].strip() for line in lines if line.startswith(b"data:")):
                if event == b"[DONE]":
                    return "".join(self._said)
                for choice in json.loads(event)["choices"]:
                    if not self._take(choice["delta"]):
                        return ""
        return None

    def end(self) -> str:
        """Of an answer that is not streamed: that was all of it."""
        return "".join(self._said) if not self._streamed and self._take(json.loads(self._rest)["choices"][0]["message"]) else ""

    def _take(self, said: dict[str, Any]) -> bool:
        if text := said.get("content"):
            self._said.append(text)
            self._size += len(text)
        # The server's output has the reasoning too, and what follows has not: prefilled ahead it would be another prompt.
        return not said.get("tool_calls") and not said.get("reasoning_content") and self._size <= MOST_OUTPUT


class _Watched:
    """One chat on its way. `ahead`: what is to be sent in its place at first, if it is known what follows."""

    def __init__(self, request: Any, url: str, owner: int):
        self.ahead: Any = None
        self._plain, self._url, self._owner = request, url, owner
        self._refusal: Optional[int] = None  # status of the answer to `ahead`, where the chat was sent again
        self._key = b""
        self._scope: Optional[_Scope] = None
        self._call: Optional[Call] = None
        self._text: Optional[_Text] = None
        if _scopes.has(url) and (body := self._body()) is not None and (scope := _scopes.find(self._key)) is not None:
            self._scope = scope
            self._call, followers = scope.foresight.begin(body, scope.limit)
            self.ahead = _with_followers(request, followers) if followers else None

    def _body(self) -> Optional[dict[str, Any]]:
        """None: it is no chat of one choice that could be followed."""
        body = json.loads(str(self._plain.content, "utf-8"))
        if not isinstance(body, dict) or (body.get("n") or 1) != 1 or "followers" in body:
            return None
        headers = sorted((name, value) for name, value in self._plain.headers.multi_items()
                         if name not in _NOT_WHO and not name.startswith(_NOT_WHO_BEGIN))
        who = [self._owner, str(self._plain.url), headers, [body.get(name) for name in _WHO]]
        self._key = hashlib.sha256(json.dumps(who).encode()).digest()
        return body

    def refused(self, response: Any) -> bool:
        """`ahead` was answered so that the chat is to be sent as it is. None: the connection broke."""
        status = response.status_code if response is not None else 0
        if 200 <= status < 300 or status in _CALLERS_OWN or status > 501:
            return False
        self._refusal = status
        return True

    @_harmless
    def answered(self, response: Any) -> None:
        status = response.status_code
        # One that is answered alike without followers was not refused for them; and a server that is too busy gets none either.
        if self.ahead is not None and status != self._refusal and (self._refusal is not None or status >= 400):
            _scopes.leave_out(self._url)
        if status != 200:
            return
        limit = _told(response)
        if self._scope is not None:
            if _scopes.tell(self._key, self._url, limit) is None:
                return
        elif limit > 0 and (body := self._body()) is not None:
            self._scope = _scopes.tell(self._key, self._url, limit)
            if self._scope is not None:
                self._call, _ = self._scope.foresight.begin(body, 0)
        if self._call is not None:
            self._text = _Text(response.headers.get("content-type", "").startswith("text/event-stream"))

    @_harmless
    def take(self, data: bytes) -> None:
        text, self._text = self._text, None  # where it fails, the rest is not looked at
        if text is None:
            return
        output = text.take(data)
        if output is None:
            self._text = text
        else:
            self._learn(output)

    @_harmless
    def end(self) -> None:
        text, self._text = self._text, None
        if text is not None:
            self._learn(text.end())

    def _learn(self, output: str) -> None:
        if self._scope is not None and self._call is not None:
            self._scope.foresight.end(self._call, output)


@_harmless
def _watch(client: Any, request: Any, options: dict[str, Any]) -> Optional[_Watched]:
    """None: it is no chat, or a long one, or its server minded followers a while ago, or httpx will yet add what tells who asks, or
    tells others of each answer. No body is looked at for that."""
    length = request.headers.get("content-length", "")
    if (request.method != "POST" or not request.url.path.endswith("/chat/completions")
            or not request.headers.get("content-type", "").startswith("application/json")
            or not length.isdecimal() or int(length) > _MOST_BYTES
            or client.auth is not None or "auth" in options or any(client.event_hooks.values())):
        return None
    url = f"{request.url.scheme}://{request.url.netloc.decode()}{request.url.path}"
    return None if _scopes.takes_none(url) else _Watched(request, url, client.owner)


def _with_followers(request: Any, followers: list[dict[str, Any]]) -> Any:
    added = b',"followers":' + json.dumps(followers, separators=(",", ":")).encode() + b"}"
    headers = [(name, value) for name, value in request.headers.raw if name.lower() != b"content-length"]
    return httpx.Request(request.method, request.url, headers=headers, extensions=dict(request.extensions),
                         content=request.content.rstrip()[:-1] + added)


def _told(response: Any) -> int:
    """How many followers the server takes."""
    limit = response.headers.get(_LIMIT, "")
    return min(int(limit), MOST_FOLLOWERS) if limit.isascii() and limit.isdecimal() and len(limit) < 10 else 0


class _SyncClient(openai.DefaultHttpxClient):
    def __init__(self, **options: Any):
        super().__init__(**options)
        self.owner = next(_owners) if options else 0  # of what is learned: an option may tell who asks, as a certificate does

    def send(self, request: Any, **options: Any) -> Any:
        watched = _watch(self, request, options)
        if watched is None:
            return super().send(request, **options)
        response = None
        if watched.ahead is not None:
            try:
                response = super().send(watched.ahead, **{**options, "follow_redirects": False})
            except httpx.TimeoutException:
                raise  # to wait as long again would be no better
            except Exception:
                pass  # what it was, the chat as it is will show
            if watched.refused(response) and response is not None:
                response.close()
                response = None
        if response is None:
            response = super().send(request, **options)
        watched.answered(response)
        if options.get("stream"):
            # Of this response alone, whose class is httpx's.
            response.iter_bytes = _tapped(response, watched)  # type: ignore[method-assign]
        else:
            watched.take(response.content)
            watched.end()
        return response


class _AsyncClient(openai.DefaultAsyncHttpxClient):
    def __init__(self, **options: Any):
        super().__init__(**options)
        self.owner = next(_owners) if options else 0

    async def send(self, request: Any, **options: Any) -> Any:
        watched = _watch(self, request, options)
        if watched is None:
            return await super().send(request, **options)
        response = None
        if watched.ahead is not None:
            try:
                response = await super().send(watched.ahead, **{**options, "follow_redirects": False})
            except httpx.TimeoutException:
                raise
            except Exception:
                pass
            if watched.refused(response) and response is not None:
                await response.aclose()
                response = None
        if response is None:
            response = await super().send(request, **options)
        watched.answered(response)
        if options.get("stream"):
            response.aiter_bytes = _async_tapped(response, watched)  # type: ignore[method-assign, assignment]
        else:
            watched.take(response.content)
            watched.end()
        return response


# All that reads a response reads it by these, which decompress it.
def _tapped(response: Any, watched: _Watched) -> Callable[..., Iterator[bytes]]:
    read = response.iter_bytes

    def iter_bytes(*arguments: Any, **options: Any) -> Iterator[bytes]:
        for data in read(*arguments, **options):
            watched.take(data)
            yield data
        watched.end()
        vars(response).pop("iter_bytes", None)  # as it was: what was read may be pickled

    return iter_bytes


def _async_tapped(response: Any, watched: _Watched) -> Callable[..., AsyncIterator[bytes]]:
    read = response.aiter_bytes

    async def aiter_bytes(*arguments: Any, **options: Any) -> AsyncIterator[bytes]:
        async for data in read(*arguments, **options):
            watched.take(data)
            yield data
        watched.end()
        vars(response).pop("aiter_bytes", None)

    return aiter_bytes


def streaming_prefill(**options: Any) -> openai.DefaultAsyncHttpxClient:
    """The `http_client` of an openai.AsyncOpenAI, or of what makes one. The options are httpx.AsyncClient's, such as `verify`
    and `timeout`. Clients without any share what they learn; one with options keeps it to itself."""
    return _AsyncClient(**options)


def streaming_prefill_sync(**options: Any) -> openai.DefaultHttpxClient:
    """The `http_client` of an openai.OpenAI, or of what makes one. The options are httpx.Client's; as above."""
    return _SyncClient(**options)
