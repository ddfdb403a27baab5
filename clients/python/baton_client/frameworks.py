"""Streaming prefill between agents of frameworks that use OpenAI's API.

    http_client = streaming_prefill_sync(
        agents={"writer": SystemStart("You write"), "critic": Header("x-agent-name", "critic")},
        edges={"writer": ["critic"]})
    ChatOpenAI(base_url="http://127.0.0.1:8000/v1", ..., http_client=http_client)  # LangGraph

A framework calls an agent only when the agent's inputs are complete, and its requests carry no name
of an agent. The caller therefore declares two things:
- `agents`: the agents, and the way to recognise the chats of each
- `edges`: which agent's prompt contains the output of which other agent

The HTTP clients of this module keep the last call of each downstream agent. From that call they
predict the agent's next chat, with a placeholder for the upstream output. They send this chat as a
prefill hint (field `followers`) with the next call of its upstream agent. The server then prefills
the hint while it still decodes the output of the upstream agent.

Answers are the same with and without hints, on GPUs only with --same-bits on the server. A server
gets hints only if one of its answers had the header `x-baton-followers`. Chats that match no
declared agent are sent unchanged. This module needs the package `openai`."""

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
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, Optional

import openai

from .agent_edges import Call, CallMemory, Declaration, Header, Recogniser, SystemStart

__all__ = ["Header", "Recogniser", "SystemStart", "streaming_prefill", "streaming_prefill_sync"]

# httpx, or the package that the installed openai uses in its place.
httpx: Any = importlib.import_module(openai.DefaultHttpxClient.__bases__[0].__module__.partition(".")[0])

# Upper bound on a chat, on an answer, and on one event of a streamed answer.
_MOST_BYTES = 1 << 18
_MOST_OUTPUT = 1 << 16  # characters
# Upper bound on the hints of a call.
_MOST_HINTS = 4
_KEPT_SCOPES = 64
# Seconds without hints after a server seemed to refuse a hint.
_PAUSE_S = 60.0
_KEPT_PAUSES = 64
# The header of an answer. Its value is the number of hints that the server accepts.
_LIMIT = "x-baton-followers"

# Calls share a CallMemory only if these fields are equal, and all headers but _FREE_HEADERS.
_SCOPE_FIELDS = ("session_id", "cache_salt", "user", "safety_identifier", "prompt_cache_key", "metadata")
_FREE_HEADERS = ("accept", "accept-encoding", "connection", "content-length", "content-type", "traceparent",
                 "tracestate")
# Headers of openai with its version, the system and the number of the retry.
_FREE_HEADERS_BEGIN = "x-stainless-"

# Statuses of refusals that do not depend on the body of a request.
_NOT_DUE_TO_HINTS = (401, 403, 408, 429)

_log = logging.getLogger(__name__)
_logged = threading.Event()


