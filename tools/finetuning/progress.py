"""Progress of a long task: one line that changes on a terminal, a line every 30 s in a file."""

import sys
import time


class Progress:
    def __init__(self, label, total, done=0, stream=sys.stderr):
        self._label, self._total, self._first, self._stream = label, total, done, stream
        self._terminal = stream.isatty()
        self._began = time.monotonic()
        self._shown_at = -1e9

    def show(self, done, detail=""):
        now, last = time.monotonic(), done >= self._total
        if not last and now - self._shown_at < (0.1 if self._terminal else 30):
            return
        self._shown_at = now
        bar = "#" * (24 * done // self._total)
        left = (now - self._began) / max(1, done - self._first) * (self._total - done)
        line = f"{self._label} [{bar:<24}] {done}/{self._total} {detail}, {left:.0f} s left"
        self._stream.write(f"\r\x1b[K{line}" + ("\n" if last else "") if self._terminal else line + "\n")
        self._stream.flush()
