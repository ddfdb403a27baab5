"""A small client for agent workflows: requests that run side by side, and prompts that refer to others' outputs."""

import pathlib
import sys
import threading
import time
import uuid

import grpc

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import baton_messages  # noqa: E402

MESSAGES = baton_messages.load()


class Agent:
    """One request, which runs from its making. Another agent's prompt may contain it."""

    def __init__(self, client, request):
        self.id = request.request_id
        self.text = ""
        self.token_ids = []
        self.logprobs = []  # TokenLogprobs of the tokens, where asked for
        self.final = None
        self.started = time.monotonic()
        self.first_token_at = None
        self.ended_at = None
        self.error = None
        self._call = client.generate(request)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        try:
            for response in self._call:
                if response.token_ids and self.first_token_at is None:
                    self.first_token_at = time.monotonic()
                self.text += response.text
                self.token_ids.extend(response.token_ids)
                self.logprobs.extend(response.logprobs)
                if response.HasField("final"):
                    self.final = response.final
        except grpc.RpcError as error:
            self.error = error
        self.ended_at = time.monotonic()

    def result(self):
        """Waits for the end; returns the text."""
        self._thread.join()
        if self.error is not None:
            raise self.error
        return self.text

    def cancel(self):
        self._call.cancel()


def refer(reference, agent):
    """Fills an OutputOf; `agent` may be the id of one that comes later."""
    over = isinstance(agent, Agent) and agent.ended_at is not None
    reference.request_id = agent.id if isinstance(agent, Agent) else agent
    # Calls that run side by side may arrive in another order than they were made in. One that is over has arrived: if its
    # output is not kept any more, that is an error at once and not after a wait for another of this name.
    reference.announced = not over


class Client:
    def __init__(self, server, workflow=""):
        self.workflow = workflow  # what `baton trace` knows the requests by
        self._channel = grpc.insecure_channel(server)
        self.generate = self._channel.unary_stream(
            "/baton.v1.Inference/Generate",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=MESSAGES["GenerateResponse"].FromString)
        self.prefill_only = self._channel.unary_unary(
            "/baton.v1.Inference/PrefillOnly",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=MESSAGES["PrefillOnlyResponse"].FromString)

    def agent(self, instruction, *inputs, max_tokens=64, join="ORDER", announced=(), name="agent", **sampling):
        """Starts an agent: a system message, and a user message of `inputs`, each a text or another agent (or, if it is
        named in `announced`, the id of one that comes later). Returns at once."""
        request = MESSAGES["GenerateRequest"](request_id=f"{name}-{uuid.uuid4().hex[:12]}", agent=name,
                                              join=f"JOIN_{join}")
        return self.start(request, instruction, inputs, max_tokens, announced, sampling)

    def start(self, request, instruction, inputs, max_tokens=64, announced=(), sampling=None):
        request.chat.messages.add(role="system", content=instruction)
        user = request.chat.messages.add(role="user")
        for part in inputs:
            if isinstance(part, Agent) or part in announced:
                reference = user.parts.add().output_of
                refer(reference, part)
            else:
                user.parts.add(text=part)
        request.sampling.MergeFrom(MESSAGES["Sampling"](max_tokens=max_tokens, **{"temperature": 0.0, **(sampling or {})}))
        return self.start_request(request)

    def start_request(self, request):
        request.workflow = self.workflow
        return Agent(self, request)


def server_argument(description):
    import argparse
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--server", default="127.0.0.1:7070", help="the router (default 127.0.0.1:7070)")
    server = parser.parse_args().server
    # A name of its own for each run: its trace shows no other.
    workflow = f"{pathlib.Path(sys.argv[0]).stem}-{uuid.uuid4().hex[:6]}"
    print(f"workflow {workflow}; for a picture of it: baton trace {workflow} --server {server} --html trace.html\n")
    return Client(server, workflow)


def show(name, agent):
    text = agent.result().strip()
    timings = agent.final.timings
    print(f"--- {name}: waited {timings.upstream_ms:.0f} ms for others, then {timings.queue_ms + timings.prefill_ms + timings.handoff_ms:.0f} ms"
          f" to be ready to decode\n{text}\n")
