"""The whole error tree: what each means, the status it has, and whether trying again can help.

::

    SluicegateError
    ├── ConfigError            the operator's file is wrong; the process does not start
    ├── ClientError            the client can mend it; never retried by us
    │   ├── BadRequest 400 · Unauthenticated 401 · InsufficientBalance 402 · Forbidden 403
    │   ├── ModelNotFound 404 · StateUnknown 404 · PathUnknown 404 · MethodNotAllowed 405 · RequestTimeout 408
    │   ├── TooLarge 413 · UriTooLong 414 · UnsupportedMedia 415 · ExpectationFailed 417
    │   ├── RequestRunning 409 · IdempotencyKeyReused 422 · AlreadyServed 422
    │   └── RateLimited 429 · HeadersTooLarge 431 · NotImplementedYet 501
    ├── UpstreamError 502      the provider's trouble
    │   ├── ConnectFailed      nothing was sent
    │   ├── UpstreamTimeout    504, with the phase it struck in
    │   ├── UpstreamStatus     the provider answered with an error status, or said so inside a 200
    │   ├── UpstreamGarbled    its bytes broke the format
    │   └── StreamCut          it ended before its end
    ├── StoreUnavailable 503   the gate itself cannot take requests now
    │   └── MessageUnsent      one of its processes could not say something to another
    ├── Overloaded 503         draining, or above the gate's own limits
    ├── DecodeError            all a codec raises; the shell makes it one of the above
    └── InternalError 500      a fault of ours

`kind` is the word of the cross-format error table; each codec turns it into its own format's type and code.
Building an error has no side effect, and no error holds a key or a prompt.
"""

from typing import ClassVar, Literal

Retry = Literal["never", "same", "elsewhere"]
"""What may follow a failure: nothing, the same target again, or another target."""


class SluicegateError(Exception):
    """Everything this package raises on purpose."""

    status: int = 500
    kind: ClassVar[str]
    retry: Retry
    param: str | None = None
    """The path of the field at fault, where there is one."""
    retry_after_s: float | None = None
    """When coming back makes sense; told as 1 to 59 whole seconds."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ConfigError(SluicegateError):
    """The operator's file is wrong; `message` names the path in it."""

    kind = "internal"
    retry = "never"


class ClientError(SluicegateError):
    """The client's request cannot be served as it stands."""

    retry = "never"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class BadRequest(ClientError):
    status = 400
    kind = "bad_request"


class UnsupportedFeature(ClientError):
    """The target cannot express what the client asked for."""

    status = 400
    kind = "unsupported_feature"


class Unauthenticated(ClientError):
    status = 401
    kind = "unauthenticated"


class InsufficientBalance(ClientError):
    """The account's credit, or the key's spending limit, does not cover the request."""

    status = 402
    kind = "balance_exhausted"

    def __init__(self, message: str, *, available_nano: int | None = None, limit: str = "") -> None:
        super().__init__(message)
        self.available_nano = available_nano
        """What could have been reserved, in nano-USD, where that is known."""
        self.limit = limit
        """The window of the spending limit that is reached; empty where it is credit that is short."""


class Forbidden(ClientError):
    status = 403
    kind = "forbidden"


class ModelNotFound(ClientError):
    status = 404
    kind = "model_unknown"


class StateUnknown(ClientError):
    """Nothing is kept under an id: it never was, is not any more, or is another account's."""

    status = 404
    kind = "not_found"


class PathUnknown(ClientError):
    status = 404
    kind = "path_unknown"


class MethodNotAllowed(ClientError):
    status = 405
    kind = "method_not_allowed"

    def __init__(self, message: str, allow: str) -> None:
        super().__init__(message)
        self.allow = allow


class RequestTimeout(ClientError):
    """The request did not arrive in time."""

    status = 408
    kind = "request_timeout"


class TooLarge(ClientError):
    status = 413
    kind = "too_large"


class UriTooLong(ClientError):
    status = 414
    kind = "uri_too_long"


