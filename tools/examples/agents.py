"""What the examples share: the server that is asked for, and an agent as they write it."""

import argparse
import pathlib
import sys

from baton_client import Client, Message, Sampling


def start_workflow(description):
    """A workflow on the server of the command line, named after the example."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--server", default="127.0.0.1:7070", help="the router (default 127.0.0.1:7070)")
    server = parser.parse_args().server
    flow = Client(server).workflow(pathlib.Path(sys.argv[0]).stem)
    print(f"workflow {flow.id}; to see it drawn: baton trace {flow.id} --server {server} --html trace.html\n")
    return flow


def ask(flow, agent, instruction, *inputs, max_tokens=64, options=None):
    """Starts an agent: a system message, and a user message of `inputs`, each a text or another's output."""
    return flow.agent(agent, Message("system", instruction), Message("user", *inputs),
                      sampling=Sampling(max_tokens=max_tokens, temperature=0), options=options)


def show(name, run):
    result = run.result()
    timings = result.timings
    ready_ms = timings.queue_ms + timings.prefill_ms + timings.handoff_ms
    print(f"--- {name}: waited {timings.upstream_ms:.0f} ms for others, then {ready_ms:.0f} ms to be ready to decode\n{result.text.strip()}\n")
