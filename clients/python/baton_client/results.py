"""The types of results, and their conversion from the protocol's messages."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

from .errors import RootCause, read_root


@dataclasses.dataclass(frozen=True)
class TokenLogprobs:
    # Natural logarithm of the chosen token's probability.
    logprob: float
    # (token id, log probability), the likeliest first.
    top: tuple[tuple[int, float], ...]
    # Only for tokens of a prompt: 1 plus the number of likelier tokens.
    rank: int = 0


@dataclasses.dataclass(frozen=True)
class PromptLogprobs:
    """Log probabilities of a prompt's tokens."""

    token_ids: tuple[int, ...]
    # One for each token but the first, which follows nothing.
    logprobs: tuple[TokenLogprobs, ...]


@dataclasses.dataclass(frozen=True)
class Chunk:
    """One message of the response stream.

    The text need not match the tokens, because the server may hold text back: half a character, or
    the beginning of a stop string."""

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...]
    # On one message if the request asked for it.
    prompt_logprobs: PromptLogprobs | None = None


@dataclasses.dataclass(frozen=True)
class Usage:
    """Numbers of tokens."""

    prompt_tokens: int
    # Tokens of the prompt that were not computed for this request. Includes shared_tokens.
    cached_tokens: int
    completion_tokens: int
    # Cached tokens that another request computed at the same time.
    shared_tokens: int


