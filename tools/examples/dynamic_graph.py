"""A graph that grows while it runs.

The reader of the last answer is submitted before the agent that writes the answer is chosen.
"""

from agents import ask, show, start_workflow

flow = start_workflow(__doc__)
last = flow.announce("last")
reader = ask(flow, "reader", "You praise.", "Praise this answer:\n", last, max_tokens=24)

draft = ask(flow, "draft", "You answer in one sentence.", "Why is the sky blue?", max_tokens=48)
# The next step depends on the draft. An agent shortens a long draft and repeats a short one.
task = "Say it in five words:\n" if len(draft.result().text) > 40 else "Repeat it:\n"
written = ask(flow, last, "You edit.", task, draft, max_tokens=24)
for name, run in {"draft": draft, "last": written, "reader": reader}.items():
    show(name, run)
