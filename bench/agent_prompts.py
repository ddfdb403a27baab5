"""Prompts of bench/agents as token ids.

The ids are pieces of real text from ../shared/data if that folder exists, otherwise random ids. The
lengths are the same in both cases, so the figures are comparable.
"""

import json
import pathlib
import random

import tokenizers

DATA = pathlib.Path(__file__).resolve().parent.parent.parent / "shared" / "data"
# Upper bound on the characters that are read from a source.
ENOUGH = 400_000


def field_of(path, field):
    return "\n".join(json.loads(line)[field] for line in (DATA / path).read_text().splitlines())


# Kind of a part of a prompt -> function that returns its source text.
KINDS = {
    "instructions": lambda: field_of("agents/taubench/MockRetailDomainEnv-few_shot.jsonl", "messages_display"),
    "notes": lambda: (DATA / "agents/reflexion_react/100_questions_5_trials.txt").read_text(),
    "document": lambda: (DATA / "text/wiki.test.raw").read_text(),
    "question": lambda: field_of("prompts/gsm8k/train.jsonl", "question"),
}


class RandomIds:
    """Random token ids. Ids below 1,000 are left out, because some of them are special tokens."""

    what = "random token ids"

    def ids(self, part):
        return random.Random(part.name).choices(range(1000, 40000), k=part.length)


class RealText:
    """Token ids of real text. The name of a part determines the line at which it begins."""

    what = "text of ../shared/data: " + ", ".join(KINDS)

    def __init__(self, tokenizer):
        self.tokenizer = tokenizers.Tokenizer.from_file(str(tokenizer))
        self.lines = {kind: self.read(text()) for kind, text in KINDS.items()}

    def read(self, text):
        lines = [line + "\n" for line in text[:ENOUGH].splitlines() if line.strip()]
        return [encoded.ids for encoded in self.tokenizer.encode_batch(lines, add_special_tokens=False)]

    def ids(self, part):
        lines, ids = self.lines[part.kind], []
        line = random.Random(part.name).randrange(len(lines))
        while len(ids) < part.length:
            ids += lines[line % len(lines)]
            line += 1
        return ids[:part.length]


def prompts(model_dir):
    """Returns the source of prompts. Real text is in tokens of the model in `model_dir`."""
    tokenizer = pathlib.Path(model_dir) / "tokenizer.json"
    for needed in (DATA, tokenizer):
        if not needed.exists():
            print(f"agents: prompts are random token ids: there is no {needed}")
            return RandomIds()
    return RealText(tokenizer)
