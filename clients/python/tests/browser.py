"""A headless Chromium for tests.

It is controlled with the DevTools protocol over a pair of pipes."""

import fcntl
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

PROGRAMS = ("chromium-headless-shell", "chromium")
# A wait prints its condition once in this interval.
REPORT_MS = 30_000


class BrowserError(Exception):
    pass


def program():
    """Returns the path of a browser, or None if none is installed."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Browser:
    """One page of a browser.

    `complaints` are the errors of its scripts, and the violations of its
    Content-Security-Policy."""

    def __init__(self):
        path = program()
        if path is None:
            raise BrowserError(f"no browser of {PROGRAMS} is installed; run tools/setup --clients")
        self.complaints = []
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        browser_in, ours_out = os.pipe()
        ours_in, browser_out = os.pipe()
        # Chromium reads commands from descriptor 3 and writes to 4. The pipes must have other
        # numbers before bash moves them there.
        browser_in, browser_out = (self._above_standard(end) for end in (browser_in, browser_out))
        # Chromium's sandbox does not work for root. The tests open only pages of Baton.
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", f'exec "$@" 3<&{browser_in} 4>&{browser_out}', "bash", path, "--remote-debugging-pipe",
             "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--headless",
             f"--user-data-dir={self._profile.name}", "--window-size=1280,900", "about:blank"],
            pass_fds=(browser_in, browser_out), start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(browser_in)
        os.close(browser_out)
        self._out, self._in = os.fdopen(ours_out, "wb"), os.fdopen(ours_in, "rb")
        self._answers, self._count, self._session = queue.Queue(), 0, None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    @staticmethod
    def _above_standard(descriptor):
        copy = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
        os.close(descriptor)
        return copy

    def close(self):
        # Kills the renderers too, because they hold the pipes.
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        self._in.close()
        self._out.close()
        self._profile.cleanup()

    def call(self, method, **params):
        """Sends a DevTools command and returns its result. Raises BrowserError."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._out.write(json.dumps(message).encode() + b"\0")
        self._out.flush()
        while True:
            answer = self._answers.get()
            if answer is None:
                raise BrowserError(f"the browser ended with {self._process.wait()}")
            if answer["id"] == self._count:
                break
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait('document.readyState === "complete" && location.href !== "about:blank"')

    def ask(self, expression):
        """Returns the value of a JavaScript expression. Awaits a promise."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise BrowserError(f"{expression}: {result['exceptionDetails'].get('exception', {}).get('description')}")
        return result["result"].get("value")

    def wait(self, expression):
        """Waits until a JavaScript expression is true. There is no time limit."""
        while not self.ask(f"""new Promise(done => {{
              const report = performance.now() + {REPORT_MS};
              const look = () => {expression} ? done(true) : performance.now() > report ? done(false) : setTimeout(look, 20);
              look();
            }})"""):
            print(f"still false: {expression}; text of the page: {self.ask('document.body.innerText')}", file=sys.stderr)

    def _read(self):
        rest = b""
        while block := self._in.read1(1 << 16):
            *messages, rest = (rest + block).split(b"\0")
            for message in map(json.loads, messages):
                if "id" in message:
                    self._answers.put(message)
                elif message["method"] == "Runtime.exceptionThrown":
                    self.complaints.append(json.dumps(message["params"]))
                elif message["method"] == "Runtime.consoleAPICalled" and message["params"]["type"] == "error":
                    self.complaints.append(json.dumps(message["params"]["args"]))
                elif message["method"] == "Log.entryAdded":
                    entry = message["params"]["entry"]
                    if entry["source"] in ("javascript", "security"):
                        self.complaints.append(entry["text"])
        self._answers.put(None)
