"""How a provider is asked to go on with an answer that it paused: by a token, or by what it has said so far.

Messages (`pause_turn`) wants its content back as it sent it, server tools, signatures and all, behind the same request;
Gemini (`CONTINUATION`) the same request with its token. Both only ever go back to who made them. Source: translation
matrix, sections 22 and 24; wire formats pages `anthropic-messages.md` and `gemini.md`.
"""

import msgspec

from sluicegate.messages import Pause, Request
from sluicegate.wire import json_edit
from sluicegate.wire.anthropic_record import AnswerRecord
from sluicegate.wire.translation import Resumption


class AnthropicResumption:
    """Of a Messages provider whose own tools may pause a turn. See `Resumption`."""

    records = True
    shares_limit = True

    def __init__(self, body: bytes) -> None:
        """Args: body: of the first call, as we encoded it."""
        self._body = body
        self._record = AnswerRecord()
        self.take = self._record.take
        self.take_whole = self._record.take_whole

    def next_body(self, pause: Pause, output_tokens: int) -> bytes | None:
        """Return the request with the answer so far behind it, under what is left of its limit."""
        said = self._record.content()
        if not said:
            return None
        self._record.next_call()
        members = {member.key: member for member in json_edit.members(self._body)}
        limit = int(self._body[members["max_tokens"].start : members["max_tokens"].end]) - output_tokens
        if limit <= _thinking_budget(self._body):
            return None
        end = members["messages"].end - 1
        turn = b',{"role":"assistant","content":[%b]}' % b",".join(said)
        body = json_edit.splice(self._body, [(end, end, turn)])
        wanted = {"max_tokens": b"%d" % limit}
        if self._record.container is not None:
            wanted["container"] = json_edit.dumps(self._record.container)
        return json_edit.changed(body, wanted)


def _thinking_budget(body: bytes) -> int:
    """Return the tokens that a limit has to be above."""
    thinking = json_edit.decode_top(body, "messages").get("thinking")
    value = msgspec.json.decode(thinking) if thinking is not None else {}
    budget = value.get("budget_tokens")
    return budget if isinstance(budget, int) else 0


class GeminiResumption:
    """Of a Gemini provider, any of whose answers may hit a limit of one request. See `Resumption`."""

    records = False
    shares_limit = False

    def __init__(self, body: bytes) -> None:
        """Args: body: of the first call, as we encoded it."""
        self._body = body
        self._token = ""

    def take(self, data: bytes) -> None:
        """Need nothing of the answer."""

    def take_whole(self, body: bytes) -> None:
        """Need nothing of it either."""

    def next_body(self, pause: Pause, output_tokens: int) -> bytes | None:
        """Return the request with the token; the same token again would only bring the same again."""
        if not pause.token or pause.token == self._token:
            return None
        self._token = pause.token
        return json_edit.changed(self._body, {"continuationToken": json_edit.dumps(pause.token)})


def anthropic_resumption(body: bytes, request: Request) -> Resumption | None:
    """Return how an answer is resumed; only turns in which the vendor's own tools work are paused."""
    return None if request.web_search is None else AnthropicResumption(body)


def gemini_resumption(body: bytes, request: Request) -> Resumption | None:
    """Return how an answer is resumed; of several candidates none is."""
    return None if request.choices > 1 else GeminiResumption(body)
