"""The three tasks. Each task is a function that draws one (prompt, answer) from a random.Random."""

import json

from finetuning.study.words import CITIES, DAYS, FUNCTIONS, NAMES, THINGS, TOPICS, VARIABLES


# "node" begins with the same token as "name" in the base's tokenizer. A decoder cannot distinguish
# the two words in this base's KV, even after long training (docs/design/performance.md).
_IDENTIFIERS = tuple(word for word in VARIABLES if word != "node")


def arithmetic(rng):
    first, second, things = rng.randint(10, 99), rng.randint(2, 9), rng.choice(THINGS)
    owner, other = rng.sample(NAMES, 2)
    if rng.random() < 0.5:
        return f"{owner} has {first} {things}. {other} brings {second} more. How many?\nA:", f" {first + second}"
    return f"{owner} has {first} {things}. {other} takes {second} away. How many?\nA:", f" {first - second}"


def _call(tool, **arguments):
    return " " + json.dumps({"tool": tool, "args": arguments})


def tool_call(rng):
    name, city, day, topic = rng.choice(NAMES), rng.choice(CITIES), rng.choice(DAYS), rng.choice(TOPICS)
    number = rng.randint(2, 60)
    request, call = rng.choice([
        (f"What will the weather be in {city} on {day}?", _call("weather", city=city, day=day)),
        (f"Book {number} seats to {city} for {name}.", _call("book", to=city, who=name, seats=number)),
        (f"Tell {name} about {topic} on {day}.", _call("mail", to=name, subject=topic, when=day)),
        (f"Find {number} notes on {topic} by {name}.", _call("search", topic=topic, author=name, limit=number)),
    ])
    return f"{request}\nCall:", call


def rewrite(rng):
    a, b, c, d = rng.sample(_IDENTIFIERS, 4)
    f, g = rng.sample(FUNCTIONS, 2)
    before, after = rng.choice([
        (f"{a} = {f}({b}, {c})", f"{a} = {b}.{f}({c})"),
        (f"for {a} in {b}: {c}.append({f}({a}))", f"{c} = [{f}({a}) for {a} in {b}]"),
        (f"if {a}: {b} = {c} else: {b} = {d}", f"{b} = {c} if {a} else {d}"),
        (f"{a} = {f}({b}); {c} = {g}({a})", f"{c} = {g}({f}({b}))"),
    ])
    return f"{before}\nRewritten:", f" {after}"


TASKS = {"arithmetic": arithmetic, "tool-call": tool_call, "rewrite": rewrite}


def make(task, rng, count, without=frozenset()):
    """Returns `count` different rows whose prompts are not in `without`."""
    rows, seen = [], set(without)
    while len(rows) < count:
        prompt, answer = TASKS[task](rng)
        if prompt not in seen:
            seen.add(prompt)
            rows.append({"prompt": prompt, "answer": answer})
    return rows
