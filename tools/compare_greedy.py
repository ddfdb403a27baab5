"""Asks a running cluster for the greedy continuations in test/golden/smollm2_greedy.json and compares them, token by token,
with what transformers made of the same weights (bf16 weights, fp32 arithmetic).

Where they part, the two likeliest tokens must have been a tie within bf16 noise: their logits, as transformers computed
them, at most --tie apart. Such a place is listed, and the comparison goes on behind it with transformers' token in the
prompt, so that every token is compared. Everything else is an error.
"""

import argparse
import json
import pathlib
import sys

import grpc
from baton_client.messages import MESSAGES

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "test" / "golden" / "smollm2_greedy.json"


def generate(channel, types, ids, count):
    """The token ids of one greedy request; ends of sequence do not stop it, as in the goldens."""
    request = types["GenerateRequest"]()
    request.segments.segments.add().token_ids.ids.extend(ids)
    request.sampling.max_tokens = count
    request.sampling.temperature = 0
    request.sampling.repetition_penalty = 1  # whatever the model's own defaults
    request.sampling.ignore_eos = True
    call = channel.unary_stream("/baton.v1.Inference/Generate",
                                request_serializer=types["GenerateRequest"].SerializeToString,
                                response_deserializer=types["GenerateResponse"].FromString)
    return [token for response in call(request) for token in response.token_ids]


def differences(channel, types, prompt):
    """The positions of prompt["f32"] at which the cluster chooses another token."""
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
    parser.add_argument("--tie", type=float, default=0.1, help="logits this near are a tie (default 0.1)")
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
    print(f"greedy: {len(prompts)} prompts of {len(prompts[0]['f32'])} tokens against transformers: {equal} equal throughout, "
          f"{len(ties)} ties within bf16 noise, {len(wrong)} wrong")
    for place in ties:
        print(f"  tie: {place}")
    for place in wrong:
        print(f"  WRONG: {place}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
