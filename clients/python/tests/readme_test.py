"""The Python of the README and of docs/agents.md runs as it stands there, and the server accepts
the JSON of docs/openai.md."""

import contextlib
import io
import json
import re
import unittest
import urllib.request
from unittest import mock

from baton_client import Client, Run
from serving import ROOT, Server


class ReadmeTest(unittest.TestCase):
    def test_each_program_of_the_readme_runs(self):
        self.run_programs("README.md", 3)

    def test_each_program_of_the_page_about_agents_runs(self):
        self.run_programs("docs/agents.md", 5)

    def test_the_bodies_of_the_page_about_openai_are_accepted(self):
        server = Server()
        self.addCleanup(server.stop)

        def ask(path, **body):
            request = urllib.request.Request(f"{server.http}/v1/{path}", json.dumps(body | {"max_tokens": 4}).encode())
            with urllib.request.urlopen(request) as answer:
                self.assertGreater(json.load(answer)["usage"]["completion_tokens"], 0)

        for id in ("coder-1", "tester-1"):
            ask("completions", prompt="Once upon a time", request_id=id)
        blocks = re.findall(r"^```json\n(.*?)^```", (ROOT / "docs/openai.md").read_text(), re.S | re.M)
        segments, content, followers = map(json.loads, blocks)
        ask("completions", **segments)
        ask("chat/completions", messages=[{"role": "user", "content": content}])
        ask("chat/completions", **followers)

    def run_programs(self, page, count):
        server, close_client = Server(), Client.close
        self.addCleanup(server.stop)
        programs = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.S | re.M)
        self.assertEqual(len(programs), count)
        for program in programs:
            served = server.metric('baton_requests_total{code="OK"}')
            with self.subTest(program), Client(server.grpc) as client, contextlib.redirect_stdout(io.StringIO()):
                # One program of the README is a part that uses the variable `flow`.
                names = {"flow": client.workflow("readme")}

                def close(left):
                    # Waits for all runs first, because close() cancels unfinished ones.
                    self.check_runs(names)
                    close_client(left)

                with mock.patch.object(Client, "close", close):
                    exec(program.replace("127.0.0.1:7070", server.grpc).replace("http://127.0.0.1:8000", server.http), names)
                self.check_runs(names)
                self.assertGreater(server.metric('baton_requests_total{code="OK"}'), served)

    def check_runs(self, names):
        for run in [value for value in names.values() if isinstance(value, Run)]:
            self.assertGreater(run.result().usage.completion_tokens, 0)


if __name__ == "__main__":
    unittest.main()
