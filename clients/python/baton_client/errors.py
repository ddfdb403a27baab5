"""The one exception of this package."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import grpc


class BatonError(Exception):
    """What the server, or gRPC on the way to it, answers instead of a result."""

    def __init__(self, code: grpc.StatusCode, message: str, retry_after: float | None = None):
        super().__init__(f"{code.name}: {message}")
        self.code = code  # UNAVAILABLE and RESOURCE_EXHAUSTED may be retried
        self.message = message  # names the field, the value and the limit
        self.retry_after = retry_after  # seconds; None: the server does not know

    def __reduce__(self) -> tuple[type[BatonError], tuple[grpc.StatusCode, str, float | None]]:
        return BatonError, (self.code, self.message, self.retry_after)  # so that other processes may have it


def from_rpc(error: grpc.RpcError | grpc.aio.AioRpcError) -> BatonError:
    """An error of a call as gRPC raises it."""
    retry_after = None
    metadata = error.trailing_metadata() or ()
    for key, value in cast(Iterable[tuple[str, "str | bytes"]], metadata):  # as grpc.aio has it; grpc's stub tells less
        if key == "retry-after-ms" and str(value).isdecimal():
            retry_after = int(value) / 1000
    return BatonError(error.code(), error.details() or "", retry_after)
