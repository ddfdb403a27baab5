"""Batches of sequences whose KV comes from several modules in turn.

Training and the reference both use this implementation of the server's boundary rule. The prefill
module computes KV of tokens [0, n-1) of a prompt of n tokens. The decoder runs token n-1 as its
first step, and then everything after it. See PrefillShare (arXiv 2602.12029). proto/worker.proto
has the server's side of the rule.
"""

import torch
from transformers.cache_utils import Cache, DynamicLayer


_COLUMNS = 128


class _Layer(DynamicLayer):
    """KV of one layer.

    Without gradients, the layer reserves space for more tokens. A copy for each token would take
    time. It would also fragment memory into pieces that are too small for the next copy.
    """

    def update(self, key_states, value_states, *args, **kwargs):
        if torch.is_grad_enabled():
            return super().update(key_states, value_states, *args, **kwargs)
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            # [batch, kv heads, columns, head size]
            self._rooms = [states[:, :, :0] for states in (key_states, value_states)]
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
    """KV as the server stores it for bf16 models: rounded before attention reads it."""

    def update(self, key_states, value_states, *args, **kwargs):
        key_states, value_states = (states.bfloat16().to(states.dtype) for states in (key_states, value_states))
        return super().update(key_states, value_states, *args, **kwargs)


class Sequences:
    """KV of a batch of sequences. Each call of extend() adds columns to the cache, padded left."""

    def __init__(self, batch, kv_dtype, device):
        self._cache = Cache(layer_class_to_replicate=_Bf16Layer if kv_dtype == torch.bfloat16 else _Layer)
        # [batch, columns]
        self._is_token = torch.zeros(batch, 0, dtype=torch.bool, device=device)
        # Number of tokens so far.
        self._lengths = torch.zeros(batch, 1, dtype=torch.long, device=device)

    def extend(self, model, rows):
        """Runs `model` over one list of token ids for each sequence. Lists may be empty.

        Returns the hidden states [batch, width, hidden] before the LM head. The tokens of row i are
        its last len(rows[i]) columns. Returns None if all lists are empty.
        """
        width = max(map(len, rows))
        if width == 0:
            return None
        device = self._is_token.device
        ids = torch.tensor([[0] * (width - len(row)) + row for row in rows], device=device)
        counts = torch.tensor([[len(row)] for row in rows], device=device)
        # Index of each token in its row. Negative for padding.
        index = torch.arange(width, device=device)[None] - (width - counts)
        self._is_token = torch.cat([self._is_token, index >= 0], dim=1)
        output = model.model(input_ids=ids, attention_mask=self._mask(width), past_key_values=self._cache, use_cache=True,
                             position_ids=(self._lengths + index).clamp(min=0))
        self._lengths = self._lengths + counts
        return output.last_hidden_state

    def _mask(self, width):
        """Returns the attention mask of the last `width` columns, [batch, 1, width, columns].

        Padding reads itself. A column that reads nothing becomes NaN on some devices. A NaN spreads
        to the columns that read it, even with weight 0.
        """
        columns = torch.arange(self._is_token.shape[1], device=self._is_token.device)
        queries = columns[-width:, None]
        return ((columns <= queries) & self._is_token[:, None] | (columns == queries))[:, None]


def prefill(base, decoder, prompts, shares, kv_dtype):
    """Computes KV of all tokens of each prompt but the last.

    The first `shares[i]` (0 to 1) of the KV comes from `base`. The rest comes from `decoder`, which
    reads the KV of `base`. The server's rule is a share of 1.
    """
    sequences = Sequences(len(prompts), kv_dtype, decoder.device)
    borders = [round(share * (len(prompt) - 1)) for share, prompt in zip(shares, prompts)]
    sequences.extend(base, [prompt[:border] for prompt, border in zip(prompts, borders)])
    sequences.extend(decoder, [prompt[border:-1] for prompt, border in zip(prompts, borders)])
    return sequences
