"""Prompts with known answers, and the threads that repeat them over HTTP."""

import dataclasses
import http.client
import json
import random
import re
import threading
import time

# Deadline of a request. It bounds the run if a stream hangs.
REQUEST_SECONDS = 120
# Upper bound on turns at a time when turns arrive at a fixed rate.
MOST_TURNS = 256
# Kinds of requests. A turn is a plain request, the two requests of a session or those of a graph.
KINDS = ("plain", "session", "next_turn", "graph")
TURNS = ("plain", "session", "graph")
# New tokens of a session's second prompt, after the first prompt and its answer.
NEXT_TOKENS = 8


@dataclasses.dataclass
class Answer:
    """One request, as its client saw it. Times are of time.monotonic()."""
    kind: str
    tokens: list = dataclasses.field(default_factory=list)
    text: str = ""
    usage: dict = dataclasses.field(default_factory=dict)
    error: str = ""
    begun: float = 0.0
    first: float = 0.0
    ended: float = 0.0
    longest_gap: float = 0.0
    wrong: str = ""  # how it differs from the known answer

    def add(self, ids):
        now = time.monotonic()
        if self.tokens:
            self.longest_gap = max(self.longest_gap, now - self.ended)
        else:
            self.first = now
        self.ended = now
        self.tokens += ids

    def difference(self, known):
        """Returns how an answer differs from the known one, or an empty text.

        A stream that ended with an error must have the beginning of the known answer.
        """
        for at, (token, expected) in enumerate(zip(self.tokens, known.tokens)):
            if token != expected:
                return f"token {at} is {token} instead of {expected}"
        if len(self.tokens) > len(known.tokens) or not self.error and len(self.tokens) < len(known.tokens):
            return f"{len(self.tokens)} tokens instead of {len(known.tokens)}"
        if self.text != (known.text[:len(self.text)] if self.error else known.text):
            return f"the text {self.text!r} instead of {known.text!r}"
        for name in () if self.error else ("prompt_tokens", "completion_tokens"):
            if self.usage.get(name) != known.usage.get(name):
                return f"{self.usage.get(name)} {name} instead of {known.usage.get(name)}"
        return ""


def generate(address, kind, body):
    """Sends a request and reads its stream."""
    answer = Answer(kind, begun=time.monotonic())
    connection = http.client.HTTPConnection(address, timeout=REQUEST_SECONDS)
    try:
        connection.request("POST", f"/generate?stream=true&timeout_ms={REQUEST_SECONDS * 1000}", json.dumps(body))
        answer.error = _read(connection.getresponse(), answer)
    except (OSError, ValueError, http.client.HTTPException) as error:
        answer.error = f"{type(error).__name__}: {error}"
    finally:
        connection.close()
    answer.ended = time.monotonic()
    return answer


def _read(response, answer):
    """Adds the tokens of a stream to the answer. Returns the error, or an empty text."""
    if response.status != 200:
        return f"HTTP {response.status}: {response.read().decode(errors='replace')[:200]}"
    ended = False
    for line in response:
        if not line.startswith(b"data: "):
            continue
        event = line[6:].strip()
        if event == b"[DONE]":
            break
        message = json.loads(event)
        if "error" in message:
            return str(message["error"])[:200]
        if ids := message.get("token_ids"):
            answer.add(ids)
        answer.text += message.get("text", "")
        if final := message.get("final"):
            answer.usage, ended = final["usage"], True
    return "" if ended else "the stream ended without a last message"


