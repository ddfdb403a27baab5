"""A graph that grows while it runs: the reader of the last answer is submitted before anyone knows who will write it."""

from agents import ask, show, start_workflow

flow = start_workflow(__doc__)
last = flow.announce("last")
reader = ask(flow, "reader", "You praise.", "Praise this answer:\n", last, max_tokens=24)

draft = ask(flow, "draft", "You answer in one sentence.", "Why is the sky blue?", max_tokens=48)
# Only now is it known what happens next: a draft that is too long is shortened, another one is repeated.
task = "Say it in five words:\n" if len(draft.result().text) > 40 else "Repeat it:\n"
written = ask(flow, last, "You edit.", task, draft, max_tokens=24)
for name, run in {"draft": draft, "last": written, "reader": reader}.items():
    show(name, run)
