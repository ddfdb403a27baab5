"""The README's Python runs as it stands there."""

import contextlib
import io
import re
import unittest

from serving import ROOT, Server


class ReadmeTest(unittest.TestCase):
    def test_each_program_of_a_quick_start_runs(self):
        server = Server()
        self.addCleanup(server.stop)
        sections = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", (ROOT / "README.md").read_text(), re.S | re.M))
        for name in ("Python", "OpenAI API"):
            [program] = re.findall(r"```python\n(.*?)```", sections[name], re.S)
            printed = io.StringIO()
            with self.subTest(name), contextlib.redirect_stdout(printed):
                exec(program.replace("127.0.0.1:7070", server.grpc).replace("http://127.0.0.1:8000", server.http), {})
                self.assertTrue(printed.getvalue())


if __name__ == "__main__":
    unittest.main()
