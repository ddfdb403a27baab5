"""An HTTP server of chats for tests. It records the bodies of requests and sends set answers."""

import gzip
import http.server
import json
import threading
import zlib

from baton_client.frameworks import SystemStart

COMPRESSED = {"gzip": gzip.compress, "deflate": zlib.compress}
TASKS = [f"Write about the {subject}, {'and its beauty, ' * 4}please." for subject in ("sea", "moon", "city")]
DECLARED = {"agents": {"writer": SystemStart("You write"), "critic": SystemStart("You review")},
            "edges": {"writer": ["critic"]}}


def write(task):
    return [{"role": "system", "content": "You write."}, {"role": "user", "content": task}]


def review(task, draft):
    return [{"role": "system", "content": "You review."}, {"role": "user", "content": task},
            {"role": "user", "content": draft}]


class Listener(http.server.ThreadingHTTPServer):
    """The server. `limit` is the value of the header x-baton-followers. None: no such header.

    `refuses` is the status of answers to requests with hints. 0: the server closes the
    connection."""

    def __init__(self, limit=None, refuses=None, encoding=None, redirects_to=None):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.limit, self.refuses, self.encoding, self.redirects_to = limit, refuses, encoding, redirects_to
        self.answer, self.bodies, self.paths = None, [], []
        # Further fields of each answer's message.
        self.fields = {}
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def stop(self):
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.bodies.append(body)
        self.server.paths.append(self.path)
        if b'"top_p":2' in body:
            return self._answer(400, {"error": {"message": "top_p", "param": "top_p"}})
        if b'"followers"' in body and self.server.refuses is not None:
            return self._answer(self.server.refuses, {"detail": "extra fields not permitted"}) if self.server.refuses else None
        if self.server.redirects_to is not None:
            return self._answer(307, {}, location=self.server.redirects_to)
        content = self.server.answer or f"This is answer {len(self.server.bodies)}."
        answer = {"id": "x", "created": 1, "model": "m", "object": "chat.completion", "choices": [
            {"index": 0, "finish_reason": "stop", "message": {
                "role": "assistant", "content": content, **self.server.fields}}]}
        self._answer(200, answer) if b'"stream":true' not in body else self._stream(answer)

    def _answer(self, status, answer, **headers):
        self._send(status, json.dumps(answer).encode(), "application/json", **headers)

    def _stream(self, answer):
        [choice] = answer["choices"]
        words = choice.pop("message")["content"].split(" ")
        events = [{"choices": [{**choice, "delta": {
            **self.server.fields, "content": word if i == 0 else " " + word}}]} for i, word in enumerate(words)]
        lines = [json.dumps({**answer, "object": "chat.completion.chunk", **event}) for event in events]
        self._send(200, "".join(f"data: {line}\r\n\r\n" for line in [*lines, "[DONE]"]).encode(), "text/event-stream")

    def _send(self, status, body, kind, **headers):
        if self.server.encoding is not None:
            headers["content-encoding"], body = self.server.encoding, COMPRESSED[self.server.encoding](body)
        if self.server.limit is not None:
            headers["x-baton-followers"] = self.server.limit
        self.send_response(status)
        for name, value in {**headers, "content-type": kind, "content-length": len(body)}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass
