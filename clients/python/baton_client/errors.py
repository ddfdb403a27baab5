"""The exception of this package."""

from __future__ import annotations

import grpc


class BatonError(Exception):
    """An error from the server, or from gRPC if the server was not reached."""

    def __init__(self, code: grpc.StatusCode, message: str, retry_after: float | None = None):
        super().__init__(f"{code.name}: {message}")
        # UNAVAILABLE and RESOURCE_EXHAUSTED may be retried.
        self.code = code
        # If the error is about a field, the message is meant to name it, the value and the limit.
        self.message = message
        # Seconds after which a retry may succeed. None if the server sent no time.
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[type[BatonError], tuple[grpc.StatusCode, str, float | None]]:
        # Makes the error picklable, so that it can pass between processes.
        return BatonError, (self.code, self.message, self.retry_after)


def from_rpc(error: grpc.RpcError | grpc.aio.AioRpcError) -> BatonError:
    """Converts an error that gRPC raised."""
    trailing: dict[str, str | bytes]
    if isinstance(error, grpc.aio.AioRpcError):
        trailing = dict(error.trailing_metadata() or ())
    else:
        trailing = {datum.key: datum.value for datum in error.trailing_metadata() or ()}
    milliseconds = trailing.get("retry-after-ms", "")
    retry_after = int(milliseconds) / 1000 if str(milliseconds).isdecimal() else None
    return BatonError(error.code(), error.details() or "", retry_after)
