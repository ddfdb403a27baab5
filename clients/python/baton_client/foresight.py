"""Which agent's prompt will contain the output of a call that begins now: learned from the calls before.

No I/O: calls begin and end, and what is likely to be asked next comes out, as OpenAI chats in which that output is a
reference. A guess that is wrong costs the server a prefill; no call depends on one."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import json
import threading
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Union

KEPT_CALLS = 256
KEPT_AGENTS = 256
MOST_FOLLOWERS = 8  # of one call
SHORTEST_QUOTE = 16  # characters of an output that is looked for within a text; a shorter one only as the whole of it
MOST_CHANGES = 2  # of a prompt that was learned, one after the other: then it is no longer guessed
INHERITED = ("session_id", "cache_salt")  # a follower's own, or the same as its upstream's

Message = dict[str, Any]
Agent = Hashable


@dataclasses.dataclass
class Call:
    """One that began. Its agent is told by model, tools and instructions."""

    id: str
    order: int
    agent: Agent
    body: dict[str, Any]
    text: str = ""  # its output; empty: not there yet, or no text
    ended: int | None = None  # when, in the order of what happens

    @property
    def messages(self) -> Sequence[Message]:
        return self.body["messages"]


@dataclasses.dataclass(frozen=True)
class Output:
    """Of the latest call of an agent. `beside`: which ran while the call that the guess is made for began."""

    agent: Agent
    beside: bool


@dataclasses.dataclass(frozen=True)
class Said:
    """A message: its text, of which parts are outputs."""

    role: str
    name: str | None
    parts: tuple[Union[str, Output], ...]


@dataclasses.dataclass(frozen=True)
class Copied:
    """Messages [begin, size - rest) of the upstream's own prompt. Others' outputs in them have this role; the follower's own
    are the assistant's."""

    begin: int
    rest: int
    others: str | None


@dataclasses.dataclass
class Follower:
    agent: Agent
    body: dict[str, Any]  # of its call, but for the messages
    recipe: tuple[Union[Said, Copied], ...]  # up to the last output: what comes after it may be anything
    changes: int = 0  # since it was last learned twice alike


