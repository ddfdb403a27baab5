"""Fan-in by arrival: a judge reads proposals in the order in which they are finished; one that is late is left out."""

from agents import MESSAGES, refer, server_argument, show

client = server_argument(__doc__)
writers = {n: client.agent("You propose a name for a boat.", f"Use at most {n} words.", max_tokens=4 * n, name="writer")
           for n in (12, 6, 3)}
request = MESSAGES["GenerateRequest"](request_id=f"judge-{next(iter(writers.values())).id}", agent="judge",
                                      join="JOIN_ARRIVAL")
request.chat.messages.add(role="system", content="You choose the best of some proposals.")
user = request.chat.messages.add(role="user")
for writer in writers.values():
    user.parts.add(text="\nProposal: ")
    reference = user.parts.add().output_of
    refer(reference, writer)
    reference.timeout_ms = 20000
    reference.on_failure = MESSAGES["OutputOf"].ON_FAILURE_SUBSTITUTE  # with no text: left out
user.parts.add(text="\nWhich one?")
request.sampling.max_tokens = 32
request.sampling.temperature = 0
judge = client.start_request(request)
for n, writer in writers.items():
    show(f"writer of {n} words", writer)
show("judge", judge)
