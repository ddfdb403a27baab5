"""Conversion of prompts and options to requests, for the synchronous and the asyncio client."""

from __future__ import annotations

import dataclasses
import json
import re
import uuid
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from .connection import timeout_ms
from .messages import MESSAGES
from .prompts import AgentName, Announced, Group, Join, Message, Options, OutputOf, Part, Reference, Sampling, TokenIds


def draw_id(name: str) -> str:
    """Returns a unique id. It begins with at most 100 characters of the name.

    A character that an id must not contain becomes "-"."""
    return f"{re.sub(r'[^A-Za-z0-9_.:-]', '-', name)[:100]}-{uuid.uuid4().hex[:12]}"


def _fill_segment(segment: Any, part: Part | AgentName) -> None:
    if isinstance(part, str):
        segment.text = part
    elif isinstance(part, TokenIds):
        segment.token_ids.ids.extend(part.ids)
    elif isinstance(part, Group):
        for inner in part.parts:
            _fill_segment(segment.group.parts.add(), inner)
    elif isinstance(part, AgentName):
        segment.agent_name.SetInParent()
    else:
        _fill_reference(segment.output_of, part if isinstance(part, OutputOf) else OutputOf(part))


def _fill_reference(message: Any, reference: OutputOf) -> None:
    upstream = reference.request
    if not isinstance(upstream, (str, Reference)):
        raise TypeError(f"a prompt has texts, token ids, runs, OutputOf and Group, not {type(upstream).__name__}")
    # Concurrent calls may arrive in another order than the client made them. A reference to a
    # request that the server may not have yet is therefore announced. A reference to a known
    # request is not: if the server no longer keeps its output, the request fails at once.
    known = isinstance(upstream, str) or upstream.known
    message.request_id = upstream if isinstance(upstream, str) else upstream.id
    message.announced = not known if reference.announced is None else reference.announced
    message.on_failure = message.OnFailure.Value(f"ON_FAILURE_{reference.on_failure.upper()}")
    message.substitute = reference.substitute
    message.with_reasoning = reference.with_reasoning
    message.timeout_ms = timeout_ms(reference.timeout or None) or reference.timeout_ms


def fill_prompt(request: Any, prompt: Sequence[Part | Message], options: Options, tools: Sequence[Any] = ()) -> None:
    """Writes a prompt into a request: a chat if the prompt has messages, otherwise segments.

    Raises TypeError if the prompt has messages and other parts, or a part of another type."""
    chat = [part for part in prompt if isinstance(part, Message)]
    parts = [part for part in prompt if not isinstance(part, Message)]
    if not chat:
        if tools or options.template_kwargs:
            raise TypeError("tools and template_kwargs are for chats")
        for part in parts:
            _fill_segment(request.segments.segments.add(), part)
        return
    if parts:
        raise TypeError("a prompt has either messages or other parts, not both")
    if tools:
        request.chat.tools = json.dumps(tools)
    if options.template_kwargs:
        request.chat.template_kwargs = json.dumps(options.template_kwargs)
    for message in chat:
        out = request.chat.messages.add(role=message.role, tool_calls=message.tool_calls,
                                        tool_call_id=message.tool_call_id, name=message.name,
                                        reasoning_content=message.reasoning_content)
        if len(message.parts) == 1 and isinstance(message.parts[0], str):
            out.content = message.parts[0]
            continue
        for part in message.parts:
            _fill_segment(out.parts.add(), part)


def _fill_options(request: Any, options: Options, workflow: str, agent: str) -> None:
    request.workflow, request.agent = workflow, agent
    for name in ("model", "session_id", "cache_salt", "priority", "context_id", "context_length", "first"):
        if (value := getattr(options, name)) is not None:
            setattr(request, name, value)
    request.timeout_ms = timeout_ms(options.timeout)
    if options.join is not None:
        request.join = get_args(Join).index(options.join)


def _on_the_wire(value: Any) -> Any:
    """Returns a parameter of sampling in the form of the message's field."""
    if isinstance(value, str):  # one text in place of a list; a str is a sequence of strings too
        return (value,)
    if isinstance(value, Mapping):
        return [MESSAGES["TokenBias"](id=token, bias=bias) for token, bias in value.items()]
    return value


def generate_request(workflow: str, agent: str | Announced, prompt: Sequence[Part | Message], options: Options,
                     sampling: Sampling | None, max_tokens: int | None, tools: Sequence[Any]) -> Any:
    sampling = sampling or Sampling()
    if max_tokens is not None:
        warnings.warn("agent(max_tokens=...) is replaced by sampling=Sampling(max_tokens=...)", DeprecationWarning,
                      stacklevel=3)
        sampling = dataclasses.replace(sampling, max_tokens=max_tokens)
    name = agent.agent if isinstance(agent, Announced) else agent
    id = agent.id if isinstance(agent, Announced) else draw_id(name or "request")
    request = MESSAGES["GenerateRequest"](request_id=id)
    _fill_options(request, options, workflow, name)
    for field in ("expected_tokens", "keep"):
        if (value := getattr(options, field)) is not None:
            setattr(request, field, value)
    fill_prompt(request, prompt, options, tools)
    request.sampling.MergeFrom(MESSAGES["Sampling"](**{
        field.name: _on_the_wire(value) for field in dataclasses.fields(sampling)
        if (value := getattr(sampling, field.name)) is not None}))
    return request


def prefill_request(workflow: str, prompt: Sequence[Part | Message], options: Options) -> Any:
    request = MESSAGES["PrefillOnlyRequest"]()
    _fill_options(request, options, workflow, "")
    fill_prompt(request, prompt, options)
    return request


def trace_request(workflow: str, cache_salt: str) -> Any:
    return MESSAGES["TraceRequest"](workflow=workflow, cache_salt=cache_salt)


def cancel_request(workflow: str, cache_salt: str) -> Any:
    return MESSAGES["CancelWorkflowRequest"](workflow=workflow, cache_salt=cache_salt)


class WorkflowOptions:
    """The options and limits of a workflow, and the cache salts that its requests have used."""

    def __init__(self, defaults: Options, deadline: float | None, max_tokens: int | None):
        self.defaults = defaults
        if max_tokens is not None and max_tokens < 1:
            raise ValueError(f"max_tokens of a workflow: expected at least 1, got {max_tokens}")
        if deadline is not None and not deadline > 0:
            raise ValueError(f"deadline of a workflow: expected more than 0 s, got {deadline}")
        self._limits = MESSAGES["WorkflowLimits"](deadline_ms=timeout_ms(deadline), max_tokens=max_tokens or 0)
        # In the order of their first use.
        self._salts: dict[str, None] = {}

    def merge(self, options: Options | None) -> Options:
        """Returns the options of one request. Records its salt for salts()."""
        merged = (options or Options()).merged_over(self.defaults)
        self._salts[merged.cache_salt or ""] = None
        return merged

    def limit(self, request: Any) -> Any:
        """Writes the limits into a request. Returns the request."""
        if self._limits.deadline_ms or self._limits.max_tokens:
            request.workflow_limits.CopyFrom(self._limits)
        return request

    def salts(self) -> list[str]:
        """Returns the salts of the requests. A call about a workflow concerns one salt."""
        return list(self._salts) or [self.defaults.cache_salt or ""]
