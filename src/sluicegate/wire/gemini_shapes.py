"""What is read of a response object of Gemini. Source: wire formats page `gemini.md`."""

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from sluicegate.messages import StreamError
from sluicegate.wire.upstream_errors import is_nothing, read_stream_error

_NULL = msgspec.Raw(b"null")
_BROKEN = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


class FunctionCall(msgspec.Struct, gc=False):
    """A call, whole."""

    name: str | None = None
    id: str | None = None
    args: msgspec.Raw = _NULL
    partialArgs: msgspec.Raw = _NULL


class Blob(msgspec.Struct, gc=False):
    """Media inside the answer."""

    mimeType: str | None = None
    data: str | None = None


class Code(msgspec.Struct, gc=False):
    """Code that the model ran, or what came of it."""

    language: str | None = None
    code: str | None = None
    output: str | None = None


class Part(msgspec.Struct, gc=False):
    """A piece of content; nothing forbids several kinds in one."""

    text: str | None = None
    thought: bool | None = None
    thoughtSignature: str | None = None
    functionCall: FunctionCall | None = None
    inlineData: Blob | None = None
    executableCode: Code | None = None
    codeExecutionResult: Code | None = None
    toolCall: msgspec.Raw = _NULL
    toolResponse: msgspec.Raw = _NULL
    """Traces of tools that the vendor hosts."""


class Content(msgspec.Struct, gc=False):
    """What a candidate says."""

    parts: list[Part] | None = None
    role: Any = None


class Candidate(msgspec.Struct, gc=False):
    """One of the answers, or a piece of it."""

    content: Content | None = None
    finishReason: str | None = None
    finishMessage: Any = None
    index: Any = None
    groundingMetadata: msgspec.Raw = _NULL
    citationMetadata: msgspec.Raw = _NULL
    logprobsResult: msgspec.Raw = _NULL
    continuationToken: Any = None


class Chunk(msgspec.Struct, gc=False):
    """A response object."""

    candidates: list[Candidate] | None = None
    usageMetadata: msgspec.Raw = _NULL
    promptFeedback: msgspec.Raw = _NULL
    responseId: Any = None
    modelVersion: Any = None
    error: msgspec.Raw | UnsetType = UNSET

    def failure(self) -> StreamError | None:
        """Return the error that stands in this place, or None."""
        if self.error is UNSET or is_nothing(bytes(self.error)):
            return None
        return read_stream_error(bytes(self.error))

    def only_text(self) -> Part | None:
        """Return the piece of text, or of a thought, that is all there is to this object beside usage; else None."""
        if self.candidates is None or len(self.candidates) != 1 or bytes(self.promptFeedback) != b"null":
            return None
        candidate = self.candidates[0]
        parts = candidate.content.parts if candidate.content is not None else None
        if parts is None or len(parts) != 1 or candidate.finishReason is not None:
            return None
        if any(
            bytes(raw) != b"null"
            for raw in (candidate.groundingMetadata, candidate.citationMetadata, candidate.logprobsResult)
        ):
            return None
        part = parts[0]
        return part if part.text and part == Part(text=part.text, thought=part.thought) else None

    def block_reason(self) -> str | None:
        """Return why the prompt was refused, or None."""
        raw = bytes(self.promptFeedback)
        if not raw.startswith(b"{"):
            return None
        try:
            reason = _decode_feedback(raw).blockReason
        except _BROKEN:
            return None
        return reason if isinstance(reason, str) and reason not in ("", "BLOCK_REASON_UNSPECIFIED") else None


class Feedback(msgspec.Struct, gc=False):
    """Why a prompt was refused."""

    blockReason: Any = None


_decode_feedback = msgspec.json.Decoder(Feedback).decode
