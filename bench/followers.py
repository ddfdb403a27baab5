"""Measures the speed-up by prefill hints (field `followers`, docs/openai.md) on a running server.

  bench/followers.py --url http://127.0.0.1:8000 --model smollm2-135m-instruct

A pair is a call of a writer and a call of a critic whose prompt has the writer's output. Pairs with
prefill hints and pairs without them alternate. The two kinds have different cache salts. In both,
the instructions are cached from the first pair on.

Prints JSON: the time to the critic's first token, the time of both calls, and the number of tokens
in whole blocks of 16 that were not cached.
"""

import argparse
import json
import statistics
import time
import urllib.request

WRITER = "You are a writer. Write two sentences about what you are asked."
CRITIC = ("You are a critic. Say in one sentence what is good about the text that you are given and in another one what is "
          "missing from it. Be kind, be brief, and give an example of how it could be better.")
SUBJECTS = ("sea mountain city night love war tree forest river train piano bread winter moon desert school king cat horse island garden "
            "storm mirror letter bridge clock market doctor farm ship glass song").split()

RUN = time.time_ns()


def post(url, body):
    data = json.dumps(body).encode()
    return urllib.request.urlopen(urllib.request.Request(f"{url}/v1/chat/completions", data, {"content-type": "application/json"}))


def pair(arguments, number, ahead):
    """Runs a pair.

    Returns (seconds to the critic's first token, seconds of both calls, tokens not cached).
    """
    subject = f"the {SUBJECTS[number % len(SUBJECTS)]}{' again' * (number // len(SUBJECTS))}"
    task = {"role": "user", "content": f"Write about {subject}."}
    common = {"model": arguments.model, "cache_salt": f"{RUN}.{ahead}", "seed": number}

    def asked(words):
        return [{"role": "system", "content": CRITIC}, task, {"role": "assistant", "content": words}]

    write = {**common, "messages": [{"role": "system", "content": WRITER}, task], "max_tokens": arguments.tokens, "temperature": 0.8}
    if ahead:
        write["followers"] = [{"messages": asked([{"type": "output"}])}]
    begin = time.monotonic()
    with post(arguments.url, write) as answer:
        words = json.load(answer)["choices"][0]["message"]["content"]
    written, first, usage = time.monotonic(), None, None
    criticise = {**common, "messages": asked(words), "max_tokens": 16, "stream": True, "stream_options": {"include_usage": True}}
    with post(arguments.url, criticise) as events:
        for line in events:
            if line.startswith(b"data: {"):
                first = first or time.monotonic() - written
                usage = json.loads(line[6:]).get("usage") or usage
    blocks = (usage["prompt_tokens"] - 1) // 16 * 16
    return first, time.monotonic() - begin, blocks - usage["prompt_tokens_details"]["cached_tokens"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="address of the server's HTTP port")
    parser.add_argument("--model", default="smollm2-135m-instruct", help="name of the model")
    parser.add_argument("--pairs", type=int, default=32, help="measured pairs of each kind")
    parser.add_argument("--tokens", type=int, default=64, help="output tokens of the writer")
    arguments = parser.parse_args()
    runs = {False: [], True: []}
    # The first pair warms up the cache and is left out of the figures.
    for number in range(-1, arguments.pairs):
        for ahead in (True, False) if number % 2 else (False, True):
            runs[ahead].append(pair(arguments, number, ahead))
    report = {"pairs": arguments.pairs, "tokens": arguments.tokens}
    for ahead, name in ((False, "without"), (True, "with_followers")):
        first, both, missing = zip(*runs[ahead][1:])
        report[name] = {"first_token_ms": [round(1e3 * value, 1) for value in statistics.quantiles(first, n=4)],
                        "both_calls_s": [round(value, 3) for value in statistics.quantiles(both, n=4)],
                        "tokens_missing": {str(count): missing.count(count) for count in sorted(set(missing))}}
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
