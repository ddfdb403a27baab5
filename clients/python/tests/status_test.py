"""Tests of `baton status --watch` on a terminal and in a pipe, with a real server."""

import os
import pty
import signal
import subprocess
import unittest

from serving import PROGRAM, Server


class StatusTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)

    def watch(self, **streams):
        process = subprocess.Popen([PROGRAM, "status", "--server", self.server.grpc, "--watch=0.1"], **streams)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_a_terminal_is_drawn_over_and_left_at_the_start_of_a_line_by_ctrl_c(self):
        # A job that a shell starts with & ignores SIGINT, and so do its child processes. This test
        # may be such a job.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        ours, terminal = pty.openpty()
        self.addCleanup(os.close, ours)
        process = self.watch(stdout=terminal, stdin=terminal, start_new_session=True)
        os.close(terminal)
        shown = b""
        while shown.count(b"\x1b[J") < 3:
            shown += os.read(ours, 1 << 16)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(), -signal.SIGINT)
        self.assertEqual(shown.count(b"\x1b[2J"), 1)
        self.assertTrue(shown.endswith(b"\n\x1b[J"), shown[-100:])
        self.assertIn(b"ready", shown)

    def test_watch_prints_plain_text_to_pipe_and_ends_when_it_closes(self):
        process = self.watch(stdout=subprocess.PIPE)
        lines = [process.stdout.readline() for _ in range(12)]
        self.assertEqual(sum(line.startswith(b"baton ") for line in lines), 2)
        self.assertNotIn(b"\x1b", b"".join(lines))
        process.stdout.close()
        self.assertEqual(process.wait(), 0)

    def test_a_router_that_is_not_there_is_an_error_at_once(self):
        done = subprocess.run([PROGRAM, "status", "--server", "127.0.0.1:1", "--watch"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("no router at 127.0.0.1:1", done.stderr)
        bad = subprocess.run([PROGRAM, "status", "--watch=0"], capture_output=True, text=True)
        self.assertNotEqual(bad.returncode, 0)


if __name__ == "__main__":
    unittest.main()
