"""Token lengths of the sessions that bench/sessions runs.

  tools/python bench/session_profiles.py FOLDER    measures them again: FOLDER has agents/reflexion_react and tokenizers/llama3_1

The transcripts (ReAct agents of Reflexion on HotpotQA, 5 trials of 100 questions) tell the lengths of a question, of a step's
thought with its action, of a step's observation, and the number of steps."""

import pathlib
import re
import statistics
import sys
from math import exp
from random import Random

AGENTS = ("planner", "searcher", "critic", "writer")

# Measured, means (main, below); Llama 3.1's tokens.
QUESTION, STEPS, OUTPUT, OBSERVATION, LONGEST_OBSERVATION, TRIALS = 21, 3.6, 41, 134, 532, 5
# Assumed: the transcripts have one agent, and not its instructions.
SYSTEM = 1500  # instructions with examples, the same for all sessions
ROLE = 60  # what a turn adds to tell the next agent what it is to do
PAUSE, PAUSE_SIGMA, LONGEST_PAUSE = 1.5, 1.2, 60.0  # s: a tool's time, lognormal: median, sigma of its logarithm (mean 3.1, p95 11), most


def session(name, trials, random):
    """Turns of four agents over one context: in each step of a trial all four take part in turn, then the step's observation
    is added. ReAct has one trial, Reflexion goes on in the same context with the next."""
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
    """The same turns; before an observation is added its tool takes time."""
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
    """Of each: its question, its thoughts with actions and its observations."""
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