def _harmless(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function return None instead of raising.

    A failure of hints must not reach the caller."""

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
    """The calls of one caller's agents in one session, to one server.

    `limit` is the number of hints that the server accepts with a call."""

    def __init__(self, url: str, limit: int, edges: Mapping[str, Sequence[str]]) -> None:
        self.url, self.limit = url, limit
        self.memory = CallMemory(edges)


class _Scopes:
    """The latest scopes of all clients of the process. A framework may make a client per agent.

    Methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._scopes: collections.OrderedDict[bytes, _Scope] = collections.OrderedDict()
        # URL -> time at which the server may get hints again.
        self._paused_until: collections.OrderedDict[str, float] = collections.OrderedDict()

    def is_paused(self, url: str) -> bool:
        with self._lock:
            return time.monotonic() < self._paused_until.get(url, 0)

    def pause_hints(self, url: str) -> None:
        with self._lock:
            self._paused_until[url] = time.monotonic() + _PAUSE_S
            self._paused_until.move_to_end(url)
            while len(self._paused_until) > _KEPT_PAUSES:
                self._paused_until.popitem(last=False)

    def has(self, url: str) -> bool:
        with self._lock:
            return any(scope.url == url for scope in self._scopes.values())

    def find(self, key: bytes) -> Optional[_Scope]:
        with self._lock:
            return self._scopes.get(key)

    def set_limit(self, key: bytes, url: str, limit: int, edges: Mapping[str, Sequence[str]]) -> Optional[_Scope]:
        """Returns the scope, and makes it if there is none.

        A limit of 0 drops it and returns None."""
        with self._lock:
            if limit == 0:
                self._scopes.pop(key, None)
                return None
            scope = self._scopes.setdefault(key, _Scope(url, limit, edges))
            scope.limit = limit
            self._scopes.move_to_end(key)
            while len(self._scopes) > _KEPT_SCOPES:
                self._scopes.popitem(last=False)
            return scope


_scopes = _Scopes()
_owners = itertools.count(1)


class _Text:
    """The text of an answer. Its bytes arrive in pieces, as an event stream or as one JSON body."""

    def __init__(self, streamed: bool) -> None:
        self._streamed = streamed
        self._rest = bytearray()
        self._parts: list[str] = []
        self._size = 0

    def take(self, data: bytes) -> Optional[str]:
        """Adds bytes. Returns the text of a stream when the stream is complete, otherwise None.

        The text is empty if the answer has no text, calls tools, or is too long."""
        if len(self._rest) + len(data) > _MOST_BYTES:
            return ""
        self._rest += data
        if self._streamed and b"\n" in data:
            *lines, self._rest = self._rest.split(b"\n")
            for event in (line[5:].strip() for line in lines if line.startswith(b"data:")):
                if event == b"[DONE]":
                    return "".join(self._parts)
                for choice in json.loads(event)["choices"]:
                    if not self._add(choice["delta"]):
                        return ""
        return None

    def end(self) -> str:
        """Returns the text of an answer that is one JSON body.

        REQUIRES: take() got all its bytes."""
        if self._streamed or not self._add(json.loads(self._rest)["choices"][0]["message"]):
            return ""
        return "".join(self._parts)

    def _add(self, message: dict[str, Any]) -> bool:
        if text := message.get("content"):
            self._parts.append(text)
            self._size += len(text)
        # The server's output includes the reasoning. The next prompt does not, so it would differ
        # from the hint.
        return not message.get("tool_calls") and not message.get("reasoning_content") and self._size <= _MOST_OUTPUT


class _HintedChat:
    """A chat that is being sent. `with_hints` is the chat with hints, which goes first, or None."""

    def __init__(self, client: _SyncClient | _AsyncClient, request: Any, url: str):
        self.with_hints: Any = None
        self._client, self._plain, self._url = client, request, url
        # Status with which the server refused `with_hints`. The chat was then sent without hints.
        self._refusal: Optional[int] = None
        self._key = b""
        self._agent = ""
        self._scope: Optional[_Scope] = None
        self._call: Optional[Call] = None
        self._text: Optional[_Text] = None
        if _scopes.has(url) and (body := self._body()) is not None and (scope := _scopes.find(self._key)) is not None:
            self._scope = scope
            self._call, hints = scope.memory.begin(self._agent, body, scope.limit)
            self.with_hints = _with_hints(request, hints) if hints else None

    def _body(self) -> Optional[dict[str, Any]]:
        """Returns the body if the chat matches a declared agent and has one choice.

        Otherwise None."""
        body = json.loads(str(self._plain.content, "utf-8"))
        if (not isinstance(body, dict) or not isinstance(body.get("messages"), list) or (body.get("n") or 1) != 1
                or "followers" in body):
            return None
        declared = self._client.declaration
        agent = declared.recognise(body["messages"], self._plain.headers)
        if agent is None:
            return None
        self._agent = agent
        headers = sorted((name, value) for name, value in self._plain.headers.multi_items()
                         if name not in _FREE_HEADERS and not name.startswith(_FREE_HEADERS_BEGIN)
                         and (name, value) not in declared.headers)
        scope = [self._client.owner, declared.key, str(self._plain.url), headers,
                 [body.get(name) for name in _SCOPE_FIELDS]]
        self._key = hashlib.sha256(json.dumps(scope).encode()).digest()
        return body

    def refused(self, response: Any) -> bool:
        """Returns whether the chat must be sent without hints after this answer to `with_hints`.

        `response` is None if there was no answer."""
        status = response.status_code if response is not None else 0
        if 200 <= status < 300 or status in _NOT_DUE_TO_HINTS or status > 501:
            return False
        self._refusal = status
        return True

    @_harmless
    def answered(self, response: Any) -> None:
        status = response.status_code
        # If the chat gets the same refusal without hints, the hints did not cause the refusal. A
        # server that refuses a chat because it is busy gets no hints for a while either.
        if self.with_hints is not None and status != self._refusal and (self._refusal is not None or status >= 400):
            _scopes.pause_hints(self._url)
        if status != 200:
            return
        limit, edges = _limit_of(response), self._client.declaration.edges
        if self._scope is not None:
            if _scopes.set_limit(self._key, self._url, limit, edges) is None:
                return
        elif limit > 0 and (body := self._body()) is not None:
            self._scope = _scopes.set_limit(self._key, self._url, limit, edges)
            if self._scope is not None:
                self._call, _ = self._scope.memory.begin(self._agent, body, 0)
        if self._call is not None:
            self._text = _Text(response.headers.get("content-type", "").startswith("text/event-stream"))

    @_harmless
    def take(self, data: bytes) -> None:
        # Leaves _text unset if take() fails, so that the rest of the answer is ignored.
        text, self._text = self._text, None
        if text is None:
            return
        output = text.take(data)
        if output is None:
            self._text = text
        else:
            self._remember(output)

    @_harmless
    def end(self) -> None:
        text, self._text = self._text, None
        if text is not None:
            self._remember(text.end())

    def _remember(self, output: str) -> None:
        if self._scope is not None and self._call is not None:
            self._scope.memory.end(self._agent, self._call, output)


@_harmless
def _watch(client: _SyncClient | _AsyncClient, request: Any, options: dict[str, Any]) -> Optional[_HintedChat]:
    """Returns the record of a chat, or None if the chat gets no hints.

    The result is None for requests that are not chats, for long chats, and while their server gets
    no hints. It is None if httpx itself adds `auth`, which identifies a caller, and if httpx has
    hooks. These checks do not read the body."""
    length = request.headers.get("content-length", "")
    if (request.method != "POST" or not request.url.path.endswith("/chat/completions")
            or not request.headers.get("content-type", "").startswith("application/json")
            or not length.isdecimal() or int(length) > _MOST_BYTES
            or client.auth is not None or "auth" in options or any(client.event_hooks.values())):
        return None
    url = f"{request.url.scheme}://{request.url.netloc.decode()}{request.url.path}"
    return None if _scopes.is_paused(url) else _HintedChat(client, request, url)


def _with_hints(request: Any, hints: list[dict[str, Any]]) -> Any:
    added = b',"followers":' + json.dumps(hints, separators=(",", ":")).encode() + b"}"
    headers = [(name, value) for name, value in request.headers.raw if name.lower() != b"content-length"]
    return httpx.Request(request.method, request.url, headers=headers, extensions=dict(request.extensions),
                         content=request.content.rstrip()[:-1] + added)


def _limit_of(response: Any) -> int:
    """Returns the number of hints that the server accepts with a call."""
    limit = response.headers.get(_LIMIT, "")
    return min(int(limit), _MOST_HINTS) if limit.isascii() and limit.isdecimal() and len(limit) < 10 else 0


class _SyncClient(openai.DefaultHttpxClient):
    def __init__(self, declaration: Declaration, **options: Any):
        super().__init__(**options)
        self.declaration = declaration
        # A client with options shares nothing, because an option may identify the caller. A
        # certificate is an example.
        self.owner = next(_owners) if options else 0

    def send(self, request: Any, **options: Any) -> Any:
        watched = _watch(self, request, options)
        if watched is None:
            return super().send(request, **options)
        response = None
        if watched.with_hints is not None:
            try:
                response = super().send(watched.with_hints, **{**options, "follow_redirects": False})
            except httpx.TimeoutException:
                # A second request would probably time out too.
                raise
            except Exception:
                # The chat without hints follows. It fails too if the hints are not the cause.
                pass
            if watched.refused(response) and response is not None:
                response.close()
                response = None
        if response is None:
            response = super().send(request, **options)
        watched.answered(response)
        if options.get("stream"):
            # Overrides the method of this response only. Its class belongs to httpx.
            response.iter_bytes = _observed(response, watched)  # type: ignore[method-assign]
        else:
            watched.take(response.content)
            watched.end()
        return response


class _AsyncClient(openai.DefaultAsyncHttpxClient):
    def __init__(self, declaration: Declaration, **options: Any):
        super().__init__(**options)
        self.declaration = declaration
        self.owner = next(_owners) if options else 0

    async def send(self, request: Any, **options: Any) -> Any:
        watched = _watch(self, request, options)
        if watched is None:
            return await super().send(request, **options)
        response = None
        if watched.with_hints is not None:
            try:
                response = await super().send(watched.with_hints, **{**options, "follow_redirects": False})
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
            response.aiter_bytes = _async_observed(response, watched)  # type: ignore[method-assign, assignment]
        else:
            watched.take(response.content)
            watched.end()
        return response


# These functions wrap the methods that decompress a response. All other ways to read a response
# call these methods.
def _observed(response: Any, watched: _HintedChat) -> Callable[..., Iterator[bytes]]:
    read = response.iter_bytes

    def iter_bytes(*arguments: Any, **options: Any) -> Iterator[bytes]:
        for data in read(*arguments, **options):
            watched.take(data)
            yield data
        watched.end()
        # Removes the override, so that a response that was read can be pickled.
        vars(response).pop("iter_bytes", None)

    return iter_bytes


def _async_observed(response: Any, watched: _HintedChat) -> Callable[..., AsyncIterator[bytes]]:
    read = response.aiter_bytes

    async def aiter_bytes(*arguments: Any, **options: Any) -> AsyncIterator[bytes]:
        async for data in read(*arguments, **options):
            watched.take(data)
            yield data
        watched.end()
        vars(response).pop("aiter_bytes", None)

    return aiter_bytes


def _declaration(agents: Optional[Mapping[str, Recogniser]],
                 edges: Optional[Mapping[str, Sequence[str]]]) -> Optional[Declaration]:
    """Returns None if both arguments are absent. All versions 0.1 accept such a call."""
    if agents is None and edges is None:
        warnings.warn('streaming_prefill() without agents and edges sends no hints, and 0.2.0 refuses it; use '
                      'streaming_prefill(agents={"writer": SystemStart("You write"), '
                      '"critic": SystemStart("You review")}, edges={"writer": ["critic"]})',
                      DeprecationWarning, stacklevel=3)
        return None
    return Declaration(agents, edges)


def streaming_prefill(*, agents: Optional[Mapping[str, Recogniser]] = None,
                      edges: Optional[Mapping[str, Sequence[str]]] = None,
                      **options: Any) -> openai.DefaultAsyncHttpxClient:
    """Returns the `http_client` for an openai.AsyncOpenAI, or for a class that makes one.

    - `agents` maps the name of an agent to a recogniser of its chats. If several match, the first
      one counts.
    - `edges` maps an upstream agent to the agents whose prompts contain its output.
    - `options` are those of httpx.AsyncClient, such as `verify` and `timeout`.

    Clients without options share their records of calls if their declarations are equal. A client
    with options shares nothing.

    Raises ValueError if a declaration is empty or malformed, or if an edge has an undeclared
    agent."""
    declaration = _declaration(agents, edges)
    return openai.DefaultAsyncHttpxClient(**options) if declaration is None else _AsyncClient(declaration, **options)


def streaming_prefill_sync(*, agents: Optional[Mapping[str, Recogniser]] = None,
                           edges: Optional[Mapping[str, Sequence[str]]] = None,
                           **options: Any) -> openai.DefaultHttpxClient:
    """Returns the `http_client` for an openai.OpenAI, or for a class that makes one.

    The arguments and errors are those of streaming_prefill(). The options are those of
    httpx.Client."""
    declaration = _declaration(agents, edges)
    return openai.DefaultHttpxClient(**options) if declaration is None else _SyncClient(declaration, **options)
