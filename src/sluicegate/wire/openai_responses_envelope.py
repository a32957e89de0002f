"""The response object around an answer: what lifecycle events and plain answers repeat of the request.

Clients with types want all of it, so what the client left out is told by its default; what it gave comes back in its
own spelling. Source: wire formats page `responses.md`, "Response object".
"""

from collections.abc import Mapping

import msgspec

from sluicegate.wire.json_text import compact
from sluicegate.wire.translation import Asked

REPEATED = {
    "instructions": b"null",
    "max_output_tokens": b"null",
    "max_tool_calls": b"null",
    "metadata": b"{}",
    "parallel_tool_calls": b"true",
    "reasoning": b'{"effort":null,"summary":null}',
    "temperature": b"1.0",
    "text": b'{"format":{"type":"text"}}',
    "tool_choice": b'"auto"',
    "tools": b"[]",
    "top_p": b"1.0",
    "truncation": b'"disabled"',
    "user": b"null",
}
"""Members of the request that the answer repeats, and what is told where the client gave none."""


class Envelope:
    """One response without its output."""

    __slots__ = ("_head", "_raw", "_state", "id")

    def __init__(
        self,
        id: str,
        created: int,
        model: str,
        raw: Mapping[str, msgspec.Raw] | None = None,
        *,
        previous_id: str | None = None,
        kept: bool = False,
    ) -> None:
        """Begin a response.

        Args:
            raw: the request's top-level members.
            previous_id: of the answer that it goes on from.
            kept: it can be asked for by its id.
        """
        self._state = b'"previous_response_id":%b,"store":%b' % (
            msgspec.json.encode(previous_id),
            b"true" if kept else b"false",
        )
        self.id = id
        self._head = b'{"id":%b,"object":"response","created_at":%d,"model":%b' % (
            msgspec.json.encode(id),
            created,
            msgspec.json.encode(model),
        )
        self._raw = raw or {}

    @staticmethod
    def of(asked: Asked, id: str | None = None, created: int | None = None) -> "Envelope":
        """Return the envelope of the answer to a request.

        Args:
            id, created: what the client has been told already; None: our own.
        """
        return Envelope(
            "resp_" + asked.id if id is None else id,
            asked.created if created is None else created,
            asked.model,
            asked.raw,
            previous_id=asked.previous_id,
            kept=asked.kept,
        )

    def write(
        self,
        status: str,
        *,
        output: bytes = b"[]",
        usage: bytes = b"null",
        error: bytes = b"null",
        incomplete: str | None = None,
        service_tier: str | None = None,
    ) -> bytes:
        """Return the response object.

        Args:
            output, usage, error: JSON text.
            incomplete: why it is not complete.
        """
        details = b"null" if incomplete is None else b'{"reason":"%b"}' % incomplete.encode()
        tier = b"" if service_tier is None else b',"service_tier":%b' % msgspec.json.encode(service_tier)
        return b'%b,"status":"%b","error":%b,"incomplete_details":%b,"output":%b,%b,%b%b,"usage":%b}' % (
            self._head,
            status.encode(),
            error,
            details,
            output,
            self._repeated(),
            self._state,
            tier,
            usage,
        )

    def _repeated(self) -> bytes:
        return b",".join(b'"%b":%b' % (key.encode(), self._member(key)) for key in REPEATED)

    def _member(self, key: str) -> bytes:
        given = self._raw.get(key)
        if given is None:
            return REPEATED[key]
        value = bytes(given)
        if value == b"null":
            return REPEATED[key]
        return compact(value).encode() if b"\n" in value or b"\r" in value else value
