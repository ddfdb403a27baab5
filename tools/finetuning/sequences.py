"""Batches of sequences whose KV comes from several modules in turn: the boundary rule of the server, once, for training
and for the reference.

A prompt of n tokens has KV of [0, n-1) from the prefill module. The decoder runs token n-1 as its first step, and
everything after it (PrefillShare, arXiv 2602.12029, and docs on the server's side: proto/worker.proto).
"""

import torch
from transformers.cache_utils import Cache, DynamicLayer


_COLUMNS = 128


class _Layer(DynamicLayer):
    """KV of one layer. Where no gradient goes through it, it has room for more: to be copied for each token takes time, and leaves
    memory in pieces that are each too small for the next copy."""

    def update(self, key_states, value_states, *args, **kwargs):
        if torch.is_grad_enabled():
            return super().update(key_states, value_states, *args, **kwargs)
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._rooms = [states[:, :, :0] for states in (key_states, value_states)]  # [batch, kv heads, columns, head size]
        begin = self.get_seq_length()
        end = begin + key_states.shape[2]
        for i, states in enumerate((key_states, value_states)):
            if end > self._rooms[i].shape[2]:
                room = states.new_empty(*states.shape[:2], (end // _COLUMNS + 1) * _COLUMNS, states.shape[3])
                room[:, :, :begin] = self._rooms[i][:, :, :begin]
                self._rooms[i] = room
            self._rooms[i][:, :, begin:end] = states
        self.keys, self.values = (room[:, :, :end] for room in self._rooms)
        return self.keys, self.values


class _Bf16Layer(_Layer):
    """KV as the server keeps it for bf16 models: rounded when stored, before attention reads it."""

    def update(self, key_states, value_states, *args, **kwargs):
        key_states, value_states = (states.bfloat16().to(states.dtype) for states in (key_states, value_states))
        return super().update(key_states, value_states, *args, **kwargs)


class Sequences:
    """KV of a batch of sequences. Each call of extend is a group of columns of the cache, padded on its left."""

    def __init__(self, batch, kv_dtype, device):
        self._cache = Cache(layer_class_to_replicate=_Bf16Layer if kv_dtype == torch.bfloat16 else _Layer)
        self._is_token = torch.zeros(batch, 0, dtype=torch.bool, device=device)  # [batch, columns]
        self._lengths = torch.zeros(batch, 1, dtype=torch.long, device=device)  # tokens so far

    def extend(self, model, rows):
        """Runs `model` over one list of token ids for each sequence, some of which may be empty. Returns the hidden
        states [batch, width, hidden] before the LM head; row i's tokens are the last len(rows[i]) columns."""
        width = max(map(len, rows))
        if width == 0:
            return None
        device = self._is_token.device
        ids = torch.tensor([[0] * (width - len(row)) + row for row in rows], device=device)
        counts = torch.tensor([[len(row)] for row in rows], device=device)
        index = torch.arange(width, device=device)[None] - (width - counts)  # of a token in its row; negative: padding
        self._is_token = torch.cat([self._is_token, index >= 0], dim=1)
        output = model.model(input_ids=ids, attention_mask=self._mask(width), past_key_values=self._cache, use_cache=True,
                             position_ids=(self._lengths + index).clamp(min=0))
        self._lengths = self._lengths + counts
        return output.last_hidden_state

    def _mask(self, width):
        """What each of the last `width` columns reads, [batch, 1, width, columns]. Padding reads itself: to read nothing is NaN
        on some devices, and no weight of 0 keeps a NaN out of what others read."""
        columns = torch.arange(self._is_token.shape[1], device=self._is_token.device)
        queries = columns[-width:, None]
        return ((columns <= queries) & self._is_token[:, None] | (columns == queries))[:, None]


def prefill(base, decoder, prompts, shares, kv_dtype):
    """KV of all but the last token of each prompt: the first `shares[i]` (0 to 1) of it from `base`, the rest, which reads
    it, from `decoder`. The server's rule is a share of 1."""
    sequences = Sequences(len(prompts), kv_dtype, decoder.device)
    borders = [round(share * (len(prompt) - 1)) for share, prompt in zip(shares, prompts)]
    sequences.extend(base, [prompt[:border] for prompt, border in zip(prompts, borders)])
    sequences.extend(decoder, [prompt[border:-1] for prompt, border in zip(prompts, borders)])
    return sequences
