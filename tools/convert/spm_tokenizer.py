"""Converts a small SentencePiece BPE vocabulary to byte-level BPE, for the stories models.

The vocabulary has tokenizer.ggml.model = llama. Text gets the token ids that SentencePiece gives,
with two differences:
- No space is put before the text. The text "Once upon" in llama2.c is " Once upon" here.
- A byte that has its own piece, such as "e", decodes only from that piece. Its unused byte-fallback
  token decodes to "<0x65>".

The conversion works as follows:
- A piece becomes the bytes of its text. U+2581 of SentencePiece becomes a space.
- Every split of a piece into two pieces becomes a merge. Merges are ordered by the piece's score.
- A character of two bytes becomes a merge of its bytes.
- A longer character becomes an added token. That gives the same ids only if no longer piece
  contains the character. A vocabulary with such a piece is refused.
"""

import json

from gguf_tokenizer import UnsupportedTokenizer

# Values of tokenizer.ggml.token_type in the GGUF specification.
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6


def byte_alphabet():
    """Returns the printable character that GPT-2 uses for each byte."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


_ALPHABET = byte_alphabet()


def _written(text):
    return "".join(_ALPHABET[byte] for byte in text.encode())


def _added(id, content, special):
    return {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": special}


def _merges(pieces):
    """Returns the pairs of pieces in the order in which SentencePiece joins them.

    `pieces` is {text: score}.
    """
    by_score = sorted((text for text in pieces if len(text) > 1), key=lambda text: -pieces[text])
    return [(text[:cut], text[cut:]) for text in by_score for cut in range(1, len(text))
            if text[:cut] in pieces and text[cut:] in pieces]


def build_spm_tokenizer(model):
    """Returns tokenizer.json as a dictionary. Raises UnsupportedTokenizer."""
    tokens, types, scores = (model.field(f"tokenizer.ggml.{name}") for name in ("tokens", "token_type", "scores"))
    vocab, added, pieces, merges = {}, [], {}, []
    for id, (token, kind) in enumerate(zip(tokens, types)):
        text = token.replace("\u2581", " ")
        if kind in (CONTROL, UNKNOWN):
            vocab[token] = id
            added.append(_added(id, token, special=True))
        elif kind == BYTE:
            stand_in = _ALPHABET[int(token[3:5], 16)]  # "<0x41>"
            vocab.setdefault(stand_in, id)
        elif kind == NORMAL and len(text) == 1 and len(text.encode()) > 2:
            vocab[text] = id
            added.append(_added(id, text, special=False))
        elif kind == NORMAL and (len(text) == 1 or text.isascii()):
            pieces[text] = scores[id]
            vocab[_written(text)] = id
            if len(text.encode()) == 2 and len(text) == 1:
                merges.append(list(_written(text)))
        else:
            raise UnsupportedTokenizer(f"token {id} ({token!r}, type {kind}) has no byte-level equivalent")
    taken = set(vocab.values())
    vocab.update((token, id) for id, token in enumerate(tokens) if id not in taken)
    merges += [[_written(left), _written(right)] for left, right in _merges(pieces)]
    return _document(model, vocab, merges, added)


def _document(model, vocab, merges, added):
    bos_id = model.generation_config()["bos_token_id"]
    bos = model.field("tokenizer.ggml.tokens")[bos_id]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                     {"SpecialToken": {"id": bos, "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {bos: {"id": bos, "ids": [bos_id], "tokens": [bos]}},
        },
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": dict(sorted(vocab.items(), key=lambda item: item[1])), "merges": merges,
        },
    }


def write_spm_tokenizer(model, out_dir):
    """Writes tokenizer.json and tokenizer_config.json into out_dir. Raises UnsupportedTokenizer."""
    ids, tokens = model.generation_config(), model.field("tokenizer.ggml.tokens")
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": True, "add_prefix_space": False,
              "clean_up_tokenization_spaces": False, "bos_token": tokens[ids["bos_token_id"]],
              "eos_token": tokens[ids["eos_token_id"]]}
    for name, content in (("tokenizer.json", build_spm_tokenizer(model)), ("tokenizer_config.json", config)):
        (out_dir / name).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
