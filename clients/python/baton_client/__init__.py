"""Workflows of agents on a Baton server, over gRPC.

    from baton_client import Client, Sampling

    with Client("127.0.0.1:7070") as client:
        flow, short = client.workflow("trip"), Sampling(max_tokens=60)
        facts = flow.agent("facts", "List three facts about the sea.", sampling=short)
        # Submits a request whose prompt contains the output of `facts`. Returns at once.
        story = flow.agent("story", "The facts:\\n", facts, "\\nWrite a story.")
        for text in story.stream():
            print(text, end="", flush=True)

AsyncClient has the same methods for asyncio. A failed request raises BatonError."""

from .aio import AsyncClient, AsyncRun, AsyncWorkflow
from .client import Client, Run, Workflow
from .errors import BatonError, RootCause
from .prompts import AgentName, Announced, Group, Message, Options, OutputOf, Part, Reference, Sampling, TokenIds
from .results import (AgentSums, Chunk, Model, Partial, Prefilled, PromptLogprobs, Result, Span, Timings,
                      TokenLogprobs, Trace, TracedRequest, Usage)
from .values import AsyncValue, Value

__all__ = ["AgentName", "AgentSums", "Announced", "AsyncClient", "AsyncRun", "AsyncValue", "AsyncWorkflow", "BatonError",
           "Chunk", "Client", "Group", "Message", "Model", "Options", "OutputOf", "Part", "Partial", "Prefilled",
           "PromptLogprobs", "Reference", "Result", "RootCause", "Run", "Sampling", "Span", "Timings", "TokenIds",
           "TokenLogprobs", "Trace", "TracedRequest", "Usage", "Value", "Workflow"]
