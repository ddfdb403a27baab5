"""Compares the log probabilities of prompts' tokens with those of transformers, over HTTP.

Runs with PyTorch (tools/setup --finetune). The models are the tiny ones of test/golden, and
SmolLM2-135M if it was fetched. `baton serve` answers with `echo` and `logprobs`. transformers
computes all tokens of the same prompts from the same weights, in fp32 arithmetic. The prompts are:

- random token ids
- all prompts that lm-eval's `local-completions` sends for the tasks in TASKS, if lm-eval is
  installed (tools/setup --clients --evals). A proxy between lm-eval and the server records them
  with their answers.

The limit is 1e-4 for weights in f32. For weights in bf16 it is 4 * 1.5e-2 * the root mean square of
the logits. This is the larger of the two limits in test/backend/cpu/golden_test.cc, for kernels
that round activations.
"""

import contextlib
import http.server
import json
import sys
import threading
import urllib.error
import urllib.request

import torch
from evaluation import evaluate
from serving import ROOT, Server
from transformers import AutoModelForCausalLM

TINY_TOKENS, SMOLLM_TOKENS = 150, 400
# These are in clients/python/tests/packages/tasks: a task of choices, and one of whole texts.
TASKS = "capitals,capitals_perplexity"
EVALS = ROOT / ".venv-clients"


def post(url, body):
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return answer.read()


@contextlib.contextmanager
def recorder(server, calls):
    """Yields the address of a proxy for the server.

    The proxy appends the body and the answer of each call that is not refused to `calls`."""

    class Proxy(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            try:
                status, answer = 200, post(server.http + self.path, body)
                calls.append((json.loads(body), json.loads(answer)))
            except urllib.error.HTTPError as refusal:
                status, answer = refusal.code, refusal.read()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        threading.Thread(target=proxy.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{proxy.server_port}"
        finally:
            proxy.shutdown()


def random_call(server, vocab, count):
    """Returns the body and the answer of a call with random ids."""
    ids = torch.randint(0, vocab, (count,), generator=torch.Generator().manual_seed(1)).tolist()
    body = {"prompt": ids, "echo": True, "logprobs": 0, "max_tokens": 0}
    return body, json.loads(post(f"{server.http}/v1/completions", json.dumps(body).encode()))


def lm_eval_calls(server, path):
    """Returns the bodies and the answers of all calls of lm-eval."""
    calls = []
    with recorder(server, calls) as url:
        samples = evaluate(EVALS / "bin/python", "local-completions", TASKS, model=path.name, tokenizer=path,
                           base_url=f"{url}/v1/completions")
    expected = sum(len(sample["resps"]) for sample in samples)
    if len(calls) != expected or expected == 0:
        sys.exit(f"lm-eval: expected a call for each of {expected} responses, got {len(calls)}")
    return calls


def prompts_of(body, answer):
    """Yields each prompt of a call with the log probabilities of all its tokens but the first."""
    prompts = body["prompt"] if isinstance(body["prompt"][0], list) else [body["prompt"]]
    if len(prompts) != len(answer["choices"]):
        sys.exit(f"expected {len(prompts)} choices, got {len(answer['choices'])}")
    for ids, choice in zip(prompts, answer["choices"]):
        values = choice["logprobs"]["token_logprobs"]
        # lm-eval asks for one token of output, which it ignores.
        expected = len(ids) + body["max_tokens"]
        if len(values) != expected or values[0] is not None:
            sys.exit(f"expected {expected} values of which the first is null, got {len(values)}: {values[:2]}")
        yield ids, torch.tensor(values[1:len(ids)])


def wanted(model, ids):
    """Returns the log probabilities of transformers, and the root mean square of the logits."""
    tokens = torch.tensor([ids])
    with torch.no_grad():
        logits = model(tokens).logits[0]
    logprobs = torch.log_softmax(logits[:-1].double(), -1).gather(1, tokens[0, 1:, None])[:, 0]
    return logprobs, logits.double().square().mean().sqrt().item()


def compare(model, path, source, calls):
    """Prints the largest difference. Returns whether each token is within its prompt's limit."""
    results = []
    for ids, got in (prompt for call in calls for prompt in prompts_of(*call)):
        logprobs, size = wanted(model, ids)
        limit = 1e-4 if path.name.endswith("_f32") else 4 * 1.5e-2 * size
        results.append((len(got), (got - logprobs).abs().max().item(), limit))
    counts, errors, limits = zip(*results)
    print(f"logprobs: {path.name}: {source}: {len(counts)} prompts, {sum(counts)} tokens, "
          f"largest error {max(errors):.2g}, least limit {min(limits):.2g}", flush=True)
    return all(error <= limit for _, error, limit in results)


def check(path, count):
    """Compares all prompts of one model. Returns whether all are within their limits."""
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    server = Server(model=path, kv_memory_mb=128)
    try:
        sources = {"random ids": [random_call(server, model.config.vocab_size, count)]}
        if (EVALS / "evals.sha256").exists():
            sources["lm-eval"] = lm_eval_calls(server, path)
    finally:
        server.kill()
    # Compares all sources, also after one that differs.
    return all([compare(model, path, source, calls) for source, calls in sources.items()])


def main():
    if not (EVALS / "evals.sha256").exists():
        print("SKIPPED: logprobs: lm-eval is not installed; run tools/setup --clients --evals")
    cases = [(path, TINY_TOKENS) for path in sorted((ROOT / "test/golden").glob("tiny_*"))]
    smollm = ROOT / "models/smollm2-135m-instruct"
    if smollm.exists():
        cases.append((smollm, SMOLLM_TOKENS))
    if not all([check(path, count) for path, count in cases]):
        sys.exit("logprobs: an error exceeds its limit")


if __name__ == "__main__":
    main()
