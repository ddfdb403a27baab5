"""What comes back."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal


@dataclasses.dataclass(frozen=True)
class TokenLogprobs:
    logprob: float  # of the chosen token, natural logarithm
    top: tuple[tuple[int, float], ...]  # (token id, logarithm), the likeliest first


@dataclasses.dataclass(frozen=True)
class Chunk:
    """What came at once. Text may be held back (half a character, half a stop string), so it need not fit the tokens."""

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...]


@dataclasses.dataclass(frozen=True)
class Usage:
    """Tokens."""

    prompt_tokens: int
    cached_tokens: int  # of the prompt: not computed for this request
    completion_tokens: int
    shared_tokens: int  # of the cached ones: computed by another request at the same time


@dataclasses.dataclass(frozen=True)
class Timings:
    """Milliseconds, of phases that follow each other; the last two are counted from the arrival."""

    upstream_ms: float  # waiting for outputs that the prompt refers to
    queue_ms: float
    prefill_ms: float
    handoff_ms: float
    first_token_ms: float
    total_ms: float


@dataclasses.dataclass(frozen=True)
class Result:
    request_id: str
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...]  # one for each token, where asked for
    finish_reason: Literal["stop", "length", "cancelled", "unspecified"]
    usage: Usage
    timings: Timings
    context_length: int  # tokens; 0 without a context
    lease_ms: int


@dataclasses.dataclass(frozen=True)
class Prefilled:
    """A prompt that was computed and kept."""

    request_id: str
    usage: Usage
    timings: Timings
    context_length: int  # tokens of the context now; 0 without one
    lease_ms: int  # how long it is kept, unless it is used


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    context: int  # most tokens of prompt and output
    vocabulary: int
    has_chat_template: bool
    ready: bool  # has workers


@dataclasses.dataclass(frozen=True)
class Span:
    """[begin_us, end_us), microseconds since the workflow's first request."""

    phase: Literal["unspecified", "waiting", "queued", "prefill", "handoff", "first_step", "decode"]
    begin_us: int
    end_us: int
    tokens: int
    steps: int


@dataclasses.dataclass(frozen=True)
class TracedRequest:
    request_id: str
    agent: str
    arrived_us: int
    ended_us: int  # of a live one: now
    over: bool
    error: str  # "CODE: why"; empty: it lives, or ended well
    spans: tuple[Span, ...]
    upstreams: tuple[str, ...]  # request ids that its prompt refers to, as far as the trace has them
    usage: Usage
    trace_id: str  # of its W3C trace


@dataclasses.dataclass(frozen=True)
class Trace:
    requests: tuple[TracedRequest, ...]  # by arrival; of each cache salt the latest 512
    omitted: int  # earlier ones


def _fields(kind: Any, message: Any) -> Any:
    """A dataclass whose fields are the message's."""
    return kind(**{field.name: getattr(message, field.name) for field in dataclasses.fields(kind)})


def _name(message: Any, field: str) -> Any:
    """Of an enumeration's value, without the prefix; "unspecified" for one that a newer server knows."""
    kind = message.DESCRIPTOR.fields_by_name[field].enum_type
    value = kind.values_by_number.get(getattr(message, field), kind.values_by_number[0])
    return value.name.removeprefix(f"{field.upper()}_").lower()


def read_chunk(response: Any) -> Chunk:
    logprobs = tuple(TokenLogprobs(token.logprob, tuple(zip(token.top_ids, token.top_logprobs)))
                     for token in response.logprobs)
    return Chunk(response.text, tuple(response.token_ids), logprobs)


def read_result(request_id: str, chunks: list[Chunk], final: Any) -> Result:
    return Result(
        request_id=request_id, text="".join(chunk.text for chunk in chunks),
        token_ids=tuple(id for chunk in chunks for id in chunk.token_ids),
        logprobs=tuple(token for chunk in chunks for token in chunk.logprobs),
        finish_reason=_name(final, "finish_reason"), usage=_fields(Usage, final.usage),
        timings=_fields(Timings, final.timings), context_length=final.context_length, lease_ms=final.lease_ms)


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
        trace_id=request.trace_id)
        for request in response.requests]


def read_traces(responses: Sequence[Any]) -> Trace:
    """One trace of a workflow's requests with several cache salts. All responses are from one router. A router before 0.2.0
    sends no origin: then each salt's times begin at 0."""
    origin_us = min(response.origin_us for response in responses)
    requests = [request for response in responses
                for request in _read_traced(response, response.origin_us - origin_us if origin_us else 0)]
    requests.sort(key=lambda request: request.arrived_us)
    return Trace(tuple(requests), sum(response.omitted for response in responses))
