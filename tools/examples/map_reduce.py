"""Map and reduce: three agents answer questions about one text, and a fourth joins their answers.

The answers stand in the order of the fourth agent's prompt.
"""

from agents import ask, show, start_workflow

TEXT = "The harbour was quiet. Two boats came in at dawn with herring, and by noon all of it was sold."

flow = start_workflow(__doc__)
questions = ["Who is in the text?", "What is sold?", "When does it happen?"]
# The three prompts begin with the same instruction and text. The server computes that prefix once,
# even for requests that run at the same time.
answers = [ask(flow, "map", "You answer in one sentence.", TEXT + "\n", question, max_tokens=32) for question in questions]
summary = ask(flow, "reduce", "You summarise answers.", *[part for answer in answers for part in ("\n- ", answer)],
              "\nSummarise.")
for question, answer in zip(questions, answers):
    show(question, answer)
show("summary", summary)
