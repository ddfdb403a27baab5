"""The reference for a server's tokens: greedy generation over KV of a base.

The reference applies the server's boundary rule (sequences.py).
"""

import torch

from finetuning.sequences import prefill


@torch.no_grad()
def generate(base, decoder, prompts, max_tokens, *, kv_dtype, eos_ids=(), share=1.0):
    """Generates greedy tokens of `decoder` over KV of `base`. A prompt is a list of token ids.

    Returns {"tokens", "gaps"} for each prompt. "tokens" has at most max_tokens ids, and ends after
    an end of sequence. "gaps" has, for each token, the best logit minus the second.
    """
    sequences = prefill(base, decoder, prompts, [share] * len(prompts), kv_dtype)
    outputs = [{"tokens": [], "gaps": []} for _ in prompts]
    step = [prompt[-1:] for prompt in prompts]
    for _ in range(max_tokens):
        best = decoder.lm_head(sequences.extend(decoder, step)[:, -1]).float().topk(2)
        gaps = (best.values[:, 0] - best.values[:, 1]).tolist()
        step = best.indices[:, :1].tolist()
        live = 0
        for output, [token], gap in zip(outputs, step, gaps):
            if output["tokens"] and output["tokens"][-1] in eos_ids:
                continue
            output["tokens"].append(token)
            output["gaps"].append(round(gap, 4))
            live += token not in eos_ids
        if live == 0:
            break
    return outputs


def generate_in_batches(base, decoder, prompts, max_tokens, *, batch=64, **options):
    """Calls generate() with batches of prompts that have similar lengths.

    The results have the order of the prompts.
    """
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    outputs = [None] * len(prompts)
    for begin in range(0, len(order), batch):
        chosen = order[begin:begin + batch]
        for i, output in zip(chosen, generate(base, decoder, [prompts[i] for i in chosen], max_tokens, **options)):
            outputs[i] = output
    return outputs
