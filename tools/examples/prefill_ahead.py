"""A prompt that is computed while a tool still writes it: when the tool is done, only the question is left to prefill."""

import time
import uuid

from agents import MESSAGES, server_argument, show

client = server_argument(__doc__)
context = f"trip-{uuid.uuid4().hex[:12]}"


def tool():
    """Slow, and in pieces."""
    yield "Forecast for the coast, as the harbour office gives it, to be read before anyone goes out. "
    for day in ("Monday: rain and a strong wind.", "Tuesday: fog until noon.", "Wednesday: sun and a calm sea."):
        time.sleep(0.2)
        yield day + " "


length = 0
for piece in tool():
    request = MESSAGES["PrefillOnlyRequest"](context_id=context, context_length=length)
    request.segments.segments.add(text=piece)
    answer = client.prefill_only(request)
    assert client.prefill_only(request).context_length == answer.context_length  # as if the first answer had been lost
    length = answer.context_length
    print(f"{length} tokens are computed ahead, and kept for {answer.lease_ms / 1000:.0f} s")

# Several may go on from there.
for question in ("The best day to sail is", "The worst day to sail is"):
    request = MESSAGES["GenerateRequest"](context_id=context, context_length=length)
    request.segments.segments.add(text=question)
    request.sampling.max_tokens = 12
    request.sampling.temperature = 0
    agent = client.start_request(request)
    show(question, agent)
    assert agent.final.usage.cached_tokens >= length - 16, agent.final  # KV is cached in blocks of 16 tokens
