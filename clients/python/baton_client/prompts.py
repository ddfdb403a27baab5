"""What a prompt is made of, and how it is sampled. Everything here is data; nothing is sent."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, Union, runtime_checkable


@runtime_checkable
class Reference(Protocol):
    """A request whose output may stand in a prompt: a run, or one that is announced."""

    @property
    def id(self) -> str: ...

    @property
    def known(self) -> bool:
        """Whether the server certainly has it: something has come from it, or it is over."""
        ...


@dataclasses.dataclass(frozen=True)
class Announced:
    """A request that is submitted later, within two minutes; else it has failed. `Workflow.announce` makes it."""

    id: str
    agent: str

    @property
    def known(self) -> bool:
        return False


@dataclasses.dataclass(frozen=True)
class OutputOf:
    """Another request's output, with what happens if it fails or is late. A run by itself in a prompt means OutputOf(run).

    `request` may be an id, of a request that the server has already unless `announced` says otherwise.
    `on_failure`: "abort" (this one fails too), "partial" (what has come stands for it), "substitute".
    `timeout_ms`: milliseconds from the arrival of the reader; an output that is not complete then has failed. 0: none."""

    request: Reference | str
    announced: bool | None = None  # None: unless the request is known to be there
    on_failure: Literal["abort", "partial", "substitute"] = "abort"
    substitute: str = ""
    timeout_ms: int = 0


@dataclasses.dataclass(frozen=True)
class TokenIds:
    """Tokens of the model's vocabulary."""

    ids: Sequence[int]


Part = Union[str, TokenIds, OutputOf, Reference]


class Message:
    """One message of a chat. Its content is text and others' outputs, one after the other (no TokenIds)."""

    def __init__(self, role: str, *parts: Part, tool_calls: str = "", tool_call_id: str = "", name: str = "",
                 reasoning_content: str = ""):
        self.role = role  # what the model's template knows: "system", "user", "assistant", ...
        self.parts = parts
        self.tool_calls = tool_calls  # of an assistant: a JSON array of OpenAI's tool calls
        self.tool_call_id = tool_call_id  # of a tool: the call that it answers
        self.name = name
        self.reasoning_content = reasoning_content  # of an assistant: what it thought


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How tokens are chosen. What is None has the model's default; proto/inference.proto says which, and the limits."""

    max_tokens: int | None = None
    temperature: float | None = None  # 0: greedy
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None  # same seed and same request: same tokens
    stop: str | Sequence[str] = ()
    stop_ids: Sequence[int] = ()
    ignore_eos: bool = False
    logprobs: int | None = None  # of the chosen token and of so many likeliest ones


@dataclasses.dataclass(frozen=True)
class Options:
    """How a request is served. A run's options are merged with its workflow's, field by field.

    None means "not set": a run takes the workflow's value, and a field that neither sets has the server's default.
    Every other value, "" and 0 too, is the run's own. A run that sets `context_id` takes no `context_length` from its
    workflow, because the length belongs to the context."""

    model: str | None = None  # a server with one model needs none
    session_id: str | None = None  # requests with equal ids share workers, and so their KV
    cache_salt: str | None = None  # only requests with equal salts share KV and see each other's ids
    priority: int | None = None  # -1000 to 1000, the higher first; the default is 0
    join: Literal["order", "arrival"] | None = None  # "arrival": outputs join the prompt in the order of their completion
    expected_tokens: int | None = None  # a hint for scheduling: the length of the output
    context_id: str | None = None  # a prompt that prefill_only built up, which this one continues
    context_length: int | None = None  # tokens that the context should have; the server refuses any other length
    template_kwargs: Mapping[str, Any] | None = None  # further variables of a chat template ({"enable_thinking": False})
    timeout: float | None = None  # seconds until the request fails with DEADLINE_EXCEEDED; math.inf: no deadline

    def merged_over(self, defaults: Options) -> Options:
        """These options, with the fields of `defaults` where these are None."""
        if self.context_id is not None:
            defaults = dataclasses.replace(defaults, context_length=None)
        return dataclasses.replace(defaults, **{
            field.name: value for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) is not None})
