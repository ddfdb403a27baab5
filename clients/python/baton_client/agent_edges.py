"""Prefill hints from declared edges between agents.

A prefill hint is a chat that the client expects to send next, with places for the output of the
call that it travels with. It is one of the call's `followers`. A hint never changes an answer. A
wrong hint costs the server a prefill. This module does no I/O."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Optional, Union

SHORTEST_QUOTE = 16  # characters of an output that is looked for inside a longer text
MOST_PLACES = 16  # of the call's output in a hint: the server's limit

# Headers that identify a caller. Callers share nothing, so no agent may be recognised by them.
CREDENTIALS = ("authorization", "proxy-authorization", "cookie", "api-key", "x-api-key", "openai-organization",
               "openai-project")

_ANSWER = json.dumps({"role": "assistant"})  # the form of an agent's own outputs in its chats


@dataclasses.dataclass(frozen=True)
class SystemStart:
    """Recognises an agent's chats by the beginning of their first system (or developer) message."""

    prefix: str

    def __post_init__(self) -> None:
        if not isinstance(self.prefix, str) or not self.prefix:
            raise ValueError(f"SystemStart: expected a text that is not empty, got {self.prefix!r}")

    def matches(self, messages: Sequence[Any], headers: Any) -> bool:
        for message in messages:
            if isinstance(message, dict) and message.get("role") in ("system", "developer"):
                return (_text_of(message) or "").startswith(self.prefix)
        return False


@dataclasses.dataclass(frozen=True)
class Header:
    """Recognises an agent's chats by an HTTP header with this value. Case matters in the value alone."""

    name: str
    value: str

    def __post_init__(self) -> None:
        if not all(isinstance(text, str) and text for text in (self.name, self.value)):
            raise ValueError(f"Header: expected a name and a value, not empty, got {self.name!r}, {self.value!r}")
        if self.name.lower() in CREDENTIALS:
            raise ValueError(f"Header: {self.name!r} identifies a caller; expected a header that identifies an agent")

    def matches(self, messages: Sequence[Any], headers: Any) -> bool:
        return self.value in headers.get_list(self.name)


Recogniser = Union[SystemStart, Header]


class Declaration:
    """The agents of a client and the edges between them: upstream agent -> downstream agents.

    Raises ValueError if an argument is empty, has a wrong type, or has an edge of an agent that is
    not declared."""

    def __init__(self, agents: Optional[Mapping[str, Recogniser]], edges: Optional[Mapping[str, Sequence[str]]]):
        if not isinstance(agents, Mapping) or not agents:
            raise ValueError(f"agents: expected a dict that is not empty, got {agents!r}")
        if not isinstance(edges, Mapping) or not edges:
            raise ValueError(f"edges: expected a dict that is not empty, got {edges!r}")
        for agent, recogniser in agents.items():
            if not isinstance(agent, str) or not isinstance(recogniser, (SystemStart, Header)):
                raise ValueError(f"agents: expected a name and a SystemStart or Header, got {agent!r}: {recogniser!r}")
        for upstream, downstream in edges.items():
            if not isinstance(downstream, (list, tuple)) or not downstream:
                raise ValueError(f"edges: {upstream!r}: expected a list of agents, got {downstream!r}")
            for agent in (upstream, *downstream):
                if agent not in list(agents):
                    raise ValueError(f"edges: expected agents that are declared ({', '.join(agents)}), got {agent!r}")
        self._agents = dict(agents)
        self.edges = {upstream: tuple(dict.fromkeys(downstream)) for upstream, downstream in edges.items()}
        self.headers = {(one.name.lower(), one.value) for one in agents.values() if isinstance(one, Header)}
        self.key = repr((self._agents, self.edges))  # equal for equal declarations

    def recognise(self, messages: Sequence[Any], headers: Any) -> Optional[str]:
        """Returns the first agent that the chat is recognised as. `headers`: httpx's."""
        return next((name for name, one in self._agents.items() if one.matches(messages, headers)), None)


@dataclasses.dataclass(eq=False)
class Call:
    """A chat and its output. The form of a message is the JSON of all but its content."""

    texts: Sequence[str]
    forms: Sequence[str]
    shaping: Mapping[str, Any]  # the fields that shape its prompt beside the messages
    output: str = ""


