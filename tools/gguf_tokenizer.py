"""Builds a Hugging Face tokenizer from the metadata of a GGUF file.

The tokenizer consists of tokenizer.json and tokenizer_config.json. Only byte-level BPE
(tokenizer.ggml.model = gpt2) with a pre-tokenizer of KINDS is supported.
"""

import json
from pathlib import Path

import gguf

# Values of tokenizer.ggml.token_type in the GGUF specification.
NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5


class UnsupportedTokenizer(ValueError):
    """The GGUF file has a tokenizer that is not byte-level BPE of a known kind."""


def _byte_level(use_regex):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def _split_by(digits):
    """The pre-tokenizer of Llama 3 and Qwen. `digits` matches digits that stay together."""
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|" + digits +
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, _byte_level(use_regex=False)]}


def _digits_then_gpt2():
    digits = {"type": "Digits", "individual_digits": True}
    return {"type": "Sequence", "pretokenizers": [digits, _byte_level(use_regex=True)]}


# tokenizer.ggml.pre -> pre_tokenizer, normalizer, ignore_merges, default of add_bos.
KINDS = {
    "gpt-2": (_byte_level(use_regex=True), None, False, False),
    "smollm": (_digits_then_gpt2(), None, False, False),
    "starcoder": (_digits_then_gpt2(), None, False, False),
    "refact": (_digits_then_gpt2(), None, False, False),
    "llama-bpe": (_split_by(r"\p{N}{1,3}"), None, True, True),
    "qwen2": (_split_by(r"\p{N}"), {"type": "NFC"}, False, False),
}


def _field(reader, name, default=None):
    field = reader.get_field(name)
    return default if field is None else field.contents()


def _added_tokens(tokens, types):
    return [
        {"id": id, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": kind == CONTROL}
        for id, (token, kind) in enumerate(zip(tokens, types)) if kind in (CONTROL, USER_DEFINED)
    ]


def _post_processor(bos_id, bos):
    if bos is None:
        return None
    start = {"SpecialToken": {"id": bos, "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    second = [{"SpecialToken": {"id": bos, "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}]
    return {"type": "TemplateProcessing", "single": [start, text], "pair": [start, text, *second],
            "special_tokens": {bos: {"id": bos, "ids": [bos_id], "tokens": [bos]}}}


def build_tokenizer(reader: gguf.GGUFReader) -> tuple[dict, dict]:
    """Returns tokenizer.json and tokenizer_config.json as dictionaries.

    Raises UnsupportedTokenizer.
    """
    model, pre = _field(reader, "tokenizer.ggml.model"), _field(reader, "tokenizer.ggml.pre")
    if model != "gpt2" or pre not in KINDS:
        raise UnsupportedTokenizer(f"tokenizer.ggml.model {model!r} with tokenizer.ggml.pre {pre!r}: "
                                   f"expected 'gpt2' with one of {', '.join(KINDS)}")
    pre_tokenizer, normalizer, ignore_merges, adds_bos = KINDS[pre]
    tokens = _field(reader, "tokenizer.ggml.tokens")
    types = _field(reader, "tokenizer.ggml.token_type", [NORMAL] * len(tokens))

    def special(name):
        id = _field(reader, f"tokenizer.ggml.{name}_token_id")
        return (id, tokens[id]) if id is not None and id < len(tokens) else (None, None)

    bos_id, bos = special("bos")
    add_bos = bool(_field(reader, "tokenizer.ggml.add_bos_token", adds_bos)) and bos is not None
    byte_level = _byte_level(use_regex=True)
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": _added_tokens(tokens, types),
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": (_post_processor(bos_id, bos) if add_bos else None) or byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": ignore_merges,
            "vocab": {token: id for id, token in enumerate(tokens) if types[id] != UNUSED},
            "merges": _field(reader, "tokenizer.ggml.merges"),
        },
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": add_bos, "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "bos_token": bos, "eos_token": special("eos")[1], "unk_token": special("unknown")[1],
        "pad_token": special("padding")[1],
    }
    template = _field(reader, "tokenizer.chat_template")
    if template is not None:
        config["chat_template"] = template
    return tokenizer, config


def write_tokenizer(reader: gguf.GGUFReader, out_dir: Path) -> None:
    """Writes tokenizer.json and tokenizer_config.json into out_dir. Raises UnsupportedTokenizer."""
    tokenizer, config = build_tokenizer(reader)
    for name, content in (("tokenizer.json", tokenizer), ("tokenizer_config.json", config)):
        (Path(out_dir) / name).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