class Prompts:
    """Prompts, and the answers that they had without faults.

    Half of the prompts are sampled with a seed and a penalty, and half of these have a stop string.
    """

    COUNT = 13  # Turn after turn, each prompt thus gets each kind of turn.

    def __init__(self, address, tokens, seed):
        self._address, self._tokens = address, tokens
        drawn = random.Random(seed)
        self._prompts = [self._draw(drawn, drawn.randrange(16, 96)) for _ in range(self.COUNT)]
        self._next = [self._draw(drawn, NEXT_TOKENS) for _ in range(self.COUNT)]
        self._sampling = [{"temperature": 0.8, "seed": i, "frequency_penalty": 0.5} if i % 2 else {"temperature": 0}
                          for i in range(self.COUNT)]
        for number in range(1, self.COUNT, 4):
            self._sampling[number] |= _stop_within(self._ask("known", number, "plain", "known")[0].text)
        self._known = {(number, kind): self._ask("known", number, kind, "known") for number in range(self.COUNT)
                       for kind in ("session", "graph")}
        errors = [answer.error for answers in self._known.values() for answer in answers if answer.error]
        if errors:
            raise RuntimeError(f"a request without faults failed: {errors[0]}")

    @staticmethod
    def _draw(drawn, length):
        return [drawn.randrange(5, 200) for _ in range(length)]

    def turn(self, number):
        """Runs turn `number` of the load. Returns the answers of its one or two requests."""
        prompt, kind = number % self.COUNT, TURNS[number % len(TURNS)]
        # Half of the requests find no KV of other turns.
        salt = f"turn-{number}" if kind == "graph" or number % 2 else "shared"
        answers = self._ask(f"turn-{number}", prompt, kind, salt)
        for answer, known in zip(answers, self._known[prompt, "graph" if kind == "graph" else "session"]):
            answer.wrong = answer.difference(known)
        return answers

    def _ask(self, name, number, kind, salt):
        if kind == "session":
            return self._ask_session(name, number, salt)
        if kind == "graph":
            return self._ask_graph(name, number, salt)
        return [generate(self._address, kind, self._body(number, [], salt))]

    def _body(self, number, further, salt, **fields):
        segments = [{"token_ids": {"ids": self._prompts[number]}}, *further]
        sampling = {**self._sampling[number], "max_tokens": self._tokens, "ignore_eos": True}
        return {"segments": {"segments": segments}, "sampling": sampling, "cache_salt": salt, **fields}

    def _ask_session(self, name, number, salt):
        """Sends a prompt, and then the prompt with its answer and new tokens."""
        first = generate(self._address, "session", self._body(number, [], salt, session_id=name))
        if first.error:
            return [first]
        further = [{"token_ids": {"ids": first.tokens + self._next[number]}}]
        return [first, generate(self._address, "next_turn", self._body(number, further, salt, session_id=name))]

    def _ask_graph(self, name, number, salt):
        """Sends a prompt, and another one that has the output of the first one."""
        upstream = f"{name}-{number}"
        reader = self._body(number, [{"output_of": {"request_id": upstream, "announced": True}}], salt)
        bodies = [self._body(number, [], salt, request_id=upstream), reader]
        answers = [None, None]

        def ask(index):
            answers[index] = generate(self._address, "graph", bodies[index])

        # The reader is sent first, so that its prompt is prefilled while the other request decodes.
        threads = [threading.Thread(target=ask, args=[index]) for index in (1, 0)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return answers


def _stop_within(text):
    """Returns a field with the last run of three printable characters, or no field."""
    found = re.findall(r"[!-~]{3}", text)
    return {"stop": found[-1:]} if found else {}


class Load:
    """Runs turns until a number of requests or a time is reached, and keeps the answers."""

    def __init__(self, prompts):
        self._prompts = prompts
        self._lock = threading.Lock()
        self._begun = 0
        self.answers = []
        self.shed = 0  # turns that were left out because MOST_TURNS were running

    def _next(self):
        with self._lock:
            self._begun += 1
            return self._begun - 1

    def _turn(self):
        answers = self._prompts.turn(self._next())
        with self._lock:
            self.answers += answers

    def run_streams(self, streams, requests, seconds):
        """Keeps `streams` turns running."""
        end, most = time.monotonic() + seconds, len(self.answers) + requests

        def repeat():
            while time.monotonic() < end and len(self.answers) < most:
                self._turn()

        threads = [threading.Thread(target=repeat) for _ in range(streams)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def run_rate(self, rate, requests, seconds):
        """Begins `rate` turns per second, whether earlier turns have ended or not."""
        begin, most, turns, threads = time.monotonic(), len(self.answers) + requests, 0, []
        while (due := begin + turns / rate) < begin + seconds and len(self.answers) < most:
            time.sleep(max(0, due - time.monotonic()))
            turns += 1
            threads = [thread for thread in threads if thread.is_alive()]
            if len(threads) == MOST_TURNS:
                self.shed += 1
                continue
            threads.append(threading.Thread(target=self._turn))
            threads[-1].start()
        for thread in threads:
            thread.join()
