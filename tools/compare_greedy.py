"""Compares greedy tokens of a running cluster with those of transformers.

The prompts and the expected tokens are in test/golden/smollm2_greedy.json. transformers computed
them with the same bf16 weights and fp32 arithmetic.

A different token is a tie if the logits of the two likeliest tokens in transformers are at most
--tie apart. That is within the noise of bf16. The tool lists ties. After a different token, the
comparison continues with transformers' token in the prompt, so every token is compared. Any other
difference is an error.
"""

import argparse
import json
import pathlib
import sys

import grpc
from baton_client.messages import MESSAGES

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "test" / "golden" / "smollm2_greedy.json"


def generate(channel, types, ids, count):
    """Returns the token ids of a greedy request. An end of sequence does not stop it."""
    request = types["GenerateRequest"]()
    request.segments.segments.add().token_ids.ids.extend(ids)
    request.sampling.max_tokens = count
    request.sampling.temperature = 0
    # Overrides the model's default.
    request.sampling.repetition_penalty = 1
    request.sampling.ignore_eos = True
    call = channel.unary_stream("/baton.v1.Inference/Generate",
                                request_serializer=types["GenerateRequest"].SerializeToString,
                                response_deserializer=types["GenerateResponse"].FromString)
    return [token for response in call(request) for token in response.token_ids]


def differences(channel, types, prompt):
    """Yields (position in prompt["f32"], the cluster's token) where the cluster's token differs."""
    expected = prompt["f32"]
    begin = 0
    while begin < len(expected):
        got = generate(channel, types, prompt["prompt_ids"] + expected[:begin], len(expected) - begin)
        if len(got) != len(expected) - begin:
            sys.exit(f"greedy: expected {len(expected) - begin} tokens, got {len(got)}")
        at = next((i for i, token in enumerate(got) if token != expected[begin + i]), None)
        if at is None:
            return
        yield begin + at, got[at]
        begin += at + 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default="127.0.0.1:7070")
    parser.add_argument("--tie", type=float, default=0.1, help="largest difference of logits that is a tie (default 0.1)")
    args = parser.parse_args()
    types = MESSAGES
    channel = grpc.insecure_channel(args.server)
    equal, ties, wrong = 0, [], []
    prompts = json.loads(GOLDEN.read_text())["prompts"]
    for number, prompt in enumerate(prompts):
        places = list(differences(channel, types, prompt))
        equal += not places
        for at, token in places:
            gap = prompt["f32_gaps"][at]
            place = f"prompt {number}, token {at}: expected {prompt['f32'][at]}, got {token}, gap {gap:.3f}"
            (ties if gap <= args.tie else wrong).append(place)
    print(f"greedy: {len(prompts)} prompts of {len(prompts[0]['f32'])} tokens against transformers: {equal} fully equal, "
          f"{len(ties)} ties within bf16 noise, {len(wrong)} wrong")
    for place in ties:
        print(f"  tie: {place}")
    for place in wrong:
        print(f"  WRONG: {place}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
