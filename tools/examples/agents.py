"""Functions that the examples share: start a workflow, start an agent, print its answer."""

import argparse
import pathlib
import sys

from baton_client import Client, Message, Sampling


def start_workflow(description):
    """Starts a workflow on the server that the command line names. Its name is the example's."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--server", default="127.0.0.1:7070", help="the router (default 127.0.0.1:7070)")
    server = parser.parse_args().server
    flow = Client(server).workflow(pathlib.Path(sys.argv[0]).stem)
    print(f"workflow {flow.id}; to see it drawn: baton trace {flow.id} --server {server} --html trace.html\n")
    return flow


def ask(flow, agent, instruction, *inputs, max_tokens=64, options=None):
    """Starts an agent with a system message and a user message.

    The user message consists of `inputs`. Each input is a text or the output of another agent.
    """
    return flow.agent(agent, Message("system", instruction), Message("user", *inputs),
                      sampling=Sampling(max_tokens=max_tokens, temperature=0), options=options)


def show(name, run):
    result = run.result()
    timings = result.timings
    ready_ms = timings.queue_ms + timings.prefill_ms + timings.handoff_ms + timings.decode_queue_ms
    print(f"--- {name}: waited {timings.upstream_ms:.0f} ms for upstream agents, then {ready_ms:.0f} ms until decode began\n{result.text.strip()}\n")
