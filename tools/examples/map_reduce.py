"""Map and reduce: three agents look at one text, a fourth puts their answers together in the order of its prompt."""

from agents import ask, show, start_workflow

TEXT = "The harbour was quiet. Two boats came in at dawn with herring, and by noon all of it was sold."

flow = start_workflow(__doc__)
questions = ["Who is in the text?", "What is sold?", "When does it happen?"]
# The instruction and the text are the same for all three: they are computed once, even while in flight.
answers = [ask(flow, "map", "You answer in one sentence.", TEXT + "\n", question, max_tokens=32) for question in questions]
summary = ask(flow, "reduce", "You summarise answers.", *[part for answer in answers for part in ("\n- ", answer)],
              "\nSummarise.")
for question, answer in zip(questions, answers):
    show(question, answer)
show("summary", summary)
