"""What is likely to be asked after a call that begins now: learned from the calls before, whose outputs stand in others' messages.

No I/O. What comes out is "followers" of Baton's chats: messages in which the call's own output has a place. They shape no answer;
a guess that is wrong costs the server a prefill that nobody waits for."""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import itertools
import json
import os.path
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional, Union

# What is looked at, so that no chat takes long. A call beyond it is neither learned from nor guessed for.
MOST_CHARACTERS = 1 << 18  # of a call's messages; and of all guesses for it
MOST_MESSAGES = 256
MOST_OUTPUT = 1 << 16  # characters
MOST_SOURCES = 8  # outputs that are looked for in a chat, the latest
QUOTED_WITHIN = 1 << 16  # characters at a chat's end in which outputs are looked for that are no whole message
SHORTEST_QUOTE = 16  # characters of such an output
MOST_STEPS = 16  # of a recipe: what comes later is left out
MOST_PARTS = 32  # of a text
MOST_OWN = 16  # places of the call's own output in a follower, as the server has it

# What is kept.
KEPT_CALLS = 32
KEPT_OUTPUTS = 1 << 19  # bytes, of these calls
KEPT_AGENTS = 32  # that have followers
KEPT_LEARNED = 1 << 19  # bytes, of all followers
MOST_LEARNED = 1 << 16  # bytes, of a follower: a prompt with more of its own is not learned
MOST_FOLLOWERS = 4  # of an agent
MOST_VOICES = 8  # of a follower, the latest

MOST_CHANGES = 2  # of a prompt that was learned, until it is given up
MOST_UNUSED = 8  # guesses, one after the other, that were not asked: until it is no longer guessed

Message = dict[str, Any]
Agent = bytes  # SHA-256 of its model, instructions and tools


@dataclasses.dataclass(frozen=True)
class Chat:
    """A call that is about to be sent."""

    agent: Agent
    messages: Sequence[Message]
    texts: Sequence[str]  # theirs
    shaping: str  # JSON: what shapes its prompt beside them
    session: Any  # its session_id; None: it has none


@dataclasses.dataclass(eq=False)
class Call:
    """What is kept of a chat."""

    number: int
    agent: Agent
    marks: Sequence[int]  # hashes of its texts
    sources: frozenset[int]  # calls whose outputs stand in it: their numbers
    session: Any
    output: str = ""


@dataclasses.dataclass(frozen=True)
class Output:
    """An agent's; None: of the call that the guess is made for."""

    agent: Optional[Agent] = None


@dataclasses.dataclass(frozen=True)
class Said:
    """A message: its text, of which parts are outputs, and what it has beside the text."""

    parts: tuple[Union[str, Output], ...]
    rest: str  # JSON


@dataclasses.dataclass(frozen=True)
class Copied:
    """Messages [begin, size - rest) of the call that the guess is made for."""

    begin: int
    rest: int


Step = Union[Said, Copied]


@dataclasses.dataclass
class Follower:
    agent: Agent
    shaping: str
    recipe: tuple[Step, ...]
    voices: dict[Agent, str]  # how outputs are told to it, by author: JSON of the message but its text
    size: int = 0  # bytes
    changes: int = 0
    unused: int = 0


