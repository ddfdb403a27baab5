"""Batches of sequences whose KV comes from several modules in turn: the boundary rule of the server, once, for training
and for the reference.

A prompt of n tokens has KV of [0, n-1) from the prefill module. The decoder runs token n-1 as its first step, and
everything after it (PrefillShare, arXiv 2602.12029, and docs on the server's side: proto/worker.proto).
"""

import torch
from transformers.cache_utils import Cache, DynamicLayer


class _Bf16Layer(DynamicLayer):
    """KV as the server keeps it for bf16 models: rounded when stored, before attention reads it."""

    def update(self, key_states, value_states, *args, **kwargs):
        key_states, value_states = (states.bfloat16().to(states.dtype) for states in (key_states, value_states))
        return super().update(key_states, value_states, *args, **kwargs)


class Sequences:
    """KV of a batch of sequences. Each call of extend is a group of columns of the cache, padded on its left."""

    def __init__(self, batch, kv_dtype, device):
        self._cache = Cache(layer_class_to_replicate=_Bf16Layer if kv_dtype == torch.bfloat16 else DynamicLayer)
        self._mask = torch.zeros(batch, 0, dtype=torch.long, device=device)  # [batch, columns], 1: a token
        self._lengths = torch.zeros(batch, 1, dtype=torch.long, device=device)  # tokens so far

    def extend(self, model, rows):
        """Runs `model` over one list of token ids for each sequence, some of which may be empty. Returns the hidden
        states [batch, width, hidden] before the LM head; row i's tokens are the last len(rows[i]) columns."""
        width = max(map(len, rows))
        if width == 0:
            return None
        device = self._mask.device
        ids = torch.tensor([[0] * (width - len(row)) + row for row in rows], device=device)
        counts = torch.tensor([[len(row)] for row in rows], device=device)
        index = torch.arange(width, device=device)[None] - (width - counts)  # of a token in its row; negative: padding
        self._mask = torch.cat([self._mask, (index >= 0).long()], dim=1)
        output = model.model(input_ids=ids, attention_mask=self._mask, past_key_values=self._cache, use_cache=True,
                             position_ids=(self._lengths + index).clamp(min=0))
        self._lengths = self._lengths + counts
        return output.last_hidden_state


def prefill(base, decoder, prompts, shares, kv_dtype):
    """KV of all but the last token of each prompt: the first `shares[i]` (0 to 1) of it from `base`, the rest, which reads
    it, from `decoder`. The server's rule is a share of 1."""
    sequences = Sequences(len(prompts), kv_dtype, decoder.device)
    borders = [round(share * (len(prompt) - 1)) for share, prompt in zip(shares, prompts)]
    sequences.extend(base, [prompt[:border] for prompt, border in zip(prompts, borders)])
    sequences.extend(decoder, [prompt[border:-1] for prompt, border in zip(prompts, borders)])
    return sequences
