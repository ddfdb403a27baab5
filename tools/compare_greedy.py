"""Asks a running cluster for the greedy continuations in test/golden/smollm2_greedy.json and compares them, token by token,
with what transformers made of the same weights (bf16 weights, fp32 arithmetic).

Where they part, the two likeliest tokens must have been a tie within bf16 noise: their logits, as transformers computed
them, at most --tie apart. Such places are listed. Everything else is an error.
"""

import argparse
import json
import pathlib
import sys

import baton_messages
import grpc

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "test" / "golden" / "smollm2_greedy.json"


def generate(channel, types, ids, count):
    """The token ids of one greedy request; ends of sequence do not stop it, as in the goldens."""
    request = types["GenerateRequest"]()
    request.segments.segments.add().token_ids.ids.extend(ids)
    request.sampling.max_tokens = count
    request.sampling.temperature = 0
    request.sampling.ignore_eos = True
    call = channel.unary_stream("/baton.v1.Inference/Generate",
                                request_serializer=types["GenerateRequest"].SerializeToString,
                                response_deserializer=types["GenerateResponse"].FromString)
    return [token for response in call(request, timeout=120) for token in response.token_ids]


def first_difference(got, expected):
    return next((i for i, (a, b) in enumerate(zip(got, expected)) if a != b), None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default="127.0.0.1:7070")
    parser.add_argument("--tie", type=float, default=0.1, help="logits this near are a tie (default 0.1)")
    parser.add_argument("--least", type=int, default=20, help="prompts that must be equal throughout (default 20)")
    args = parser.parse_args()
    types = baton_messages.load()
    channel = grpc.insecure_channel(args.server)
    equal, ties, wrong = 0, [], []
    prompts = json.loads(GOLDEN.read_text())["prompts"]
    for number, prompt in enumerate(prompts):
        got = generate(channel, types, prompt["prompt_ids"], len(prompt["f32"]))
        at = first_difference(got, prompt["f32"])
        if len(got) != len(prompt["f32"]):
            wrong.append(f"prompt {number}: expected {len(prompt['f32'])} tokens, got {len(got)}")
        elif at is None:
            equal += 1
        else:
            place = f"prompt {number}, token {at}: expected {prompt['f32'][at]}, got {got[at]}, gap {prompt['f32_gaps'][at]:.3f}"
            (ties if prompt["f32_gaps"][at] <= args.tie else wrong).append(place)
    print(f"greedy: {equal} of {len(prompts)} prompts equal transformers' {len(prompts[0]['f32'])} tokens")
    for place in ties:
        print(f"  tie within bf16 noise: {place}")
    for place in wrong:
        print(f"  WRONG: {place}")
    if wrong or equal < args.least:
        sys.exit(f"greedy: {len(wrong)} wrong, {equal} equal of {args.least} needed")


if __name__ == "__main__":
    main()
