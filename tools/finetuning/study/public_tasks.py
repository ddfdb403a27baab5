"""Tasks from public data sets.

- GSM8K has school sums with their reasoning.
- BFCL has descriptions of functions and a request to call one.

A row is {"prompt", "answer", "gold"}. Training uses "prompt" and "answer". right() compares a text
with "gold".
"""

import json
import random
import re

from finetuning.errors import InputError

# The parts of BFCL whose answers have one call.
_BFCL_PARTS = ("simple_python", "multiple", "live_simple")


def _lines(path):
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {error}") from None


# GSM8K: https://github.com/openai/grade-school-math

def _gsm8k(folder):
    rows = [{"prompt": f'{row["question"]}\nThink step by step. End with "#### " and the number.', "answer": row["answer"],
             "gold": _final_number(row["answer"])} for row in _lines(folder / "gsm8k" / "train.jsonl")]
    random.Random("gsm8k").shuffle(rows)
    return rows


def _final_number(text):
    """Returns the number after ####, or the last number of a text without ####.

    A model that was not trained on the marks can therefore be right.
    """
    _, marks, tail = text.rpartition("####")
    numbers = re.findall(r"-?\d[\d,]*(?:\.\d+)?", tail)
    return float(numbers[0 if marks else -1].replace(",", "")) if numbers else None


def _is_number(text, gold):
    return _final_number(text) == gold


# BFCL: https://gorilla.cs.berkeley.edu/leaderboard.html. Each parameter has a list of accepted
# values. A list that contains "" marks an optional parameter.

def _bfcl(folder):
    by_name = {}
    for part in _BFCL_PARTS:
        golds = {row["id"]: row["ground_truth"] for row in _lines(folder / "bfcl" / "possible_answer" / f"BFCL_v4_{part}.json")}
        for row in _lines(folder / "bfcl" / f"BFCL_v4_{part}.json"):
            [(name, parameters)] = golds[row["id"]][0].items()
            answer = json.dumps({"name": name, "arguments": _chosen(parameters)}, ensure_ascii=False)
            # Leaves out the few rows that list no value for a parameter.
            if is_call(answer, golds[row["id"]][0]):
                by_name.setdefault(name, []).append({"prompt": _bfcl_prompt(row), "answer": answer, "gold": golds[row["id"]][0]})
    names = sorted(by_name)
    random.Random("bfcl").shuffle(names)
    return [row for name in names for row in by_name[name]]


def _bfcl_prompt(row):
    functions = "\n".join(json.dumps(function, ensure_ascii=False) for function in row["function"])
    question = "\n".join(message["content"] for message in row["question"][0])
    return f'Functions:\n{functions}\n\n{question}\nAnswer with the call alone: {{"name": ..., "arguments": {{...}}}}'


def _chosen(parameters):
    """Returns the first accepted value of each required parameter."""
    return {name: _plain(options[0]) for name, options in parameters.items() if options and "" not in options}


def _plain(option):
    if isinstance(option, dict):
        return _chosen(option)
    return [_plain(item) for item in option] if isinstance(option, list) else option


def is_call(text, gold):
    """Whether `gold` accepts a text as a call. `gold` is {name: {parameter: [accepted values]}}."""
    try:
        call = json.loads(text)
    except ValueError:
        return False
    [(name, parameters)] = gold.items()
    return (isinstance(call, dict) and set(call) == {"name", "arguments"} and call["name"] == name
            and _accepts(parameters, call["arguments"]))


def _accepts(option, value):
    if isinstance(option, dict):
        return (isinstance(value, dict) and set(value) <= set(option) and all(
            any(_accepts(one, value[name]) for one in options) if name in value else "" in options
            for name, options in option.items()))
    if isinstance(option, list):
        return isinstance(value, list) and len(value) == len(option) and all(map(_accepts, option, value))
    if isinstance(option, str):
        return isinstance(value, str) and _letters(option) == _letters(value)
    if isinstance(option, bool) or option is None:
        return value is option
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == option


def _letters(text):
    """Normalises a text as BFCL's checker does.

    Removes spaces and the characters , . / - _ * ^. Unifies quotes and case.
    """
    return re.sub(r"[ ,./\-_*^]", "", text).lower().replace("'", '"')


_TASKS = {"gsm8k": (_gsm8k, _is_number), "bfcl": (_bfcl, is_call)}


def _split(rows, test):
    """Returns (training rows, test rows). The test rows are the first ones.

    A function that is the right one in testing is not the right one in training.
    """
    def called(row):
        return set(row["gold"]) if isinstance(row["gold"], dict) else None
    border = test
    while border < len(rows) and called(rows[border]) and called(rows[border]) == called(rows[test - 1]):
        border += 1
    return rows[border:], rows[:test]


def load(task, folder, settings):
    """Returns (training rows, test rows), the same rows at each call. Raises InputError.

    `settings` are those of the task in public.json. With "validate", the test rows are left out,
    and that many training rows become the test rows. Choices made with them therefore do not depend
    on the test rows.
    """
    if task not in _TASKS:
        raise InputError(f"tasks: expected some of {', '.join(_TASKS)}, got {task!r}")
    train, test = _split(_TASKS[task][0](folder), wanted := settings["test"])
    if "validate" in settings:
        train, test = _split(train, wanted := settings["validate"])
    if len(test) < wanted or not train:
        raise InputError(f"{folder}: {task}: {len(train)} + {len(test)} rows; expected {wanted} test rows and at least one training row")
    return train[:settings["train"]], test


def right(task, text, gold):
    return _TASKS[task][1](text, gold)
