"""What is likely to be asked after a call that begins now: learned from the calls before, whose outputs stand in others' messages.

No I/O. What comes out is "followers" of Baton's chats: messages in which the call's own output has a place. They shape no answer;
a guess that is wrong costs the server a prefill that nobody waits for."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import json
import os.path
import threading
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Optional, Union

KEPT_CALLS = 64
KEPT_CHARACTERS = 4 << 20  # of these calls
MOST_CHARACTERS = 1 << 18  # of a call; a longer one is neither learned from nor guessed for
MOST_MESSAGES = 256  # likewise
MOST_LITERALS = 1 << 16  # characters of its own, tools' too, in a prompt that is learned
KEPT_AGENTS = 32
MOST_FOLLOWERS = 4  # of an agent
MOST_SOURCES = 8  # outputs that are looked for in a chat, the latest
SHORTEST_QUOTE = 16  # characters of an output that is looked for within a text; a shorter one only as the whole of it
MOST_CHANGES = 2  # of a prompt that was learned, until it is given up
MOST_UNUSED = 8  # guesses, one after the other, that were not asked: until it is no longer guessed

Message = dict[str, Any]
Agent = Hashable


@dataclasses.dataclass(eq=False)
class Call:
    agent: Agent
    body: dict[str, Any]
    size: int
    text: str = ""  # its output; empty: not there yet, or no text

    @property
    def messages(self) -> Sequence[Message]:
        return self.body["messages"]  # type: ignore[no-any-return]


@dataclasses.dataclass(frozen=True)
class Output:
    """An agent's; None: of the call that the guess is made for."""

    agent: Agent = None


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
    body: dict[str, Any]  # of its call: what shapes the prompt, but for the messages
    recipe: tuple[Step, ...]
    voices: dict[Agent, Message]  # how outputs are told to it, by author: all of the message but its text
    changes: int = 0
    unused: int = 0


def text_of(message: Message) -> Optional[str]:
    """A content that is text, or parts that are. None: there is something else in it, or none."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    parts = [part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None for part in content]
    return "".join(parts) if all(isinstance(part, str) for part in parts) else None  # type: ignore[arg-type]


class Foresight:
    """Of calls that may know of each other: of one server, key and salt. May be used by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: collections.deque[Call] = collections.deque()  # those that answered last at the end
        self._followers: collections.OrderedDict[Agent, list[Follower]] = collections.OrderedDict()

    def begin(self, body: dict[str, Any], most: int) -> tuple[Optional[Call], list[dict[str, Any]]]:
        """A chat is about to be sent: what End wants to be told, and at most so many guesses. None: a chat that says nothing."""
        agent = _agent(body)
        size = len(json.dumps(body))
        if agent is None or size > MOST_CHARACTERS or len(body["messages"]) > MOST_MESSAGES:
            return None, []
        call = Call(agent, body, size)
        with self._lock:
            sources = list(itertools.islice((one for one in reversed(self._calls) if _quotes(call, one)), MOST_SOURCES))
            self._learn(call, sources)
            guesses: list[dict[str, Any]] = []
            for follower in reversed(self._followers.get(agent, [])):
                if len(guesses) == most or follower.changes >= MOST_CHANGES or follower.unused >= MOST_UNUSED:
                    continue
                if (guess := _guess(call, follower, sources)) is not None:
                    follower.unused += 1
                    guesses.append(guess)
            return call, guesses

    def end(self, call: Call, text: str) -> None:
        """What the call answered."""
        if not text.strip() or len(text) > MOST_CHARACTERS:
            return
        with self._lock:
            call.text = text
            call.size += len(text)
            self._calls.append(call)
            while len(self._calls) > KEPT_CALLS or sum(one.size for one in self._calls) > KEPT_CHARACTERS:
                self._calls.popleft()

    # --- learning ---------------------------------------------------------------------------------------------------

    def _learn(self, call: Call, sources: Sequence[Call]) -> None:
        """Of the calls whose outputs stand in this one: those that did not stand in another's of these before."""
        for source in sources:
            if any(_quotes(other, source) for other in sources):
                continue
            recipe = _recipe(call, source, sources)
            shaping = {key: call.body[key] for key in ("model", "tools", "tool_choice") if call.body.get(key) is not None}
            if not _has_own(recipe) or _literals(recipe) + len(json.dumps(shaping)) > MOST_LITERALS:
                continue
            known = self._followers.setdefault(source.agent, [])
            self._followers.move_to_end(source.agent)
            before = next((one for one in known if one.agent == call.agent), None)
            follower = Follower(call.agent, shaping, recipe, _voices(call, sources))
            if before is not None:
                known.remove(before)
                follower.voices = before.voices | follower.voices
                shared = _shared(before.recipe, recipe)
                follower.changes = 0 if _has_own(shared) else before.changes + 1
                follower.recipe = shared if _has_own(shared) else recipe
            known.append(follower)
            del known[:-MOST_FOLLOWERS]
        while len(self._followers) > KEPT_AGENTS:
            self._followers.popitem(last=False)


