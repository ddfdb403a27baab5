"""A graph that grows while it runs: the reader of the last answer is submitted before anyone knows who will write it."""

import uuid

from agents import MESSAGES, server_argument, show

client = server_argument(__doc__)
last_id = f"last-{uuid.uuid4().hex[:12]}"
reader = client.agent("You praise.", "Praise this answer:\n", last_id, announced=[last_id], max_tokens=24, name="reader")

draft = client.agent("You answer in one sentence.", "Why is the sky blue?", max_tokens=48, name="draft")
# Only now is it known what happens next: a draft that is too long is shortened, another one is repeated.
task = "Say it in five words:\n" if len(draft.result()) > 40 else "Repeat it:\n"
request = MESSAGES["GenerateRequest"](request_id=last_id, agent="last")
last = client.start(request, "You edit.", [task, draft], max_tokens=24)
for name, agent in {"draft": draft, "last": last, "reader": reader}.items():
    show(name, agent)
