"""Token lengths of the sessions that bench/sessions runs.

  tools/python bench/session_profiles.py FOLDER

measures the lengths again. FOLDER has agents/reflexion_react and tokenizers/llama3_1.

The lengths come from transcripts of Reflexion's ReAct agents on HotpotQA, 5 trials of 100
questions. The transcripts have the lengths of questions, of a step's thought with its action, and
of a step's observation. They also have the number of steps.
"""

import pathlib
import re
import statistics
import sys
from math import exp
from random import Random

AGENTS = ("planner", "searcher", "critic", "writer")

# Means that measure() computed, in tokens of Llama 3.1.
QUESTION, STEPS, OUTPUT, OBSERVATION, LONGEST_OBSERVATION, TRIALS = 21, 3.6, 41, 134, 532, 5
# Assumptions. The transcripts have one agent and do not have its instructions.
# Instructions with examples, the same for all sessions.
SYSTEM = 1500
# Instruction for the next agent that a turn adds.
ROLE = 60
# Time of a tool in seconds, lognormal: median, sigma of the logarithm, upper bound. The mean is
# 3.1, the p95 is 11.
PAUSE, PAUSE_SIGMA, LONGEST_PAUSE = 1.5, 1.2, 60.0


def session(name, trials, random):
    """Returns the turns of four agents over one conversation.

    In each step of a trial, all four agents take a turn. Then the step's observation is added.
    ReAct has one trial. Reflexion continues with further trials in the same conversation.
    """
    turns, added = [], [("system", SYSTEM), (f"{name} question", QUESTION)]
    for trial in range(trials):
        for step in range(max(1, round(random.gauss(STEPS, 1.2)))):
            for agent in AGENTS:
                added.append((f"{name} {trial} {step} {agent}", ROLE))
                turns.append({"model": agent, "added": [{"ids": ids, "length": length} for ids, length in added],
                              "output": random.randint(OUTPUT // 2, OUTPUT + OUTPUT // 2 + 1)})
                added = []
            observed = min(1 + round(random.expovariate(1 / OBSERVATION)), LONGEST_OBSERVATION)
            added = [(f"{name} {trial} {step} observation", observed)]
    return turns


def with_pauses(turns, random):
    """Returns the same turns with pauses. A tool takes time before its observation is added."""
    def pause(turn):
        works = turn["added"][0]["ids"].endswith("observation")
        return {"pause": min(PAUSE * exp(random.gauss(0, PAUSE_SIGMA)), LONGEST_PAUSE)} if works else {}

    return [turn | pause(turn) for turn in turns]


def sessions(profile, count, seed=1, pauses=False):
    random = Random(f"{profile} {seed}")
    made = [session(f"{profile} {n}", {"ReAct": 1, "Reflexion": TRIALS}[profile], random) for n in range(count)]
    tools = Random(f"{profile} {seed} tools")
    return [with_pauses(turns, tools) for turns in made] if pauses else made



def trials(text):
    """Yields (question, thoughts with actions, observations) of each trial."""
    for part in re.split(r"^Question: ", text, flags=re.M)[1:]:
        part = re.split(r"^(?:Correct answer:|#{8,}|-{8,})", part, flags=re.M)[0]
        question, *steps = re.split(r"^(?=Thought \d+:|Observation \d+:)", part, flags=re.M)
        yield question, [s for s in steps if s[0] == "T"], [s for s in steps if s[0] == "O"]


def measure(folder):
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizers/llama3_1/tokenizer.json"))
    text = (folder / "agents/reflexion_react/100_questions_5_trials.txt").read_text(errors="replace")
    length = lambda piece: len(tokenizer.encode(piece, add_special_tokens=False).ids)  # noqa: E731
    all_trials = list(trials(text))
    figures = {"question": [length(q) for q, _, _ in all_trials], "steps": [len(t) for _, t, _ in all_trials],
               "thought and action": [length(s) for _, t, _ in all_trials for s in t],
               "observation": [length(s) for _, _, o in all_trials for s in o]}
    for name, values in figures.items():
        print(f"{name:20} mean {statistics.fmean(values):7.1f}  p95 {statistics.quantiles(values, n=20)[-1]:7.1f}  of {len(values)}")


if __name__ == "__main__":
    measure(pathlib.Path(sys.argv[1]))