def text_of(message: Message) -> str | None:
    """A content that is text, or parts that are. None: there is something else in it, or none."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    parts = [part.get("text") if isinstance(part, dict) else None for part in content]
    return "".join(parts) if all(isinstance(part, str) for part in parts) else None  # type: ignore[arg-type]


def _quoted(output: str, text: str) -> str | None:
    """What of the text is this output, whole or without the white space around it."""
    for words in (output, output.strip()):
        if words and (words == text or (len(words) >= SHORTEST_QUOTE and words in text)):
            return words
    return None


class Foresight:
    """May be used by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clock = itertools.count(1)
        self._calls: collections.OrderedDict[str, Call] = collections.OrderedDict()
        # By agent: the call that others followed last, and they.
        self._followers: collections.OrderedDict[Agent, tuple[str, list[Follower]]] = collections.OrderedDict()

    def begin(self, id: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        """A chat is about to be sent. What is likely to follow it: chats in OpenAI's shape, to be prefilled only."""
        with self._lock:
            sources = self._sources(body)
            call = Call(id, next(self._clock), _agent(body, sources), body)
            self._learn(call, sources)
            self._calls[id] = call
            while len(self._calls) > KEPT_CALLS:
                self._calls.popitem(last=False)
            _, followers = self._followers.get(call.agent, ("", []))
            guesses = [self._guess(call, one) for one in followers if one.changes < MOST_CHANGES]
            return [guess for guess in guesses if guess is not None]

    def end(self, id: str, text: str | None) -> None:
        """What the call answered. None: it failed, or was given up."""
        with self._lock:
            call = self._calls.get(id)
            if call is None:
                return
            if text is None:
                del self._calls[id]
            else:
                call.text, call.ended = text, next(self._clock)

    def _latest(self, agent: Agent, but: Call | None = None) -> Call | None:
        return next((call for call in reversed(self._calls.values()) if call.agent == agent and call is not but), None)

    def _sources(self, body: dict[str, Any]) -> list[Call]:
        """Calls whose outputs stand in this chat, the one that began last first."""
        texts = [text for message in body["messages"] if (text := text_of(message))]
        return [call for call in reversed(self._calls.values())
                if call.text and any(_quoted(call.text, text) for text in texts)]

    def _learn(self, call: Call, sources: list[Call]) -> None:
        if not sources:
            return
        last = sources[0]
        beside = [other for other in sources[1:] if other.ended is None or other.ended > last.order]
        for upstream in (last, *beside):  # whichever of them begins last the next time
            recipe = tuple(_trim(self._recipe(call, upstream, sources)))
            known, followers = self._followers.get(upstream.agent, ("", []))
            before = next((one for one in followers if one.agent == call.agent), None)
            body = {key: value for key, value in call.body.items() if key != "messages"}
            for key in INHERITED:
                if body.get(key) == upstream.body.get(key):
                    body.pop(key, None)
            changed = before is not None and before.recipe != recipe
            follower = Follower(call.agent, body, recipe, before.changes + 1 if before is not None and changed else 0)
            others = [one for one in followers if one.agent != call.agent] if known == upstream.id else []
            self._followers[upstream.agent] = (upstream.id, [*others, follower][-MOST_FOLLOWERS:])
            self._followers.move_to_end(upstream.agent)
        while len(self._followers) > KEPT_AGENTS:  # some have another name in each call
            self._followers.popitem(last=False)

    def _recipe(self, call: Call, upstream: Call, sources: list[Call]) -> Iterator[Union[Said, Copied]]:
        theirs = [text_of(message) for message in upstream.messages]
        mine = [text_of(message) for message in call.messages]
        others = next((message["role"] for message, text in zip(call.messages, mine) if text and
                       text.strip() == upstream.text.strip()), None)
        index = 0
        while index < len(mine):
            begin, size = _longest_run(mine, index, theirs)
            if size > 0:
                yield Copied(begin, len(theirs) - begin - size, others)
                index += size
                continue
            message = call.messages[index]
            yield Said(message["role"], message.get("name"), _parts(mine[index] or "", upstream, sources))
            index += 1

    def _guess(self, call: Call, follower: Follower) -> dict[str, Any] | None:
        messages: list[Message] = []
        for step in follower.recipe:
            made = self._copy(call, follower, step) if isinstance(step, Copied) else self._say(call, step)
            if not made:
                return None
            messages += made
        body = {key: call.body[key] for key in INHERITED if key in call.body} | follower.body
        return body | {"messages": messages}

    def _copy(self, call: Call, follower: Follower, step: Copied) -> list[Message]:
        return [self._copied(message, follower, step)
                for message in call.messages[step.begin:max(len(call.messages) - step.rest, 0)]]

    def _copied(self, message: Message, follower: Follower, step: Copied) -> Message:
        text = text_of(message)
        author = next((call.agent for call in reversed(self._calls.values()) if call.text and call.text == text), None)
        role = message["role"]
        if author is not None:
            role = "assistant" if author == follower.agent else step.others or role
        return message if role == message["role"] else {"role": role, "content": message["content"]}

    def _say(self, call: Call, step: Said) -> list[Message]:
        """Nothing, if there is no such output."""
        parts: list[Any] = []
        for part in step.parts:
            known = part if isinstance(part, str) else self._output(call, part)
            if known is None:
                return []
            parts.append(known)
        if all(isinstance(part, str) for part in parts):
            content: Any = "".join(parts)
        else:
            content = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts if part]
        return [{"role": step.role, "content": content} | ({"name": step.name} if step.name else {})]

    def _output(self, call: Call, part: Output) -> Any:
        """As text, where it is known: the prompt will have it so."""
        source = call if part.agent == call.agent else self._latest(part.agent, but=call)
        if source is None or (part.beside and source is not call and source.ended is not None):
            return None
        if source.ended is not None:
            return source.text
        return {"type": "output_of", "output_of": {"request_id": source.id, "announced": True}}


def _longest_run(mine: Sequence[str | None], index: int, theirs: Sequence[str | None]) -> tuple[int, int]:
    """Of mine[index:], what theirs have one after the other: from where, and how many."""
    best = (0, 0)
    for begin in range(len(theirs)):
        size = 0
        while (index + size < len(mine) and begin + size < len(theirs) and mine[index + size]
               and mine[index + size] == theirs[begin + size]):
            size += 1
        if size > best[1]:
            best = (begin, size)
    return best


def _parts(text: str, upstream: Call, sources: Sequence[Call]) -> tuple[Union[str, Output], ...]:
    for source in (upstream, *(one for one in sources if one is not upstream)):
        words = _quoted(source.text, text)
        if words is None:
            continue
        before, after = text.split(words, 1)
        beside = source is not upstream and (source.ended is None or source.ended > upstream.order)
        return (*(_parts(before, upstream, sources) if before else ()), Output(source.agent, beside),
                *(_parts(after, upstream, sources) if after else ()))
    return (text,)


def _trim(recipe: Iterator[Union[Said, Copied]]) -> list[Union[Said, Copied]]:
    """Without what comes after the last output."""
    steps = list(recipe)
    while steps:
        last = steps[-1]
        if isinstance(last, Said):
            parts = list(last.parts)
            while parts and isinstance(parts[-1], str):
                parts.pop()
            if parts:
                return [*steps[:-1], dataclasses.replace(last, parts=tuple(parts))]
        steps.pop()
    return steps


def _agent(body: dict[str, Any], sources: Sequence[Call]) -> Agent:
    """By its instructions, less the outputs in them; without any, by all that it is asked."""
    instructions = [message for message in body["messages"] if message.get("role") in ("system", "developer")]
    asked = instructions or (body["messages"] if sources else [])
    words = []
    for message in asked:
        parts = _parts(text_of(message) or "", sources[0], sources) if sources else (text_of(message),)
        words.append(tuple(part for part in parts if isinstance(part, str)))
    return (body.get("model"), json.dumps(body.get("tools")), tuple(words))