class Foresight:
    """Of calls that may know of each other: of one key and salt. Keeps 1.5 MB at most. May be used by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._calls: collections.deque[Call] = collections.deque()  # those that answered last at the end
        self._followers: collections.OrderedDict[Agent, list[Follower]] = collections.OrderedDict()

    def begin(self, body: Mapping[str, Any], most: int) -> tuple[Optional[Call], list[dict[str, Any]]]:
        """A chat is about to be sent: what End wants to be told, and at most so many guesses. None: a chat that says nothing."""
        chat = _read(body)
        if chat is None:
            return None, []
        with self._lock:
            sources = self._sources(chat)
            authors = {call.output.strip(): call.agent for call in self._calls}
            self._learn(chat, sources, authors)
            call = Call(next(self._numbers), chat.agent, tuple(map(hash, chat.texts)), frozenset(one.number for one in sources),
                        chat.session)
            return call, self._guesses(chat, sources, authors, most)

    def end(self, call: Call, output: str) -> None:
        """What the call answered."""
        if not output.strip() or len(output) > MOST_OUTPUT:
            return
        with self._lock:
            call.output = output
            self._calls.append(call)
            while len(self._calls) > KEPT_CALLS or sum(sys.getsizeof(one.output) for one in self._calls) > KEPT_OUTPUTS:
                self._calls.popleft()

    def _sources(self, chat: Chat) -> list[Call]:
        """The calls whose outputs stand in the chat, the latest first. They have its session, because the server prefills
        a follower in the session of the call that names it."""
        whole = {text.strip() for text in chat.texts}
        within = "\0".join(chat.texts)[-QUOTED_WITHIN:]
        found = (call for call in reversed(self._calls) if call.session == chat.session
                 and ((words := call.output.strip()) in whole or (len(words) >= SHORTEST_QUOTE and words in within)))
        return list(itertools.islice(found, MOST_SOURCES))

    def _learn(self, chat: Chat, sources: Sequence[Call], authors: Mapping[str, Agent]) -> None:
        """Of the calls whose outputs stand in this one: those that did not stand in another's of these before."""
        split = functools.cache(lambda text: _split(text, sources))
        for source in sources:
            if any(source.number in other.sources for other in sources):
                continue
            follower = Follower(chat.agent, chat.shaping, _recipe(chat, source, split), _voices(chat, authors))
            if not _has_own(follower.recipe):
                continue
            known = self._followers.get(source.agent, [])
            before = next((one for one in known if one.agent == chat.agent), None)
            if before is not None:
                _merge(before, follower)
            follower.size = _size(follower)
            if follower.size > MOST_LEARNED:
                continue
            self._followers[source.agent] = [*(one for one in known if one is not before), follower][-MOST_FOLLOWERS:]
            self._followers.move_to_end(source.agent)
        while len(self._followers) > KEPT_AGENTS or self._learned() > KEPT_LEARNED:
            self._followers.popitem(last=False)

    def _learned(self) -> int:
        """Bytes."""
        return sum(follower.size for known in self._followers.values() for follower in known)

    def _guesses(self, chat: Chat, sources: Sequence[Call], authors: Mapping[str, Agent], most: int) -> list[dict[str, Any]]:
        guesses: list[dict[str, Any]] = []
        room = MOST_CHARACTERS
        for follower in reversed(self._followers.get(chat.agent, [])):
            if len(guesses) == most or follower.changes >= MOST_CHANGES or follower.unused >= MOST_UNUSED:
                continue
            guess = _guess(chat, follower, sources, authors, room)
            if guess is not None:
                follower.unused += 1
                room -= sum(map(_length, guess))
                guesses.append({**json.loads(follower.shaping), "messages": guess})
        return guesses


def _text_of(message: Any) -> Optional[str]:
    """A content that is text, or parts that are. None: there is something else in it, or none."""
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list):
        return content if isinstance(content, str) else None
    parts = [part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None for part in content]
    return "".join(parts) if all(isinstance(part, str) for part in parts) else None  # type: ignore[arg-type]


def _length(message: Message) -> int:
    content = message["content"]
    return len(content) if isinstance(content, str) else sum(len(part.get("text", "")) for part in content)


def _read(body: Mapping[str, Any]) -> Optional[Chat]:
    """None: it has no instructions to know its agent by, messages that are not text alone, or too much of them."""
    messages = body.get("messages")
    if not isinstance(messages, list) or len(messages) > MOST_MESSAGES:
        return None
    texts: list[str] = []
    for message in messages:
        text = _text_of(message)
        if text is None:
            return None
        texts.append(text)
    instructions = [text for message, text in zip(messages, texts) if message.get("role") in ("system", "developer")]
    if not instructions or sum(map(len, texts)) > MOST_CHARACTERS:
        return None
    shapes = ("model", "tools", "tool_choice", "chat_template_kwargs")
    shaping = json.dumps({key: body[key] for key in shapes if body.get(key) is not None})
    agent = hashlib.sha256(json.dumps([body.get("model"), body.get("tools"), instructions]).encode()).digest()
    return Chat(agent, messages, texts, shaping, body.get("session_id"))


def _rest(message: Message) -> str:
    return json.dumps({key: value for key, value in message.items() if key != "content" and value is not None})


def _recipe(chat: Chat, source: Call, split: Callable[[str], list[Union[str, Call]]]) -> tuple[Step, ...]:
    """The chat's messages as far as they can be known while the source answers."""
    marks = tuple(map(hash, chat.texts))
    places = {mark: place for place, mark in reversed(list(enumerate(source.marks)))}  # the first of each
    steps: list[Step] = []
    index = 0
    while index < len(marks) and len(steps) < MOST_STEPS:
        begin = places.get(marks[index]) if chat.texts[index] else None
        if begin is None:
            parts = (part if isinstance(part, str) else Output(None if part is source else part.agent)
                     for part in split(chat.texts[index]))
            steps.append(Said(tuple(parts), _rest(chat.messages[index])))
            index += 1
            continue
        size = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(marks[index:], source.marks[begin:])))
        steps.append(Copied(begin, len(source.marks) - begin - size))
        index += size
    return tuple(steps)


