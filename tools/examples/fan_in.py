"""Fan-in by arrival: a judge reads the two proposals that finish first.

The third one is discarded, and its request is cancelled unless it has ended.
"""

from agents import ask, show, start_workflow
from baton_client import BatonError, Group, Options

flow = start_workflow(__doc__)
writers = {name: ask(flow, name, "You propose a name for a boat.", f"Use at most {words} words.", max_tokens=4 * words)
           for name, words in (("poet", 12), ("sailor", 6), ("child", 3))}
# The label names the agent. The group of a discarded proposal is left out with its label.
proposals = [Group(writer, label="\nProposal of the {agent}: ") for writer in writers.values()]
judge = ask(flow, "judge", "You choose the best of some proposals.", *proposals, "\nWhich one?", max_tokens=32,
            options=Options(join="arrival", first=2))
for name, writer in writers.items():
    try:
        show(name, writer)
    except BatonError as error:
        print(f"--- {name}: {error}\n")
show("judge", judge)
