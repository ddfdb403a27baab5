"""usage: slowest.py SINCE TIMES

Prints the ten slowest build targets and the ten slowest tests since SINCE (seconds since the
epoch). The targets come from ninja's logs below build/. The tests come from the file TIMES, which
test/test_main.cc and tools/run_tests.py write. Tests that are programs of their own come from
ctest's logs.
"""

import pathlib
import re
import sys

SHOWN = 10


def targets(since):
    for log in pathlib.Path("build").glob("*/.ninja_log"):
        for line in log.read_text().splitlines()[1:]:
            begin_ms, end_ms, written_ns, target = line.split("\t")[:4]
            if int(written_ns) >= since * 1e9:
                yield (int(end_ms) - int(begin_ms)) / 1000, f"{log.parent.name}: {target}"


def tests(since, times):
    if pathlib.Path(times).exists():
        for line in pathlib.Path(times).read_text().splitlines():
            seconds, name = line.split("\t", 1)
            yield float(seconds), name
    for log in pathlib.Path("build").glob("*/Testing/Temporary/LastTest.log"):
        if log.stat().st_mtime >= since:
            text = log.read_text(errors="replace")
            for name, command, seconds in re.findall(r"^\d+/\d+ Test: (\S+)\nCommand: (.*)$(?s:.*?)^Test time = +([\d.]+) sec$", text, re.M):
                if not command.split('"')[1].endswith("_test"):
                    yield float(seconds), f"{log.parents[2].name}: {name}"


def show(title, rows):
    rows = sorted(set(rows), reverse=True)
    print(f"{title} ({len(rows)} in all, {sum(seconds for seconds, _ in rows):.0f} s):")
    for seconds, name in rows[:SHOWN]:
        print(f"  {seconds:7.1f} s  {name}")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    show("slowest targets", targets(float(sys.argv[1])))
    show("slowest tests", tests(float(sys.argv[1]), sys.argv[2]))


if __name__ == "__main__":
    main()