def _split(text: str, sources: Sequence[Call]) -> list[Union[str, Call]]:
    """The text, with calls in place of what stands there of their outputs."""
    found = []  # where the next one is, its words, and whose
    for call in sources:
        for words in dict.fromkeys((call.output, call.output.strip())):
            if words == text:
                return [call]
            if len(words) >= SHORTEST_QUOTE and (place := text.find(words)) >= 0:
                found.append((place, words, call))
                break
    parts: list[Union[str, Call]] = []
    at = 0
    while found and len(parts) < MOST_PARTS:
        place, words, call = min(found, key=lambda one: (one[0], -len(one[1])))
        parts += [text[at:place], call] if place > at else [call]
        at = place + len(words)
        found = [(text.find(words, at) if place < at else place, words, call) for place, words, call in found]
        found = [one for one in found if one[0] >= 0]
    return [*parts, text[at:]] if at < len(text) else parts


def _voices(chat: Chat, authors: Mapping[str, Agent]) -> dict[Agent, str]:
    told = [(author, _rest(message)) for message, text in zip(chat.messages, chat.texts)
            if (author := authors.get(text.strip())) is not None]
    return dict(told[-MOST_VOICES:])


def _size(follower: Follower) -> int:
    said = [step for step in follower.recipe if isinstance(step, Said)]
    parts = [part for step in said for part in step.parts if isinstance(part, str)]
    return sum(map(sys.getsizeof, (follower.shaping, *follower.voices.values(), *(step.rest for step in said), *parts)))


def _merge(before: Follower, now: Follower) -> None:
    """What was known of the follower into what is now: of the recipes, what both begin with."""
    older = {author: voice for author, voice in before.voices.items() if author not in now.voices}
    now.voices = dict([*older.items(), *now.voices.items()][-MOST_VOICES:])
    shared = _shared(before.recipe, now.recipe)
    if _has_own(shared):
        now.recipe = shared
    else:
        now.changes = before.changes + 1


def _guess(chat: Chat, follower: Follower, sources: Sequence[Call], authors: Mapping[str, Agent],
           room: int) -> Optional[list[Message]]:
    """Its messages, as far as they are known; None: that does not reach the call's own output, or has more characters."""
    messages: list[Message] = []
    own = 0
    for step in follower.recipe:
        if isinstance(step, Copied):
            for index in range(step.begin, len(chat.messages) - step.rest):
                messages.append(_told(chat.messages[index], authors.get(chat.texts[index].strip()), follower))
                room -= len(chat.texts[index])
        else:
            content = [_part(part, sources) for part in step.parts]
            known = [part for part in itertools.takewhile(lambda part: part is not None, content) if part is not None]
            own += sum(part["type"] == "output" for part in known)
            if known:
                messages.append({**json.loads(step.rest), "content": known})
                room -= _length(messages[-1])
            if len(known) < len(content):
                break
        if room < 0:
            return None
    return messages if 0 < own <= MOST_OWN else None


def _told(message: Message, author: Optional[Agent], follower: Follower) -> Message:
    """A message of the call as the follower is told it: what is an output of its own to one is another's to the other."""
    if author in follower.voices:
        return {**json.loads(follower.voices[author]), "content": message["content"]}
    return {"role": "assistant", "content": message["content"]} if author == follower.agent else message


def _part(part: Union[str, Output], sources: Sequence[Call]) -> Optional[Message]:
    if isinstance(part, Output) and part.agent is None:
        return {"type": "output"}
    text = part if isinstance(part, str) else next((one.output for one in sources if one.agent == part.agent), None)
    return None if text is None else {"type": "text", "text": text}


def _has_own(recipe: Sequence[Step]) -> bool:
    return any(isinstance(step, Said) and Output() in step.parts for step in recipe)


def _shared(one: Sequence[Step], other: Sequence[Step]) -> tuple[Step, ...]:
    """What both begin with."""
    steps: list[Step] = []
    for a, b in zip(one, other):
        if a == b:
            steps.append(a)
            continue
        if isinstance(a, Said) and isinstance(b, Said) and a.rest == b.rest:
            parts: list[Union[str, Output]] = []
            for x, y in zip(a.parts, b.parts):
                if x == y:
                    parts.append(x)
                    continue
                if isinstance(x, str) and isinstance(y, str) and (words := os.path.commonprefix([x, y])):
                    parts.append(words)
                break
            if parts:
                steps.append(Said(tuple(parts), a.rest))
        break
    return tuple(steps)
