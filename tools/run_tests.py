"""usage: run_tests.py FOLDER [NAME ...]

Runs the unittest files *_test.py of FOLDER, or only the tests NAME (module.Class.test). For each
test that fails, and for each test that runs longer than a minute, the tool prints a command that
runs only that test. With BATON_TEST_TIMES=FILE in the environment, it appends the seconds of each
test to FILE. tools/check summarises FILE.
"""

import faulthandler
import os
import pathlib
import re
import sys
import threading
import time
import unittest


class Result(unittest.TextTestResult):
    folder = None

    def startTest(self, test):
        super().startTest(test)
        self._started = time.monotonic()
        self._watch = threading.Timer(60, lambda: print(f"still running: {rerun_command(self.folder, test.id())}", file=sys.stderr, flush=True))
        self._watch.daemon = True
        self._watch.start()

    def stopTest(self, test):
        super().stopTest(test)
        self._watch.cancel()
        if times := os.environ.get("BATON_TEST_TIMES"):
            with open(times, "a") as out:
                out.write(f"{time.monotonic() - self._started}\t{self.folder}: {test.id()}\n")

    def printErrorList(self, flavour, errors):
        super().printErrorList(flavour, errors)
        # A subtest has the id of its test. A failure in setUpClass has the name of the class. A
        # file that cannot be imported has its own name.
        ids = [getattr(test, "test_case", test).id() for test, _ in errors]
        for name in dict.fromkeys(re.sub(r"^(?:\w+ \((.*)\)|unittest\.loader\._FailedTest\.(.*))$", r"\1\2", id) for id in ids):
            self.stream.writeln(f"rerun: {rerun_command(self.folder, name)}")


def rerun_command(folder, name):
    path = os.environ.get("PYTHONPATH")
    return f"{f'PYTHONPATH={path} ' if path else ''}{sys.executable} {sys.argv[0]} {folder} {name}"


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    Result.folder, names = sys.argv[1], sys.argv[2:]
    folder = str(pathlib.Path(Result.folder).resolve())
    sys.path.insert(0, folder)
    # Shows the place where a test hangs.
    faulthandler.dump_traceback_later(300, repeat=True)
    loader = unittest.defaultTestLoader
    tests = loader.loadTestsFromNames(names) if names else loader.discover(folder, "*_test.py", folder)
    result = unittest.TextTestRunner(resultclass=Result).run(tests)
    sys.exit(not result.wasSuccessful() or not result.testsRun)


if __name__ == "__main__":
    main()
