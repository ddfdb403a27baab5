"""Prompts of bench/agents as token ids: pieces of real text from ../shared/data where that folder is, else random ids. The
lengths are the same, so the figures may be compared."""

import json
import pathlib
import random

import tokenizers

DATA = pathlib.Path(__file__).resolve().parent.parent.parent / "shared" / "data"
ENOUGH = 400_000  # characters of a source


def field_of(path, field):
    return "\n".join(json.loads(line)[field] for line in (DATA / path).read_text().splitlines())


# What a part of a prompt is, and the text that its pieces are taken from.
KINDS = {
    "instructions": lambda: field_of("agents/taubench/MockRetailDomainEnv-few_shot.jsonl", "messages_display"),
    "notes": lambda: (DATA / "agents/reflexion_react/100_questions_5_trials.txt").read_text(),
    "document": lambda: (DATA / "text/wiki.test.raw").read_text(),
    "question": lambda: field_of("prompts/gsm8k/train.jsonl", "question"),
}


class RandomIds:
    """Ids below 1,000 are left out: special tokens are among them."""

    what = "random token ids"

    def ids(self, part):
        return random.Random(part.name).choices(range(1000, 40000), k=part.length)


class RealText:
    """A part begins at a line that its name chooses."""

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
    """In the tokens of the model in this folder."""
    tokenizer = pathlib.Path(model_dir) / "tokenizer.json"
    for needed in (DATA, tokenizer):
        if not needed.exists():
            print(f"agents: prompts are random token ids: there is no {needed}")
            return RandomIds()
    return RealText(tokenizer)
