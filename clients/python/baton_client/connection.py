"""How a server is reached: channel options, TLS, the key that goes with each call, and the methods' names."""

from __future__ import annotations

import math
import os
import pathlib
from typing import Any

import grpc

from .messages import MESSAGES

CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", 64 << 20),  # a trace of 512 requests is larger than gRPC's default of 4 MiB
    # A server whose machine is gone is noticed within 20 s, also by a run that only waits.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
]


def credentials(ca: str | os.PathLike[str] | None, tls: bool) -> grpc.ChannelCredentials | None:
    """None: no TLS. With `ca`, a PEM file, its authorities alone are trusted; else the system's. OSError: no such file."""
    if ca is None and not tls:
        return None
    return grpc.ssl_channel_credentials(pathlib.Path(ca).read_bytes() if ca is not None else None)


def call_metadata(api_key: str | None) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {api_key}")] if api_key else []


def deadline(timeout: float | None) -> float | None:
    """A timeout of Options as gRPC takes it: None is no deadline."""
    return None if timeout == math.inf else timeout


class Stub:
    """The service's methods on a channel, synchronous or asynchronous as the channel is."""

    def __init__(self, channel: Any):
        self.generate = channel.unary_stream("/baton.v1.Inference/Generate", *_coders("GenerateResponse"))
        self.prefill_only = channel.unary_unary("/baton.v1.Inference/PrefillOnly", *_coders("PrefillOnlyResponse"))
        self.list_models = channel.unary_unary("/baton.v1.Inference/ListModels", *_coders("ListModelsResponse"))
        self.trace = channel.unary_unary("/baton.v1.Inference/Trace", *_coders("TraceResponse"))


def _coders(response: str) -> tuple[Any, Any]:
    return lambda message: message.SerializeToString(), MESSAGES[response].FromString
