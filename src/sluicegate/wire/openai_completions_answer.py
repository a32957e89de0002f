"""Legacy completions that are not streamed, on the same format: the body passes but for edits at token offsets.

Source: wire formats page `completions.md`; contract C3, C6, C7, C9, C10.
"""

from msgspec import UNSET

from sluicegate.errors import DecodeError
from sluicegate.messages import Usage
from sluicegate.wire import Bill, json_edit
from sluicegate.wire.half_characters import whole_characters
from sluicegate.wire.json_text import quote
from sluicegate.wire.openai_completions_chunk import FORMAT, OBJECT, decode_chunk, error_of, known_reason
from sluicegate.wire.openai_usage import encode_usage, read_usage, with_members
from sluicegate.wire.translation import Asked


class CompletionAnswer:
    """One completion that was not streamed. See `PassedAnswer`."""

    def __init__(self, asked: Asked, body: bytes) -> None:
        """Read the provider's body.

        Raises:
            DecodeError: it is no completion.
        """
        self._asked = asked
        self._body = body = whole_characters(body.removeprefix(b"\xef\xbb\xbf").strip())
        self._chunk = chunk = decode_chunk(body)
        self.error = error_of(body, chunk)
        self.usage: Usage | None = None
        self.finish_reason: str | None = None
        self.upstream_id = chunk.id if isinstance(chunk.id, str) and chunk.id else None
        self.repaired = False
        if self.error is not None:
            return
        if chunk.choices is None:
            raise DecodeError(FORMAT, None, "the answer is not a text completion")
        self._usage_raw = b"null" if chunk.usage is UNSET else bytes(chunk.usage)
        self.usage = read_usage(self._usage_raw)
        for choice in chunk.choices:
            self.finish_reason = known_reason(choice.finish_reason) or "stop"
            self.repaired |= self.finish_reason != choice.finish_reason

    def texts(self) -> list[str]:
        """Return every text the model produced, for counting."""
        return [
            choice.text
            for choice in self._chunk.choices or ()
            if isinstance(choice.text, str) and choice.text
        ]

    def encode(self, bill: Bill) -> bytes:
        """Return the body as the client gets it: its own model id, right finish reasons, usage and cost."""
        chunk, asked, body = self._chunk, self._asked, self._body
        reported = self._usage_raw if self.usage is not None else None
        wanted = {
            "model": quote(asked.model),
            "usage": with_members(encode_usage(reported, bill.usage), bill.in_usage),
        }
        if self.upstream_id is None or asked.hide_provider:
            wanted["id"] = quote("cmpl-" + asked.id)
        if chunk.object != OBJECT:
            wanted["object"] = b'"%b"' % OBJECT.encode()
        if type(chunk.created) is not int or chunk.created < 0:
            wanted["created"] = b"%d" % asked.created
        dropped = {"error", "system_fingerprint"} if asked.hide_provider else {"error"}
        members = json_edit.members(body, FORMAT)
        edits = json_edit.edits(body, members, wanted, dropped)
        at = next(member.start for member in reversed(members) if member.key == "choices")
        for place, (choice, (start, _)) in enumerate(
            zip(chunk.choices or (), json_edit.elements(body, at), strict=True)
        ):
            right = {"finish_reason": quote(known_reason(choice.finish_reason) or "stop")}
            if type(choice.index) is not int:
                right["index"] = b"%d" % place
            edits += json_edit.settings(body, start, right)
        return with_members(json_edit.splice(body, edits), bill.beside_usage)
