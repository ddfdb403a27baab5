"""The README's Python runs as it stands there."""

import contextlib
import io
import re
import unittest
from unittest import mock

from baton_client import Client, Run
from serving import ROOT, Server


class ReadmeTest(unittest.TestCase):
    def test_each_program_runs(self):
        server, close_client = Server(), Client.close
        self.addCleanup(server.stop)
        programs = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.S | re.M)
        self.assertEqual(len(programs), 3)
        for program in programs:
            with self.subTest(program), Client(server.grpc) as client, contextlib.redirect_stdout(io.StringIO()) as printed:
                names = {"flow": client.workflow("readme")}  # for the one that is a part of a program

                def close(left):
                    self.check_runs(names)  # closing breaks off those that the program does not wait for
                    close_client(left)

                with mock.patch.object(Client, "close", close):
                    exec(program.replace("127.0.0.1:7070", server.grpc).replace("http://127.0.0.1:8000", server.http), names)
                runs = self.check_runs(names)
                self.assertTrue(printed.getvalue() or runs)

    def check_runs(self, names):
        runs = [value for value in names.values() if isinstance(value, Run)]
        for run in runs:
            self.assertGreater(run.result().usage.completion_tokens, 0)
        return runs


if __name__ == "__main__":
    unittest.main()
