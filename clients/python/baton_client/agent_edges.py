"""Prefill hints from declared edges between agents.

A prefill hint is a chat that the client expects to send after a call. The hint has placeholders for
the output of that call. The client sends hints with the call, in the field `followers`. A hint does
not change an answer (on GPUs only with --same-bits, because a hint changes the steps in which
prompts are computed). A wrong hint costs the server a prefill. This module does no I/O."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Optional, Union

# Lower bound on the characters of an output that is searched for inside a longer text.
MIN_QUOTE_CHARACTERS = 16
# Upper bound on placeholders of a hint. The server has the same limit.
MAX_PLACEHOLDERS = 16

# Headers that identify a caller. They cannot identify an agent, because callers share nothing.
CREDENTIALS = ("authorization", "proxy-authorization", "cookie", "api-key", "x-api-key", "openai-organization",
               "openai-project")

# The form of an agent's own outputs in its chats.
_ANSWER = json.dumps({"role": "assistant"})


@dataclasses.dataclass(frozen=True)
class SystemStart:
    """Recognises an agent's chats by the beginning of their first system (or developer) message.

    Raises ValueError if `prefix` is not a text or is empty."""

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
    """Recognises an agent's chats by an HTTP header with this value.

    The value is case-sensitive, the name is not. Raises ValueError if a text is empty, or if the
    header identifies a caller (CREDENTIALS)."""

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

    Raises ValueError if an argument is empty or has a wrong type, or if an edge has an undeclared
    agent."""

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
        # Equal declarations have equal keys.
        self.key = repr((self._agents, self.edges))

    def recognise(self, messages: Sequence[Any], headers: Any) -> Optional[str]:
        """Returns the first declared agent that matches the chat, or None.

        `headers` are those of httpx."""
        return next((name for name, one in self._agents.items() if one.matches(messages, headers)), None)


@dataclasses.dataclass(eq=False)
class Call:
    """A chat and its output. The form of a message is the JSON of its fields but the content."""

    texts: Sequence[str]
    forms: Sequence[str]
    # The fields beside the messages that affect the prompt.
    shaping: Mapping[str, Any]
    output: str = ""


class CallMemory:
    """The last call of each agent of one caller in one session, and a pair of calls for each edge.

    Methods may be called from any thread."""

    def __init__(self, edges: Mapping[str, Sequence[str]]) -> None:
        self._edges = edges
        self._lock = threading.Lock()
        # The last call of each agent that has an output.
        self._last: dict[str, Call] = {}
        # By edge: an upstream call and the downstream call that contains its output.
        self._pairs: dict[tuple[str, str], tuple[Call, Call]] = {}

    def begin(self, agent: str, body: Mapping[str, Any], most: int) -> tuple[Optional[Call], list[dict[str, Any]]]:
        """Records a chat before it is sent.

        Returns the call for end() and at most `most` hints. Returns (None, []) if a message of the
        chat has content other than text."""
        call = _read(body)
        if call is None:
            return None, []
        with self._lock:
            for name, upstream in self._last.items():
                stands = (len(_split_at(text, upstream.output)) > 1 for text in call.texts)
                if agent in self._edges.get(name, ()) and any(stands):
                    self._pairs[name, agent] = upstream, call
            pairs = [self._pairs[edge] for name in self._edges.get(agent, ()) if (edge := (agent, name)) in self._pairs]
        return call, [hint for pair in pairs if (hint := _hint(*pair, call)) is not None][:most]

    def end(self, agent: str, call: Call, output: str) -> None:
        """Records the output of a call."""
        if output.strip():
            with self._lock:
                call.output = output
                self._last[agent] = call


def _text_of(message: Any) -> Optional[str]:
    """Returns the content of a message if it is a text or a list of texts. Otherwise None."""
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
    shapes = ("model", "tools", "tool_choice", "chat_template_kwargs", "reasoning_effort")
    return Call(texts, forms, {key: body[key] for key in shapes if body.get(key) is not None})


def _hint(upstream: Call, downstream: Call, call: Call) -> Optional[dict[str, Any]]:
    """Predicts the chat that the downstream agent sends after `call`, as a hint.

    `downstream` is the last call of that agent, after `upstream`. The hint takes the messages that
    `downstream` shares with `upstream` from `call`. The output of `upstream` becomes a placeholder
    for the output of `call`.

    Returns None if `call` has another model than `upstream`, or if the number of placeholders is 0
    or above the server's limit."""
    texts, before = downstream.texts, upstream.texts
    first = {text: place for place, text in reversed(list(enumerate(before))) if text}
    # An agent's chat has its own outputs in the role assistant, and other agents' outputs in
    # another role.
    forms = {}
    for text, form in zip(texts, downstream.forms):
        if text in first:
            forms[upstream.forms[first[text]]] = form
        elif text.strip() == upstream.output.strip():
            forms[_ANSWER] = form
    messages: list[dict[str, Any]] = []
    placeholders = index = 0
    while index < len(texts):
        begin = end = first.get(texts[index], len(before))
        while index < len(texts) and end < len(before) and texts[index] == before[end]:
            index, end = index + 1, end + 1
        if end > begin:
            shared = slice(begin, max(begin, len(call.texts) - (len(before) - end)))
            messages += [{**json.loads(forms.get(form, form)), "content": text}
                         for form, text in zip(call.forms[shared], call.texts[shared])]
            continue
        pieces = _split_at(texts[index], upstream.output)
        parts = [part for piece in pieces for part in ({"type": "output"}, {"type": "text", "text": piece})][1:]
        content = [part for part in parts if part != {"type": "text", "text": ""}]
        messages.append({**json.loads(downstream.forms[index]), "content": content or ""})
        placeholders += len(pieces) - 1
        index += 1
    if upstream.shaping.get("model") != call.shaping.get("model") or not 0 < placeholders <= MAX_PLACEHOLDERS:
        return None
    return {**downstream.shaping, "messages": messages}


def _split_at(text: str, output: str) -> list[str]:
    """Returns the pieces of the text between the copies of the output.

    The text may contain the output without white space at its ends."""
    words = output if output in text else output.strip()
    return text.split(words) if len(words) >= MIN_QUOTE_CHARACTERS or words == text.strip() else [text]
