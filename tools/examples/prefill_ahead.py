"""A prompt that is computed while a tool still writes it.

When the tool ends, only the question and at most 16 tokens before it are left to prefill.
"""

import time
import uuid

from agents import show, start_workflow
from baton_client import Options, Sampling

flow = start_workflow(__doc__)
context = f"trip-{uuid.uuid4().hex[:12]}"


def tool():
    """A slow tool that writes its text in pieces."""
    yield "Forecast for the coast, as the harbour office gives it, to be read before anyone goes out. "
    for day in ("Monday: rain and a strong wind.", "Tuesday: fog until noon.", "Wednesday: sun and a calm sea."):
        time.sleep(0.2)
        yield day + " "


length = 0
for piece in tool():
    so_far = Options(context_id=context, context_length=length)
    answer = flow.prefill_only(piece, options=so_far)
    # A client may send a piece again, for example because the first answer was lost.
    assert flow.prefill_only(piece, options=so_far).context_length == answer.context_length
    length = answer.context_length
    print(f"{length} tokens are prefilled and kept for {answer.lease_ms / 1000:.0f} s")

# Several requests may continue the same context.
for question in ("The best day to sail is", "The worst day to sail is"):
    run = flow.agent("", question, sampling=Sampling(max_tokens=12, temperature=0),
                     options=Options(context_id=context, context_length=length))
    show(question, run)
    # KV is cached in blocks of 16 tokens.
    assert run.result().usage.cached_tokens >= length - 16, run.result()
