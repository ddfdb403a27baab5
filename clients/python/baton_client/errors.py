"""The one exception of this package."""

from __future__ import annotations

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
    trailing: dict[str, str | bytes]
    if isinstance(error, grpc.aio.AioRpcError):
        trailing = dict(error.trailing_metadata() or ())
    else:
        trailing = {datum.key: datum.value for datum in error.trailing_metadata() or ()}
    milliseconds = trailing.get("retry-after-ms", "")
    retry_after = int(milliseconds) / 1000 if str(milliseconds).isdecimal() else None
    return BatonError(error.code(), error.details() or "", retry_after)
