"""The gRPC connection to a server: channel options, TLS, the API key and the names of methods."""

from __future__ import annotations

import math
import os
import pathlib
from typing import Any

import grpc

from .messages import MESSAGES

CHANNEL_OPTIONS = [
    # A trace of 512 requests is larger than gRPC's default of 4 MiB.
    ("grpc.max_receive_message_length", 64 << 20),
    # The client detects a lost server within 20 s, even if a run only waits.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
]


def credentials(ca: str | os.PathLike[str] | None, tls: bool) -> grpc.ChannelCredentials | None:
    """Returns TLS credentials, or None without TLS.

    With `ca`, a PEM file, only its authorities are trusted. Otherwise the system's authorities are
    trusted. Raises OSError if `ca` cannot be read."""
    if ca is None and not tls:
        return None
    return grpc.ssl_channel_credentials(pathlib.Path(ca).read_bytes() if ca is not None else None)


def call_metadata(api_key: str | None) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {api_key}")] if api_key else []


# Seconds that an answer to a request's own timeout may take.
_GRACE = 1
# The protocol's upper bound: a year, in seconds. The arithmetic of gRPC overflows far above it.
_MAX_TIMEOUT = 365 * 24 * 3600


def timeout_ms(timeout: float | None) -> int:
    """Converts a timeout of Options to the field of a request, in which 0 is no timeout.

    A timeout that is less than a millisecond is still one."""
    if timeout is None or timeout == math.inf:
        return 0
    return math.ceil(min(max(timeout, 0.001), _MAX_TIMEOUT) * 1000)


def deadline(timeout: float | None) -> float | None:
    """Converts a timeout of Options to gRPC's form, in which None is no deadline.

    The server itself ends a request after its timeout, and reports what the request waited for.
    gRPC's deadline is later. It ends the call of a server that does not answer. If the timeout has
    passed already, gRPC sends nothing."""
    if timeout is None or timeout == math.inf:
        return None
    # gRPC may send a call whose deadline is the present time.
    return min(timeout, _MAX_TIMEOUT) + _GRACE if timeout > 0 else -1


class Stub:
    """The methods of the service Inference on a channel. They are asynchronous if it is."""

    def __init__(self, channel: Any):
        self.generate = channel.unary_stream("/baton.v1.Inference/Generate", *_coders("GenerateResponse"))
        self.prefill_only = channel.unary_unary("/baton.v1.Inference/PrefillOnly", *_coders("PrefillOnlyResponse"))
        self.put_output = channel.stream_unary("/baton.v1.Inference/PutOutput", *_coders("PutOutputResponse"))
        self.list_models = channel.unary_unary("/baton.v1.Inference/ListModels", *_coders("ListModelsResponse"))
        self.cancel_workflow = channel.unary_unary("/baton.v1.Inference/CancelWorkflow",
                                                   *_coders("CancelWorkflowResponse"))
        self.trace = channel.unary_unary("/baton.v1.Inference/Trace", *_coders("TraceResponse"))


def _coders(response: str) -> tuple[Any, Any]:
    return lambda message: message.SerializeToString(), MESSAGES[response].FromString
