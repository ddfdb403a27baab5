"""A chain: each agent uses the output of the agent before it.

The prompt of an agent is computed while the agent before it still generates.
"""

from agents import ask, show, start_workflow

flow = start_workflow(__doc__)
facts = ask(flow, "facts", "You list facts.", "List three facts about the sea.")
story = ask(flow, "story", "You write a short story from facts.", "The facts:\n", facts, "\nWrite the story.")
title = ask(flow, "title", "You name stories.", "The story:\n", story, "\nGive it a title.", max_tokens=16)
for name, run in {"facts": facts, "story": story, "title": title}.items():
    show(name, run)
