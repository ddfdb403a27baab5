"""The texts on which the base is trained.

They contain the words, the syntax and the sums of the tasks, and none of the tasks.
"""

import json

from finetuning.study.words import CITIES, DAYS, FUNCTIONS, NAMES, THINGS, TOPICS, VARIABLES


def _sum(rng):
    a, b = rng.randint(10, 99), rng.randint(2, 9)
    return f"{a} + {b} = {a + b}" if rng.random() < 0.5 else f"{a} - {b} = {a - b}"


def _told_sum(rng):
    a, b, name, things = rng.randint(10, 99), rng.randint(2, 9), rng.choice(NAMES), rng.choice(THINGS)
    return rng.choice([f"{name} had {a} {things} and got {b}, so now there are {a + b} {things}.",
                       f"{name} had {a} {things} and lost {b}, so {a - b} {things} are left."])


def _story(rng):
    name, other = rng.sample(NAMES, 2)
    city, day, topic, things, number = (rng.choice(CITIES), rng.choice(DAYS), rng.choice(TOPICS), rng.choice(THINGS),
                                        rng.randint(2, 99))
    return rng.choice([
        f"On {day} {name} went to {city} with {number} {things}. {name} liked {city}.",
        f"{name} and {other} spoke about {topic}. How many {things} has {other}? {other} has {number} {things}.",
        f"{number} {things} were in {city}. {name} takes the {things} to {other}; {other} brings {number} {things} to {city}.",
        f"What will {name} do on {day}? {name} will find notes on {topic}. Tell {other}, book seats for {name}.",
    ])


def _record(rng):
    fields = [("who", rng.choice(NAMES)), ("city", rng.choice(CITIES)), ("day", rng.choice(DAYS)), ("about", rng.choice(TOPICS)),
              ("number", rng.randint(2, 99))]
    chosen = rng.sample(fields, 3)
    values = ", ".join(str(value) for _, value in chosen)
    text = json.dumps(dict(chosen))
    return f"{text} has {values}" if rng.random() < 0.5 else f"{values} makes {text}"


def _code(rng):
    a, b, c, d = rng.sample(VARIABLES, 4)
    f, g = rng.sample(FUNCTIONS, 2)
    return rng.choice([
        f"{a} = {f}({b}, {c}); {d} = {f}({b}, {c})",
        f"for {a} in {b}: {f}({a}); {g}({a})",
        f"{a} = [{f}({c}) for {c} in {b}]; {d} = [{g}({c}) for {c} in {a}]",
        f"if {a}: {b} = {g}({a}) else: {c}.append({b})",
        f"{a} = {b}.{f}({c}); {d} = {a}.{g}({b})",
        f"{a} = {b} if {c} else {d}; {b} = {a}",
    ])


def _list(rng):
    words = rng.sample((*NAMES, *VARIABLES, *FUNCTIONS, *TOPICS, *map(str, range(10, 100))), rng.randint(3, 6))
    again = words if rng.random() < 0.5 else words[::-1]
    return f"{' '.join(words)} {'again' if again is words else 'back'} {' '.join(again)}"


def text(rng):
    """Returns two or three lines of one kind, so that the model can learn from earlier lines."""
    kind = rng.choice((_sum, _told_sum, _story, _record, _code, _list))
    return "\n".join(kind(rng) for _ in range(rng.randint(2, 3)))