def _quoted(output: str, text: str) -> Optional[str]:
    """What of the text is this output, whole or without the white space around it."""
    for words in (output, output.strip()):
        if words and (words == text or (len(words) >= SHORTEST_QUOTE and words in text)):
            return words
    return None


def _quotes(call: Call, source: Call) -> bool:
    return call is not source and any(_quoted(source.text, text_of(message) or "") for message in call.messages)


def _rest(message: Message) -> Message:
    return {key: value for key, value in message.items() if key != "content" and value is not None}


def _agent(body: dict[str, Any]) -> Agent:
    """By its instructions; None: it has none, or messages that are not text alone."""
    messages = body["messages"]
    texts = [text_of(message) for message in messages]
    instructions = tuple(text for message, text in zip(messages, texts) if message.get("role") in ("system", "developer"))
    if not instructions or any(text is None for text in texts):
        return None
    return (body.get("model"), json.dumps(body.get("tools")), instructions)


def _recipe(call: Call, source: Call, sources: Sequence[Call]) -> tuple[Step, ...]:
    """The call's messages as far as they can be known while the source answers."""
    theirs = [text_of(message) for message in source.messages]
    mine = [text_of(message) or "" for message in call.messages]
    steps: list[Step] = []
    index = 0
    while index < len(mine):
        begin, size = _longest_run(mine, index, theirs)
        if size > 0:
            steps.append(Copied(begin, len(theirs) - begin - size))
            index += size
            continue
        steps.append(Said(_parts(mine[index], source, sources), json.dumps(_rest(call.messages[index]))))
        index += 1
    return tuple(steps)


def _longest_run(mine: Sequence[str], index: int, theirs: Sequence[Optional[str]]) -> tuple[int, int]:
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


def _parts(text: str, source: Call, sources: Sequence[Call]) -> tuple[Union[str, Output], ...]:
    for one in (source, *(other for other in sources if other is not source)):
        if words := _quoted(one.text, text):
            before, after = text.split(words, 1)
            output = Output(None if one is source else one.agent)
            return (*(_parts(before, source, sources) if before else ()), output,
                    *(_parts(after, source, sources) if after else ()))
    return (text,)


def _voices(call: Call, sources: Sequence[Call]) -> dict[Agent, Message]:
    voices: dict[Agent, Message] = {}
    for message in call.messages:
        text = text_of(message) or ""
        author = next((one.agent for one in sources if one.text.strip() == text.strip()), None)
        if author is not None:
            voices[author] = _rest(message)
    return voices


def _told(message: Message, follower: Follower, sources: Sequence[Call]) -> Message:
    """A message of the call as the follower is told it: what is an output of its own to one is another's to the other."""
    text = (text_of(message) or "").strip()
    author = next((one.agent for one in sources if one.text.strip() == text), None)
    voice = follower.voices.get(author)
    if author is not None and voice is None and author == follower.agent:
        voice = {"role": "assistant"}
    return message if author is None or voice is None else {**voice, "content": message["content"]}


def _guess(call: Call, follower: Follower, sources: Sequence[Call]) -> Optional[dict[str, Any]]:
    """As far as it is known; None: that does not reach the call's own output."""
    messages: list[Message] = []
    for step in follower.recipe:
        if isinstance(step, Copied):
            copied = call.messages[step.begin:max(len(call.messages) - step.rest, 0)]
            messages += [_told(message, follower, sources) for message in copied]
            continue
        content = [_part(part, sources) for part in step.parts]
        known = content[:content.index(None)] if None in content else content
        if known:
            messages.append({**json.loads(step.rest), "content": known})
        if known != content:
            break
    own = any(isinstance(message["content"], list) and {"type": "output"} in message["content"] for message in messages)
    return {**follower.body, "messages": messages} if own else None


def _part(part: Union[str, Output], sources: Sequence[Call]) -> Optional[Message]:
    if isinstance(part, Output) and part.agent is None:
        return {"type": "output"}
    text = part if isinstance(part, str) else next((one.text for one in sources if one.agent == part.agent), None)
    return None if text is None else {"type": "text", "text": text}


def _has_own(recipe: Sequence[Step]) -> bool:
    return any(isinstance(step, Said) and Output() in step.parts for step in recipe)


def _literals(recipe: Sequence[Step]) -> int:
    return sum(len(part) for step in recipe if isinstance(step, Said) for part in step.parts if isinstance(part, str))


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
