"""Tests of web pages of other sites that call the router from a browser."""

import http.server
import json
import threading
import unittest

import browser
from serving import Keys, Server

CHAT = json.dumps({"messages": [{"role": "user", "content": "Once upon a time"}], "max_tokens": 4})


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>page</title>")

    def log_message(self, *_):
        pass


class Site:
    """A web site of one page. Its address is another origin than the router's."""

    def __init__(self):
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
        self.origin = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@unittest.skipUnless(browser.program(), "no browser is installed; run tools/setup --clients")
class CorsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.friend, cls.stranger, cls.keys = Site(), Site(), Keys()
        cls.server = Server("--allow-origin", cls.friend.origin, "--keys", cls.keys.path)
        for thing in (cls.friend, cls.stranger, cls.keys):
            cls.addClassCleanup(thing.close)
        cls.addClassCleanup(cls.server.stop)

    def setUp(self):
        self.browser = browser.Browser()
        self.addCleanup(self.browser.close)

    def fetch(self, path, server=None, result="answer.status", is_sandboxed=False, **options):
        """Returns the result of a script's fetch, or the name of its error.

        A sandboxed script runs in a frame, whose origin is null."""
        url = json.dumps((server or self.server).http + path)
        fetch = f"fetch({url}, {json.dumps(options)}).then(async answer => {result}).catch(error => error.name)"
        if not is_sandboxed:
            return self.browser.ask(fetch)
        page = f"<script>{fetch}.then(result => parent.postMessage([self.origin, result], '*'))</script>"
        origin, found = self.browser.ask(f"""new Promise(done => {{
          const frame = document.createElement("iframe");
          frame.sandbox = "allow-scripts";
          frame.srcdoc = {json.dumps(page).replace("</", "<" + chr(92) + "/")};
          onmessage = message => done(message.data);
          document.body.append(frame);
        }})""")
        self.assertEqual(origin, "null")
        return found

    def chat(self, server=None, is_sandboxed=False, **headers):
        headers = {"content-type": "application/json", "x-stainless-os": "Linux", **headers}
        return self.fetch("/v1/chat/completions", server, method="POST", headers=headers, body=CHAT, is_sandboxed=is_sandboxed,
                          result="[answer.status, answer.headers.get('x-request-id').length, (await answer.json()).object]")

    def test_allowed_page_chats_with_a_key_in_either_header(self):
        self.browser.open(self.friend.origin)
        self.assertEqual(self.chat(authorization=f"Bearer {self.keys.key}"), [200, 32, "chat.completion"])
        self.assertEqual(self.chat(**{"x-api-key": self.keys.key}), [200, 32, "chat.completion"])

    def test_allowed_page_reads_a_stream_and_errors(self):
        self.browser.open(self.friend.origin)
        key = {"authorization": f"Bearer {self.keys.key}"}
        stream = self.fetch("/v1/chat/completions", method="POST", headers=key, body=CHAT.replace("{", '{"stream": true, ', 1),
                            result="(await answer.text()).trim().endsWith('data: [DONE]')")
        self.assertIs(stream, True)
        self.assertEqual(self.fetch("/v1/models", headers={"authorization": "Bearer wrong"}), 401)
        self.assertEqual(self.fetch("/nowhere", headers=key), 404)

    def test_other_pages_can_call_nothing(self):
        for site, is_sandboxed in ((self.stranger, False), (self.friend, True)):
            self.browser.open(site.origin)
            self.assertEqual(self.chat(authorization=f"Bearer {self.keys.key}", is_sandboxed=is_sandboxed), "TypeError")
            self.assertEqual(self.fetch("/health", is_sandboxed=is_sandboxed), "TypeError")

    def test_null_is_allowed_only_if_it_is_listed(self):
        self.browser.open(self.stranger.origin)
        good = [200, 32, "chat.completion"]
        for listed, from_page, from_frame in (("*", good, "TypeError"), ("null", "TypeError", good)):
            server = Server("--allow-origin", listed)
            self.addCleanup(server.stop)
            self.assertEqual(self.chat(server), from_page)
            self.assertEqual(self.chat(server, is_sandboxed=True), from_frame)

    def test_a_router_is_closed_by_default(self):
        server = Server()
        self.addCleanup(server.stop)
        self.browser.open(self.friend.origin)
        self.assertEqual(self.chat(server), "TypeError")


if __name__ == "__main__":
    unittest.main()
