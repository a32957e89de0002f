"""What the simulator remembers of each request: what it was sent, what it sent back, and how it ended."""

import json
import time
from typing import Any, Literal

import msgspec

from sluicegate.messages import Format, Usage
from sluicegate.simulator.answer import Answer

Ended = Literal["complete", "cut", "peer_left"]


class Received:
    """One request and its answer. Times are seconds of `time.monotonic`."""

    __slots__ = (
        "answer",
        "at",
        "body",
        "body_at",
        "body_bytes_sent",
        "connection",
        "ended",
        "ended_at",
        "events_sent",
        "first_event_at",
        "format",
        "headers",
        "method",
        "model",
        "number",
        "path",
        "peer_left_at",
        "query",
        "script",
        "stream",
        "weight_sent",
    )

    def __init__(self, number: int, connection: int) -> None:
        self.number = number
        """Counts requests from 1."""
        self.connection = connection
        """Counts connections from 1."""
        self.at = time.monotonic()
        """When the head was complete."""
        self.body_at: float | None = None
        """When the body was complete."""
        self.method = ""
        self.path = ""
        self.query = ""
        self.headers: list[tuple[str, str]] = []
        """Names in lower case, in order."""
        self.body = b""
        self.format: Format | None = None
        self.model: str | None = None
        self.stream = False
        self.script = ""
        """Name of the script that was played."""
        self.answer: Answer | None = None
        """What is played; None for an error status and any other body."""
        self.events_sent = 0
        self.weight_sent = 0
        """Pieces of content handed to the socket."""
        self.body_bytes_sent = 0
        """Before framing."""
        self.first_event_at: float | None = None
        self.ended: Ended | None = None
        """None while it is played; `cut` is our own doing."""
        self.ended_at: float | None = None
        self.peer_left_at: float | None = None
        """When the connection ended by the peer's doing, also after a complete answer."""

    @property
    def json(self) -> Any:
        """The request's body, parsed; raises ValueError where it is not JSON."""
        return json.loads(self.body)

    @property
    def produced(self) -> Usage:
        """What has really been produced for this request so far: the truth for billing audits."""
        if self.answer is None:
            return Usage(input_tokens=0, output_tokens=0)
        return self.answer.truth(self.weight_sent)

    def header(self, name: str) -> str | None:
        """Return the first value of a header."""
        return next((value for key, value in self.headers if key == name.lower()), None)

    def as_json(self) -> dict[str, Any]:
        """Return all of it as JSON-able data: what `GET /_sim/requests` answers."""
        fields: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__ if name != "answer"}
        fields["body"] = self.body.decode("utf-8", "replace")
        try:
            fields["json"] = self.json
        except ValueError:
            fields["json"] = None
        fields["produced"] = msgspec.to_builtins(self.produced)
        return fields
