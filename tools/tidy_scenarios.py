"""Checks the files of test/scenario: their sizes and first lines, and that a test reads each file.
tools/tidy runs it."""

import re

import tidy_words

LONGEST_SCENARIO = 150
HARNESS = '#include "world/scenario.h"'
# A prefix of scenario files, as a test passes it to ScenarioFiles or RunScenarios.
PREFIX = re.compile(r'"([a-z][a-z0-9_]*_)"')


def prefixes_of(tests):
    """The prefixes of the files that tests read. `tests` has the text of each test by its path."""
    return {prefix for text in tests.values() if HARNESS in text for prefix in PREFIX.findall(text)}


def problems(scenarios, tests):
    """`scenarios` and `tests` have the text of each file by its path."""
    prefixes = tuple(prefixes_of(tests))
    for path, text in scenarios.items():
        lines = text.splitlines()
        if len(lines) > LONGEST_SCENARIO:
            yield f"{path}: {len(lines)} lines, expected at most {LONGEST_SCENARIO}"
        first = lines[0] if lines else ""
        if not re.fullmatch(r"# \S.*\.", first) or len(list(tidy_words.sentences(first[2:]))) != 1:
            yield f"{path}:1: expected a comment of one sentence that states the behaviour, got '{first}'"
        if not path.rpartition("/")[2].startswith(prefixes):
            yield (f"{path}: no test reads it: expected a name that begins with a prefix of a test that includes "
                   f"world/scenario.h, such as {min(prefixes, default='none')}")
