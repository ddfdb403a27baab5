"""Compares the log probabilities of prompts' tokens with those of transformers, over HTTP.

Runs with PyTorch (tools/setup --finetune). The models are the tiny ones of test/golden, and
SmolLM2-135M if it was fetched. `baton serve` answers with `echo` and `logprobs`. transformers
computes all tokens of the same prompts from the same weights, in fp32 arithmetic.

The limit is 1e-4 for weights in f32. For weights in bf16 it is 4 * 1.5e-2 * the root mean square of
the logits. This is the larger of the two limits in test/backend/cpu/golden_test.cc, for kernels
that round activations.
"""

import json
import sys
import urllib.request

import torch
from serving import ROOT, Server
from transformers import AutoModelForCausalLM

TINY_TOKENS, SMOLLM_TOKENS = 150, 400


def served(server, ids):
    """Returns the log probabilities of all tokens but the first."""
    body = {"prompt": ids, "echo": True, "logprobs": 0, "max_tokens": 0}
    request = urllib.request.Request(f"{server.http}/v1/completions", json.dumps(body).encode(),
                                     {"content-type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        values = json.load(answer)["choices"][0]["logprobs"]["token_logprobs"]
    if len(values) != len(ids) or values[0] is not None:
        sys.exit(f"expected {len(ids)} values of which the first is null, got {len(values)}: {values[:2]}")
    return torch.tensor(values[1:])


def expected(model, ids):
    """Returns the log probabilities of transformers, and the root mean square of the logits."""
    tokens = torch.tensor([ids])
    with torch.no_grad():
        logits = model(tokens).logits[0]
    logprobs = torch.log_softmax(logits[:-1].double(), -1).gather(1, tokens[0, 1:, None])[:, 0]
    return logprobs, logits.double().square().mean().sqrt().item()


def compare(path, count):
    """Prints the largest difference of one model. Returns whether it is within the limit."""
    is_f32 = path.name.endswith("_f32")
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    ids = torch.randint(0, model.config.vocab_size, (count,), generator=torch.Generator().manual_seed(1)).tolist()
    server = Server(model=path, kv_memory_mb=128)
    got = served(server, ids)
    server.kill()
    wanted, size = expected(model, ids)
    limit = 1e-4 if is_f32 else 4 * 1.5e-2 * size
    error = (got - wanted).abs().max().item()
    print(f"logprobs: {path.name}: {count - 1} tokens, largest error {error:.2g}, limit {limit:.2g}")
    return error <= limit


def main():
    cases = [(path, TINY_TOKENS) for path in sorted((ROOT / "test/golden").glob("tiny_*"))]
    smollm = ROOT / "models/smollm2-135m-instruct"
    if smollm.exists():
        cases.append((smollm, SMOLLM_TOKENS))
    # Compares all models, also after one that differs.
    if not all([compare(path, count) for path, count in cases]):
        sys.exit("logprobs: an error exceeds its limit")


if __name__ == "__main__":
    main()
