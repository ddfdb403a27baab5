"""Fan-in by arrival: a judge reads proposals in the order in which they finish.

A late proposal is left out.
"""

from agents import ask, show, start_workflow
from baton_client import Options, OutputOf

flow = start_workflow(__doc__)
writers = {n: ask(flow, "writer", "You propose a name for a boat.", f"Use at most {n} words.", max_tokens=4 * n)
           for n in (12, 6, 3)}
# An empty substitute replaces a proposal that is late or fails, so the prompt leaves it out.
proposals = [OutputOf(writer, timeout=20, on_failure="substitute") for writer in writers.values()]
judge = ask(flow, "judge", "You choose the best of some proposals.",
            *(part for proposal in proposals for part in ("\nProposal: ", proposal)), "\nWhich one?",
            max_tokens=32, options=Options(join="arrival"))
for n, writer in writers.items():
    show(f"writer of {n} words", writer)
show("judge", judge)
