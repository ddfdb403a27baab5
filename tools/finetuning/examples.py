"""Training and evaluation data.

The data is JSON Lines of {"prompt": text, "answer": text}. Training on whole texts also takes lines
of {"text": text}.
"""

import dataclasses
import hashlib
import json
from pathlib import Path

from finetuning.errors import InputError


@dataclasses.dataclass(frozen=True)
class Example:
    # Token ids, at least one.
    prompt: list
    # Token ids that have a loss. The last one is an end of sequence.
    answer: list
    # The answer as text.
    text: str


def _rows(path):
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {error}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise InputError(f"{path}:{number}: {error}") from None
        if not isinstance(row, dict) or set(row) not in ({"prompt", "answer"}, {"text"}):
            got = f"an object of {sorted(row)}" if isinstance(row, dict) else line[:60]
            raise InputError(f'{path}:{number}: expected {{"prompt": ..., "answer": ...}} or {{"text": ...}}, got {got}')
        for field, value in row.items():
            if not isinstance(value, str) or not value:
                raise InputError(f"{path}:{number}: {field}: expected a text that is not empty, got {value!r}")
        yield number, row


def read_examples(path, module, *, whole_texts=False):
    """Returns examples in the file's order. Raises InputError.

    `whole_texts` permits rows of {"text"}. All tokens of such a row but the first have a loss.
    """
    if not module.eos_ids:
        raise InputError(f"{module.path}: config.json has no eos_token_id; expected one, because answers end with it")
    context, prefix = module.config.max_position_embeddings, module.prompt_prefix()
    examples = []
    for number, row in _rows(path):
        if "text" in row and not whole_texts:
            raise InputError(f'{path}:{number}: a row of "text" has no answer; only --method full trains on whole texts')
        prompt = prefix + module.encode(row.get("prompt", ""))
        answer = module.encode(row.get("answer", row.get("text"))) + module.eos_ids[:1]
        if not prompt:
            prompt, answer = answer[:1], answer[1:]
        if len(prompt) + len(answer) > context:
            raise InputError(f"{path}:{number}: {len(prompt)} + {len(answer)} tokens, but the model's context is {context}")
        examples.append(Example(prompt, answer, row.get("answer", row.get("text"))))
    if not examples:
        raise InputError(f"{path}: holds no examples")
    return examples


def digest(examples):
    """Returns a digest of the examples. Training resumes only on examples with the same digest."""
    return hashlib.sha256(repr([(e.prompt, e.answer) for e in examples]).encode()).hexdigest()[:16]
