"""A schedule of faults: which worker is killed, paused or stopped, and when."""

import argparse
import collections
import dataclasses
import signal
import threading
import time

from faults.cluster import ROLES

LONGEST_STOP_SECONDS = 60


@dataclasses.dataclass
class Fault:
    """A fault that was done. Times are of time.monotonic()."""
    name: str
    begun: float
    ended: float = 0.0
    running: int = 0  # requests that the worker ran just before


def _kill(worker, down):
    worker.signal(signal.SIGKILL)
    time.sleep(down)
    worker.wait(LONGEST_STOP_SECONDS)
    worker.start()


def _pause(worker, down):
    worker.signal(signal.SIGSTOP)
    time.sleep(down)
    worker.signal(signal.SIGCONT)


def _stop(worker, _down):
    worker.signal(signal.SIGTERM)
    if worker.wait(LONGEST_STOP_SECONDS) is None:
        raise RuntimeError(f"{worker.name} did not end within {LONGEST_STOP_SECONDS} s of SIGTERM")
    worker.start()


ACTIONS = {"kill": _kill, "pause": _pause, "stop": _stop}


def named(text):
    """An argparse type: ACTION:ROLE."""
    action, _, role = text.partition(":")
    if action in ACTIONS and role in ROLES:
        return action, role
    raise argparse.ArgumentTypeError(
        f"expected one of {', '.join(ACTIONS)} and one of {', '.join(ROLES)} as ACTION:ROLE, got '{text}'")


class Schedule:
    """Does one fault of the list per period until stop(). The workers of a role take turns."""

    def __init__(self, cluster, faults, period, down):
        self._cluster, self._faults, self._period, self._down = cluster, faults, period, down
        self._stopped = threading.Event()
        self._error = None
        self._thread = threading.Thread(target=self._run)
        self.done = []
        self._thread.start()

    def _run(self):
        turns = collections.Counter()
        while self._faults and not self._stopped.wait(self._period):
            action, role = self._faults[len(self.done) % len(self._faults)]
            workers = self._cluster.workers[role]
            worker = workers[turns[role] % len(workers)]
            turns[role] += 1
            try:
                running = int(worker.metric("baton_worker_requests", state="running"))
                fault = Fault(f"{action}:{role}", time.monotonic(), running=running)
                ACTIONS[action](worker, self._down)
                fault.ended = time.monotonic()
                self.done.append(fault)
            except (RuntimeError, OSError) as error:
                self._error = error
                return

    def stop(self):
        """Waits for the running fault. Raises the error of a fault that could not be done."""
        self._stopped.set()
        self._thread.join()
        if self._error:
            raise self._error
