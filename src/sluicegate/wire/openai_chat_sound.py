"""Chat answers that are spoken: the provider keeps each sound under an id, which leaves as the gate's own.

A client sends it back as `audio: {id}` of an assistant message. All else is as in any chat answer; only requests that
ask for sound come here. Source: wire formats page `chat-completions.md`; design page, "Tenants".
"""

from collections.abc import Callable, Sequence

from sluicegate.wire import Bill
from sluicegate.wire.kept_ids import sealed
from sluicegate.wire.openai_chat import ChatStream
from sluicegate.wire.openai_chat_answer import ChatAnswer
from sluicegate.wire.openai_chat_chunk import Choice, Chunk
from sluicegate.wire.openai_chat_edits import ChoiceState
from sluicegate.wire.openai_chat_identity import Identity
from sluicegate.wire.openai_tool_calls import Piece

_SOUND = b'"audio"'


class SoundingChatStream(ChatStream):
    """A streamed answer whose events may name a sound."""

    __slots__ = ("_close",)

    def __init__(
        self,
        close: Callable[[str], str],
        identity: Identity,
        *,
        count_text: Callable[[str], None],
        keep_null_usage: bool,
        repair: bool,
        choices: int,
        max_event_bytes: int,
    ) -> None:
        """Start an answer.

        Args:
            close: turns a provider's id into ours; all others are those of any chat stream.
        """
        super().__init__(
            identity,
            count_text=count_text,
            keep_null_usage=keep_null_usage,
            repair=repair,
            choices=choices,
            max_event_bytes=max_event_bytes,
        )
        self._close = close

    def _take_text(self, payload: bytes, chunk: Chunk, choices: list[Choice]) -> bool:
        return _SOUND not in payload and super()._take_text(payload, chunk, choices)

    def _edit(
        self,
        payload: bytes,
        chunk: Chunk,
        states: Sequence[ChoiceState],
        pieces: Sequence[list[Piece] | None],
    ) -> bytes:
        edited = super()._edit(payload, chunk, states, pieces)
        return sealed(edited, "chat", self._close) if _SOUND in edited else edited


class SoundingChatAnswer(ChatAnswer):
    """A plain answer that may hold a sound."""

    def __init__(self, close: Callable[[str], str], identity: Identity, body: bytes) -> None:
        """Read the provider's body.

        Args:
            close: turns a provider's id into ours.
        Raises:
            DecodeError: not a chat completion.
        """
        super().__init__(identity, body)
        self._close = close

    def encode(self, bill: Bill) -> bytes:
        """Return the body as the client gets it."""
        return sealed(super().encode(bill), "chat", self._close)