class CallMemory:
    """Remembers the last calls of one caller's agents in one session, two for each edge.

    Its methods may be called from any thread."""

    def __init__(self, edges: Mapping[str, Sequence[str]]) -> None:
        self._edges = edges
        self._lock = threading.Lock()
        self._last: dict[str, Call] = {}  # by agent, once it has its output
        self._pairs: dict[tuple[str, str], tuple[Call, Call]] = {}  # by edge; the output of the one stands in the other

    def begin(self, agent: str, body: Mapping[str, Any], most: int) -> tuple[Optional[Call], list[dict[str, Any]]]:
        """Remembers a chat that is about to be sent.

        Returns the argument for `end`, and at most `most` hints. Returns no call for a chat that has
        more than texts in its messages."""
        call = _read(body)
        if call is None:
            return None, []
        with self._lock:
            for name, upstream in self._last.items():
                stands = (len(_cut(text, upstream.output)) > 1 for text in call.texts)
                if agent in self._edges.get(name, ()) and any(stands):
                    self._pairs[name, agent] = upstream, call
            pairs = [self._pairs[edge] for name in self._edges.get(agent, ()) if (edge := (agent, name)) in self._pairs]
        return call, [hint for pair in pairs if (hint := _hint(*pair, call)) is not None][:most]

    def end(self, agent: str, call: Call, output: str) -> None:
        """Remembers the output of a call."""
        if output.strip():
            with self._lock:
                call.output = output
                self._last[agent] = call


def _text_of(message: Any) -> Optional[str]:
    """Returns the content of a message if it is a text or a list of texts, else None."""
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list):
        return content if isinstance(content, str) else None
    parts = [part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None for part in content]
    return "".join(parts) if all(isinstance(part, str) for part in parts) else None  # type: ignore[arg-type]


def _read(body: Mapping[str, Any]) -> Optional[Call]:
    messages = body["messages"]
    texts = [text for message in messages if (text := _text_of(message)) is not None]
    if len(texts) < len(messages):
        return None
    forms = [json.dumps({key: value for key, value in message.items() if key != "content" and value is not None})
             for message in messages]
    shapes = ("model", "tools", "tool_choice", "chat_template_kwargs")
    return Call(texts, forms, {key: body[key] for key in shapes if body.get(key) is not None})


def _hint(upstream: Call, downstream: Call, call: Call) -> Optional[dict[str, Any]]:
    """Returns the downstream agent's last call as it would be after `call` instead of `upstream`.

    Messages that the upstream call has too come from `call`. The upstream's output becomes a place
    for the output of `call`. Returns None for a call of another model, or if there is no place, or
    if there are more places than a server accepts."""
    texts, before = downstream.texts, upstream.texts
    first = {text: place for place, text in reversed(list(enumerate(before))) if text}
    forms = {}  # each agent sees its own outputs as the assistant's, and other agents' in another role
    for text, form in zip(texts, downstream.forms):
        if text in first:
            forms[upstream.forms[first[text]]] = form
        elif text.strip() == upstream.output.strip():
            forms[_ANSWER] = form
    messages: list[dict[str, Any]] = []
    places = index = 0
    while index < len(texts):
        begin = end = first.get(texts[index], len(before))
        while index < len(texts) and end < len(before) and texts[index] == before[end]:
            index, end = index + 1, end + 1
        if end > begin:
            shared = slice(begin, max(begin, len(call.texts) - (len(before) - end)))
            messages += [{**json.loads(forms.get(form, form)), "content": text}
                         for form, text in zip(call.forms[shared], call.texts[shared])]
            continue
        pieces = _cut(texts[index], upstream.output)
        parts = [part for piece in pieces for part in ({"type": "output"}, {"type": "text", "text": piece})][1:]
        content = [part for part in parts if part != {"type": "text", "text": ""}]
        messages.append({**json.loads(downstream.forms[index]), "content": content or ""})
        places += len(pieces) - 1
        index += 1
    if upstream.shaping.get("model") != call.shaping.get("model") or not 0 < places <= MOST_PLACES:
        return None
    return {**downstream.shaping, "messages": messages}


def _cut(text: str, output: str) -> list[str]:
    """Returns the pieces of the text between the places of the output, which may be stripped there."""
    words = output if output in text else output.strip()
    return text.split(words) if len(words) >= SHORTEST_QUOTE or words == text.strip() else [text]