class UnsupportedMedia(ClientError):
    status = 415
    kind = "unsupported_media"


class ExpectationFailed(ClientError):
    """The request's Expect header asks for what cannot be met."""

    status = 417
    kind = "bad_request"


class IdempotencyError(ClientError):
    """The `Idempotency-Key` belongs to another request, whose id is `first_request_id`."""

    def __init__(self, message: str, first_request_id: str) -> None:
        super().__init__(message)
        self.first_request_id = first_request_id


class RequestRunning(IdempotencyError):
    """To which this one is a repeat: coming back makes sense."""

    status = 409
    kind = "request_running"
    retry_after_s = 1.0


class IdempotencyKeyReused(IdempotencyError):
    """Which asked for something else."""

    status = 422
    kind = "idempotency_key_reused"


class AlreadyServed(IdempotencyError):
    """To which this one is a repeat, and whose answer is not kept."""

    status = 422
    kind = "already_served"


class RateLimited(ClientError):
    status = 429
    kind = "rate_limited"

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.header_lines = b""
        """Ready lines that tell the limits, in the client's format."""
        self.limit = ""
        """Name of the limit that is reached."""


class RangeUnsatisfiable(ClientError):
    """Nothing of what is kept lies in the range that was asked for."""

    status = 416
    kind = "range_not_satisfiable"


class HeadersTooLarge(ClientError):
    status = 431
    kind = "headers_too_large"


class NotImplementedYet(ClientError):
    status = 501
    kind = "not_implemented"


class UpstreamError(SluicegateError):
    """The provider failed; `retry` says what may follow while nothing has reached the client."""

    status = 502
    kind = "upstream_error"
    retry: Retry = "elsewhere"


class ConnectFailed(UpstreamError):
    """No connection: DNS, TCP, TLS or proxy. Nothing was sent, so trying again is always safe."""

    retry = "same"


class UpstreamTimeout(UpstreamError):
    status = 504
    kind = "timeout"

    def __init__(
        self,
        message: str,
        phase: Literal["pool", "connect", "first_token", "idle", "rate", "response", "total"],
    ) -> None:
        super().__init__(message)
        self.phase = phase


class UpstreamStatus(UpstreamError):
    """The provider refused or failed by status, or by an error event that stands for one.

    `message` is what the client may be told; `upstream_status` what the provider sent.
    """

    def __init__(
        self,
        message: str,
        *,
        upstream_status: int,
        kind: str,
        status: int,
        retry: Retry,
        retry_after_s: float | None = None,
        param: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.upstream_status = upstream_status
        self.kind = kind  # type: ignore[misc]  # one class carries the kinds of a whole table
        self.status = status
        self.retry = retry
        self.retry_after_s = retry_after_s
        self.param = param
        self.code = code


class UpstreamGarbled(UpstreamError):
    """The provider's bytes broke HTTP, the event framing or the format."""


class StreamCut(UpstreamError):
    """The provider's answer ended before its terminal event."""


class StoreUnavailable(SluicegateError):
    """The store, the supervisor or the journal cannot be reached; requests go on inside leases, then stop."""

    status = 503
    kind = "unavailable"
    retry = "never"
    retry_after_s = 1.0


class MessageUnsent(StoreUnavailable):
    """What one of our processes had to tell another cannot be put into a frame; nothing of it was sent."""


class Overloaded(SluicegateError):
    """The gate drains or is above its limits."""

    status = 503
    kind = "unavailable"
    retry = "never"

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class InternalError(SluicegateError):
    status = 500
    kind = "internal"
    retry = "never"


class DecodeError(SluicegateError):
    """Bytes that do not fit their format.

    Args:
        format: the wire format or framing that was being read.
        offset: bytes into the input, or None where that means nothing.
        reason: what is wrong, without the content.
    """

    kind = "bad_request"
    retry = "never"

    def __init__(self, format: str, offset: int | None, reason: str) -> None:
        super().__init__(reason if offset is None else f"{reason} (at byte {offset})")
        self.format = format
        self.offset = offset
        self.reason = reason
