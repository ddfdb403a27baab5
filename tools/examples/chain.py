"""A chain: each agent works on what the one before it says, and its prompt is computed while that one still speaks."""

from agents import server_argument, show

client = server_argument(__doc__)
facts = client.agent("You list facts.", "List three facts about the sea.", name="facts")
story = client.agent("You write a short story from facts.", "The facts:\n", facts, "\nWrite the story.", name="story")
title = client.agent("You name stories.", "The story:\n", story, "\nGive it a title.", max_tokens=16, name="title")
for name, agent in {"facts": facts, "story": story, "title": title}.items():
    show(name, agent)
