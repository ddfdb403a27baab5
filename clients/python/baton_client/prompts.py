"""The parts of a prompt, sampling parameters and request options. These types are plain data."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, Union, get_args, runtime_checkable

Join = Literal["order", "arrival"]
OnFailure = Literal["abort", "partial", "substitute"]


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name}: expected one of {', '.join(map(repr, choices))}, got {value!r}")


def _check_seconds(name: str, value: float) -> None:
    if math.isnan(value):
        raise ValueError(f"{name}: expected seconds, got {value}")


@runtime_checkable
class Reference(Protocol):
    """A run, its result, a value or an announced request. A prompt may contain its output."""

    @property
    def id(self) -> str: ...

    @property
    def known(self) -> bool:
        """Whether the server certainly has the request: it has sent a chunk, or the run is over."""
        ...


@dataclasses.dataclass(frozen=True)
class Announced:
    """A request that is submitted later. Workflow.announce() makes it.

    It counts as failed if it is not submitted within two minutes."""

    id: str
    agent: str

    @property
    def known(self) -> bool:
        return False


@dataclasses.dataclass(frozen=True)
class OutputOf:
    """The output of another request (the upstream request) as a part of a prompt.

    A run in a prompt means OutputOf(run).
    - `request` is a run, its result, a value, an announced request, or the id of a request or value
      that the server has. With `announced`, the server need not have it yet.
    - `on_failure` chooses the result if the upstream request fails. "abort": this request fails
      too. "partial": the prompt gets the output so far. "substitute": the prompt gets `substitute`.
    - `timeout` is in seconds since the arrival of this request. An output that is not complete by
      then counts as failed. 0 or math.inf: no timeout.
    - `with_reasoning`: the prompt also gets the thoughts of a model that thinks, and not only its
      answer.
    - `timeout_ms` is the old form of `timeout`, in milliseconds. Version 0.2 drops it.

    Raises ValueError for another `on_failure`, and if `timeout` is NaN."""

    request: Reference | str
    # None: true unless the server certainly has the request.
    announced: bool | None = None
    on_failure: OnFailure = "abort"
    substitute: str = ""
    timeout_ms: int = 0
    timeout: float = 0
    with_reasoning: bool = False

    def __post_init__(self) -> None:
        _check_choice("OutputOf.on_failure", self.on_failure, get_args(OnFailure))
        _check_seconds("OutputOf.timeout", self.timeout)
        if self.timeout_ms:
            warnings.warn("OutputOf(timeout_ms=...) is replaced by timeout, in seconds", DeprecationWarning, stacklevel=3)


@dataclasses.dataclass(frozen=True)
class TokenIds:
    """Tokens of the model's vocabulary."""

    ids: Sequence[int]


@dataclasses.dataclass(frozen=True)
class AgentName:
    """A part of a Group: the agent name of the run whose output the group has."""


class Group:
    """A part of a prompt: an output with text around it, such as a label and a separator.

    The whole group is left out if its output is discarded (Options.first) or empty. One of `parts`
    is a run, an announced request or OutputOf. The others are texts, TokenIds and AgentName().
    `label` stands before `parts`. In it, "{agent}" means AgentName(). With join="arrival", all but
    the output stays at the group's position."""

    def __init__(self, *parts: Part | AgentName, label: str = ""):
        first, *rest = label.split("{agent}")
        named = (part for text in rest for part in (AgentName(), text))
        self.parts = tuple(part for part in (first, *named) if part != "") + parts


Part = Union[str, TokenIds, OutputOf, Reference, Group]


class Message:
    """One message of a chat. `parts` are texts, groups and outputs of other requests."""

    def __init__(self, role: str, *parts: Part, tool_calls: str = "", tool_call_id: str = "", name: str = "",
                 reasoning_content: str = ""):
        # A role of the model's chat template: "system", "user", "assistant", ...
        self.role = role
        self.parts = parts
        # Role assistant: a JSON array of tool calls in OpenAI's format.
        self.tool_calls = tool_calls
        # Role tool: the id of the call that the message answers.
        self.tool_call_id = tool_call_id
        self.name = name
        # Role assistant: the reasoning before the answer.
        self.reasoning_content = reasoning_content


@dataclasses.dataclass(frozen=True)
class Sampling:
    """Parameters that choose tokens.

    A field that is None has the model's default. proto/inference.proto has defaults and limits."""

    # None: the output may use what the prompt leaves of the context length.
    max_tokens: int | None = None
    temperature: float | None = None  # 0: greedy
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    # The same request with the same seed gives the same tokens. On GPUs this needs --same-bits.
    seed: int | None = None
    stop: str | Sequence[str] = ()
    stop_ids: Sequence[int] = ()
    ignore_eos: bool = False
    # Returns log probabilities of the chosen token and of this many likeliest tokens.
    logprobs: int | None = None
    # Numbers that are added to the logits of tokens.
    logit_bias: Mapping[int, float] | None = None
    min_tokens: int | None = None
    allowed_token_ids: Sequence[int] = ()
    bad_words: str | Sequence[str] = ()
    # Upper bound on the tokens between <think> and </think>.
    thinking_token_budget: int | None = None
    # The same for the tokens of the prompt (Result.prompt_logprobs).
    prompt_logprobs: int | None = None


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of a request. A run's options are merged with its workflow's, field by field.

    None means "not set": the run has the workflow's value. If the workflow does not set the field
    either, it has the server's default. Every other value, also "" and 0, overrides the workflow's.
    A run that sets `context_id` takes no `context_length` from its workflow, because the length
    belongs to the context.

    Raises ValueError for another `join`, and if `timeout` is NaN."""

    # The name of a model. Optional if the server has one model.
    model: str | None = None
    # Requests with equal ids normally run on the same workers, and reuse each other's KV.
    session_id: str | None = None
    # Requests share KV and can refer to each other only if their salts are equal.
    cache_salt: str | None = None
    # -1000 to 1000. Orders waiting requests. The default is 0. proto/inference.proto has the rule.
    priority: int | None = None
    # "arrival": outputs join the prompt in the order of their completion.
    join: Join | None = None
    # The prompt uses the outputs that complete first, as many as this number. The others are
    # discarded, which may cancel their runs (`keep`). 0: all outputs.
    first: int | None = None
    # Generates the output to its end. Otherwise a run to which other runs referred is cancelled
    # once all of them have ended, or have discarded its output. This field and the next have no
    # effect in prefill_only(), which has no output.
    keep: bool | None = None
    # The expected length of the output in tokens. It helps scheduling and is not a limit.
    expected_tokens: int | None = None
    # The id of a prompt that prefill_only() built. The request continues that prompt.
    context_id: str | None = None
    # The expected number of tokens of the context. The server refuses a request if it differs.
    context_length: int | None = None
    # Further variables of the chat template, for example {"enable_thinking": False}.
    template_kwargs: Mapping[str, Any] | None = None
    # Seconds until the request fails with DEADLINE_EXCEEDED. The error names what the request
    # waited for. If the server does not answer, the request fails 1 s later. math.inf: no deadline.
    timeout: float | None = None

    def __post_init__(self) -> None:
        if self.join is not None:
            _check_choice("Options.join", self.join, get_args(Join))
        if self.timeout is not None:
            _check_seconds("Options.timeout", self.timeout)

    def merged_over(self, defaults: Options) -> Options:
        """Returns these options. Fields that are None have the values of `defaults`."""
        if self.context_id is not None:
            defaults = dataclasses.replace(defaults, context_length=None)
        return dataclasses.replace(defaults, **{
            field.name: value for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) is not None})
