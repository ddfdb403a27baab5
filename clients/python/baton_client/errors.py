"""The exception of this package."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import grpc

from .messages import MESSAGES

if TYPE_CHECKING:
    from .results import Partial  # which needs RootCause

# Texts of gRPC itself, which end a call without the server, and those of this client.
_TIMEOUT_PASSED = "the timeout passed before the server reported an end"
_GRPC_TEXTS = {
    "Locally cancelled by application!": "cancelled by this client",
    "Deadline Exceeded": _TIMEOUT_PASSED,
    "Stream removed (Deadline Exceeded)": _TIMEOUT_PASSED,
    # grpc.aio writes this if a call ends while a message is sent.
    "Internal error from Core": "the call ended while a part of the value was sent; its trace has the reason",
}
_CODES = {code.value[0]: code for code in grpc.StatusCode}


@dataclasses.dataclass(frozen=True)
class RootCause:
    """The request whose failure made another request fail."""

    request_id: str
    agent: str  # empty if the request named none, or was never submitted
    code: grpc.StatusCode
    message: str


class BatonError(Exception):
    """An error from the server, or from gRPC if the server was not reached."""

    def __init__(self, code: grpc.StatusCode, message: str, retry_after: float | None = None,
                 root: RootCause | None = None, partial: Partial | None = None):
        super().__init__(f"{code.name}: {message}")
        # UNAVAILABLE and RESOURCE_EXHAUSTED may be retried.
        self.code = code
        # If the error is about a field, the message is meant to name it, the value and the limit.
        self.message = message
        # Seconds after which a retry may succeed. None if the server sent no time.
        self.retry_after = retry_after
        # The request that failed first, if this one failed because of it. Otherwise None.
        self.root = root
        # The output that arrived before the run failed or was cancelled. None if there is none.
        self.partial = partial

    def __reduce__(self) -> tuple[type[BatonError], tuple[Any, ...]]:
        # Makes the error picklable, so that it can pass between processes.
        return BatonError, (self.code, self.message, self.retry_after, self.root, self.partial)


def read_root(root: Any) -> RootCause:
    return RootCause(root.request_id, root.agent, _CODES.get(root.code, grpc.StatusCode.UNKNOWN), root.message)


def _root(details: str | bytes) -> RootCause | None:
    if not isinstance(details, bytes):
        return None
    for detail in MESSAGES["StatusDetails"].FromString(details).details:
        if detail.type_url.endswith("/baton.v1.RootCause"):
            return read_root(MESSAGES["RootCause"].FromString(detail.value))
    return None


def from_rpc(error: grpc.RpcError | grpc.aio.AioRpcError) -> BatonError:
    """Converts an error that gRPC raised."""
    pairs: Any = error.trailing_metadata() or ()
    # Not dict(), because the metadata of grpc.aio 1.54 is a Mapping that nevertheless yields pairs.
    trailing: dict[str, str | bytes] = {key: value for key, value in pairs}
    milliseconds = trailing.get("retry-after-ms", "")
    retry_after = int(milliseconds) / 1000 if str(milliseconds).isdecimal() else None
    message = error.details() or ""
    return BatonError(error.code(), _GRPC_TEXTS.get(message, message), retry_after, _root(trailing.get("grpc-status-details-bin", b"")))
