"""Prompts with known answers, and the threads that repeat them over HTTP."""

import dataclasses
import http.client
import json
import random
import threading
import time

# Deadline of a request. It bounds the run if a stream hangs.
REQUEST_SECONDS = 120
# Upper bound on turns at a time when turns arrive at a fixed rate.
MOST_TURNS = 256
KINDS = ("plain", "session", "graph")


@dataclasses.dataclass
class Answer:
    """One request, as its client saw it. Times are of time.monotonic()."""
    kind: str
    tokens: list = dataclasses.field(default_factory=list)
    error: str = ""
    begun: float = 0.0
    first: float = 0.0
    ended: float = 0.0
    longest_gap: float = 0.0
    wrong: bool = False

    def add(self, ids):
        now = time.monotonic()
        if self.tokens:
            self.longest_gap = max(self.longest_gap, now - self.ended)
        else:
            self.first = now
        self.ended = now
        self.tokens += ids


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
        ended |= "final" in message
    return "" if ended else "the stream ended without a last message"


class Prompts:
    """Prompts, and the answers that they had without faults."""

    COUNT = 12

    def __init__(self, address, tokens, seed):
        self._address, self._tokens = address, tokens
        drawn = random.Random(seed)
        self._prompts = [[drawn.randrange(5, 200) for _ in range(drawn.randrange(16, 96))] for _ in range(self.COUNT)]
        self._known = {(number, kind): self._ask(number, "known", kind) for number in range(self.COUNT)
                       for kind in ("plain", "graph")}
        errors = [answer.error for answers in self._known.values() for answer in answers if answer.error]
        if errors:
            raise RuntimeError(f"a request without faults failed: {errors[0]}")

    def turn(self, number):
        """Runs turn `number` of the load. Returns its answers: one, or the two of a graph."""
        prompt, kind = number % self.COUNT, KINDS[number % len(KINDS)]
        # Half of the requests find no KV of earlier ones.
        salt = f"turn-{number}" if kind == "graph" or number % 2 else "shared"
        answers = self._ask(prompt, salt, kind)
        known = self._known[prompt, "graph" if kind == "graph" else "plain"]
        for answer, expected in zip(answers, known):
            answer.wrong = answer.tokens != expected.tokens[:len(answer.tokens)]
            answer.wrong |= not answer.error and len(answer.tokens) < len(expected.tokens)
        return answers

    def _body(self, segments, salt, **fields):
        sampling = {"temperature": 0, "max_tokens": self._tokens, "ignore_eos": True}
        return {"segments": {"segments": segments}, "sampling": sampling, "cache_salt": salt, **fields}

    def _ask(self, number, salt, kind):
        prompt = {"token_ids": {"ids": self._prompts[number]}}
        if kind != "graph":
            fields = {"session_id": f"s{number}"} if kind == "session" else {}
            return [generate(self._address, kind, self._body([prompt], salt, **fields))]
        upstream = f"{salt}-{number}"
        reader = self._body([prompt, {"output_of": {"request_id": upstream, "announced": True}}], salt)
        bodies = [self._body([prompt], salt, request_id=upstream), reader]
        answers = [None, None]

        def ask(index):
            answers[index] = generate(self._address, kind, bodies[index])

        # The reader is sent first, so that its prompt is prefilled while the other request decodes.
        threads = [threading.Thread(target=ask, args=[index]) for index in (1, 0)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return answers


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