@dataclasses.dataclass(frozen=True)
class Timings:
    """Durations of consecutive stages, in milliseconds. Their sum is `total_ms`.

    The last two fields count from the arrival."""

    # Wait for the outputs that the prompt refers to.
    upstream_ms: float
    # Wait for the first step of a prefill worker that computed tokens of the complete prompt.
    queue_ms: float
    prefill_ms: float
    handoff_ms: float
    # Wait for the first step of the decode worker with the request.
    decode_queue_ms: float
    # From then until the first token.
    first_step_ms: float
    # From the first token until the end.
    decode_ms: float
    first_token_ms: float
    total_ms: float


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of a run.

    In a prompt it stands for the output of its run, as the run does: a reference by id. The server
    keeps the output for two minutes after its end. A prompt without on_failure then fails with
    NOT_FOUND; TokenIds(result.token_ids) and result.text stay usable."""

    request_id: str
    text: str
    token_ids: tuple[int, ...]
    # One for each token if the request asked for them. Otherwise empty.
    logprobs: tuple[TokenLogprobs, ...]
    finish_reason: Literal["stop", "length", "cancelled", "unspecified"]
    usage: Usage
    timings: Timings
    context_length: int  # tokens of the context; 0 without a context
    # Milliseconds for which the router keeps the context, unless it is used again.
    lease_ms: int
    # None unless the request asked for it.
    prompt_logprobs: PromptLogprobs | None = None
    # 1, or one more than that of the run with this id that failed before.
    attempt: int = 1

    @property
    def id(self) -> str:
        return self.request_id

    @property
    def known(self) -> bool:
        return True


@dataclasses.dataclass(frozen=True)
class Partial:
    """The output of a run so far that failed or was cancelled (BatonError.partial)."""

    text: str
    token_ids: tuple[int, ...]
    # One for each token if the request asked for them. Otherwise empty.
    logprobs: tuple[TokenLogprobs, ...]


@dataclasses.dataclass(frozen=True)
class Prefilled:
    """A prompt whose KV the server has computed.

    The KV stays in a prefill worker's prefix cache. It may be evicted from there, unless a context
    leases it."""

    request_id: str
    usage: Usage
    timings: Timings
    # Tokens of the context after this call. 0 without a context.
    context_length: int
    # Milliseconds for which the router keeps the context, unless it is used again.
    lease_ms: int


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    # Upper bound on the tokens of prompt and output.
    context: int
    vocabulary: int
    has_chat_template: bool
    # Whether a prefill worker and a decode worker that share KV are attached for the model, or a
    # drained one left less than 30 s ago.
    ready: bool


@dataclasses.dataclass(frozen=True)
class Span:
    """A phase of a request. Times are microseconds since the arrival of the first request."""

    phase: Literal["unspecified", "waiting", "queued", "prefill", "handoff", "decode_queue", "first_step",
                   "decode"]
    begin_us: int
    end_us: int
    tokens: int
    steps: int


@dataclasses.dataclass(frozen=True)
class TracedRequest:
    request_id: str  # empty if a refused request had none
    agent: str
    arrived_us: int
    # The present time if the request still runs.
    ended_us: int
    over: bool
    # "CODE: message". Empty if the request runs or has succeeded.
    error: str
    spans: tuple[Span, ...]
    # Ids of the upstream requests that the trace contains.
    upstreams: tuple[str, ...]
    usage: Usage
    # Id of the request's W3C trace.
    trace_id: str
    # How often another decode worker went on with the output, because the one before was lost.
    resumed: int = 0
    # These decode workers may differ in bits, so one worker alone may have made other tokens.
    mixed_numerics: bool = False
    # 1, or one more than that of the request with this id that failed before.
    attempt: int = 1
    # The attempts of `upstreams`, in the same order.
    upstream_attempts: tuple[int, ...] = ()
    # Names the thing that a running request waits for, such as "a request slot".
    waits_for: str = ""
    # Ids of the upstream requests that it waits for, at most 64.
    awaited: tuple[str, ...] = ()
    # The request whose failure made this one fail.
    root: RootCause | None = None
    # The router did not accept the request. Only its names, its error and the time are known.
    refused: bool = False
    # Prompt tokens that were computed before the last output in the prompt was complete.
    overlap_tokens: int = 0


@dataclasses.dataclass(frozen=True)
class AgentSums:
    """Sums over the requests of one agent, including those that a trace omits."""

    agent: str  # empty: the requests without an agent name
    requests: int
    failed: int  # of `requests`
    refused: int  # not in `requests`
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    overlap_tokens: int
    total_ms: float
    # The parts of total_ms in which the requests waited for other outputs, and for workers.
    upstream_ms: float
    queued_ms: float


@dataclasses.dataclass(frozen=True)
class Trace:
    # In the order of arrival. The latest 512 of each cache salt, and the latest 64 refused ones.
    requests: tuple[TracedRequest, ...]
    # Number of earlier requests.
    omitted: int
    # Number of earlier refused requests that the server kept at first.
    refused_omitted: int = 0
    # Those with the most time first. At most 512 of each cache salt.
    agents: tuple[AgentSums, ...] = ()


def _fields(kind: Any, message: Any) -> Any:
    """Makes a dataclass from the fields of a message with equal names."""
    return kind(**{field.name: getattr(message, field.name) for field in dataclasses.fields(kind)})


def _name(message: Any, field: str) -> Any:
    """Returns the name of an enumeration's value without its prefix.

    A value that only a newer server has becomes "unspecified"."""
    kind = message.DESCRIPTOR.fields_by_name[field].enum_type
    value = kind.values_by_number.get(getattr(message, field), kind.values_by_number[0])
    return value.name.removeprefix(f"{field.upper()}_").lower()


def _read_logprobs(tokens: Any) -> tuple[TokenLogprobs, ...]:
    return tuple(TokenLogprobs(token.logprob, tuple(zip(token.top_ids, token.top_logprobs)), token.rank)
                 for token in tokens)


def read_chunk(response: Any) -> Chunk:
    prompt = None
    if response.HasField("prompt_logprobs"):
        sent = response.prompt_logprobs
        prompt = PromptLogprobs(tuple(sent.token_ids), _read_logprobs(sent.logprobs))
    return Chunk(response.text, tuple(response.token_ids), _read_logprobs(response.logprobs), prompt)


def read_partial(chunks: Sequence[Chunk]) -> Partial | None:
    """Returns None if no output has arrived."""
    output = Partial(text="".join(chunk.text for chunk in chunks),
                     token_ids=tuple(id for chunk in chunks for id in chunk.token_ids),
                     logprobs=tuple(token for chunk in chunks for token in chunk.logprobs))
    return output if output.text or output.token_ids else None


def read_result(request_id: str, chunks: Sequence[Chunk], final: Any) -> Result:
    output = read_partial(chunks) or Partial("", (), ())
    return Result(
        request_id=request_id, text=output.text, token_ids=output.token_ids, logprobs=output.logprobs,
        finish_reason=_name(final, "finish_reason"), usage=_fields(Usage, final.usage),
        timings=_fields(Timings, final.timings), context_length=final.context_length, lease_ms=final.lease_ms,
        prompt_logprobs=next((chunk.prompt_logprobs for chunk in chunks if chunk.prompt_logprobs), None),
        attempt=final.attempt or 1)


def read_prefilled(response: Any) -> Prefilled:
    return Prefilled(response.request_id, _fields(Usage, response.usage), _fields(Timings, response.timings),
                     response.context_length, response.lease_ms)


def read_models(response: Any) -> list[Model]:
    return [_fields(Model, model) for model in response.models]


def _read_span(span: Any, shift_us: int) -> Span:
    return Span(_name(span, "phase"), span.begin_us + shift_us, span.end_us + shift_us, span.tokens, span.steps)


def _read_traced(response: Any, shift_us: int) -> list[TracedRequest]:
    ids = [request.request_id for request in response.requests]
    return [TracedRequest(
        request_id=request.request_id, agent=request.agent, arrived_us=request.arrived_us + shift_us,
        ended_us=request.ended_us + shift_us, over=request.over, error=request.error,
        spans=tuple(_read_span(span, shift_us) for span in request.spans),
        upstreams=tuple(ids[index] for index in request.upstreams), usage=_fields(Usage, request.usage),
        trace_id=request.trace_id, resumed=request.resumed, mixed_numerics=request.mixed_numerics,
        attempt=request.attempt or 1,
        upstream_attempts=tuple(response.requests[index].attempt or 1 for index in request.upstreams),
        waits_for=request.waits_for, awaited=tuple(request.awaited),
        root=read_root(request.root) if request.HasField("root") else None, refused=request.refused,
        overlap_tokens=request.overlap_tokens)
        for request in response.requests]


def _read_agents(responses: Sequence[Any]) -> tuple[AgentSums, ...]:
    """Adds up the sums of agents with equal names."""
    totals: dict[str, AgentSums] = {}
    for message in (sums for response in responses for sums in response.agents):
        sums = _fields(AgentSums, message)
        if known := totals.get(sums.agent):
            sums = AgentSums(sums.agent, *(a + b for a, b in zip(dataclasses.astuple(known)[1:],
                                                                dataclasses.astuple(sums)[1:])))
        totals[sums.agent] = sums
    return tuple(sorted(totals.values(), key=lambda sums: -sums.total_ms))


def read_traces(responses: Sequence[Any]) -> Trace:
    """Joins the traces of a workflow's requests with several cache salts.

    REQUIRES: all responses are from one router. A router before 0.2.0 sends no origin. The times of
    each salt then begin at 0."""
    origin_us = min(response.origin_us for response in responses)
    requests = [request for response in responses
                for request in _read_traced(response, response.origin_us - origin_us if origin_us else 0)]
    requests.sort(key=lambda request: request.arrived_us)
    return Trace(tuple(requests), sum(response.omitted for response in responses),
                 sum(response.refused_omitted for response in responses), _read_agents(responses))
