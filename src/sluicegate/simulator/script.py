"""What the simulator does with one request, as data that can also be written in JSON.

A `Script` describes the head, then steps. Without steps the answer is played whole and the body properly
ended. The head leaves with the first body byte, or where a `Head` step stands. After the last step the body
is ended (chunk of length zero, or close where it is framed so) unless a step ended the connection or stalled.

In JSON a step is an object whose `do` names it in lower case: `{"do": "play", "stop": 3}`, `{"do": "reset"}`.
"""

from typing import Literal

import msgspec

from sluicegate.simulator.answer import Answer

Kind = Literal["start", "content", "finish", "usage", "end"]
"""What an event of an answer is: scaffolding, content, the finish reason, usage alone, the end marker."""
How = Literal["reset", "close", "stall", "end"]
"""How a body stops: RST, FIN, silence, or as if it were complete."""


class Step(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag=str.lower,
    tag_field="do",
):
    """One thing to do."""


class Head(Step, frozen=True):
    """Send the head now, or only its beginning."""

    drip: int = 0
    """Bytes a write; 0: all at once."""
    every_s: float = 0.01
    stop: int | None = None
    """Send only so many bytes of it."""


class Informational(Step, frozen=True):
    """Send 1xx heads before the final one."""

    status: int = 103
    count: int = 1
    every_s: float = 0.0


class Play(Step, frozen=True):
    """Send events of the answer, at the script's pace. Events are counted from 0, all kinds together."""

    start: int = 0
    stop: int | None = None
    """Event to stop before, negative from the end; None: all."""
    before: Kind | None = None
    """Stop before the first event of this kind."""
    skip: tuple[Kind, ...] = ()
    """Leave out events of these kinds."""
    plus_bytes: int = 0
    """Then send so many bytes of the event that follows."""


class Send(Step, frozen=True):
    """Send body bytes in one write (and one chunk, where chunked)."""

    text: str = ""
    data: bytes = b""
    """After `text`; base64 in JSON."""


class Event(Step, frozen=True):
    """Send one event of our own making."""

    data: str
    event: str | None = None


class Raw(Step, frozen=True):
    """Send bytes to the socket as they are, outside head and framing."""

    text: str = ""
    data: bytes = b""


class Error(Step, frozen=True):
    """Send the format's error event (streamed) or error object."""

    status: int = 500
    message: str = "The model is overloaded."
    type: str | None = None
    """None: the format's own word for the status."""
    code: str | None = None


class Done(Step, frozen=True):
    """Send the format's last event once more: `[DONE]`, `message_stop`, the completed response."""


class Huge(Step, frozen=True):
    """Send one content event with so many bytes of text."""

    bytes: int = 1 << 20


class EndlessLine(Step, frozen=True):
    """Send `data: ` and letters without a line end."""

    bytes: int | None = None
    """None: until the peer leaves."""


class Flood(Step, frozen=True):
    """Send content events as fast as the peer reads."""

    events: int | None = None
    """None: until the peer leaves."""


class Wait(Step, frozen=True):
    """Do nothing for a while; a peer in the same loop has read what was sent before, however late the loop is."""

    s: float


class Drip(Step, frozen=True):
    """From here on, split what goes to the socket (framing included) into writes of so many bytes."""

    bytes: int = 1
    every_s: float = 0.0
    """0: the next write follows in the next turn of the loop."""


class Cuts(Step, frozen=True):
    """From here on, split the body at these offsets into separate writes and chunks."""

    at: tuple[int, ...] = ()
    every: int = 0
    """Also at each multiple of this."""
    gap_s: float = 0.001
    """0: the next write follows in the next turn of the loop."""


class CutAt(Step, frozen=True):
    """From here on, stop when the body has so many bytes."""

    bytes: int
    how: How = "reset"


class Stall(Step, frozen=True):
    """Stay silent until the peer leaves."""


class Reset(Step, frozen=True):
    """Reset the connection (RST)."""


class Close(Step, frozen=True):
    """Close the connection (FIN) without ending the body."""


AnyStep = (
    Head
    | Informational
    | Play
    | Send
    | Event
    | Raw
    | Error
    | Done
    | Huge
    | EndlessLine
    | Flood
    | Wait
    | Drip
    | Cuts
    | CutAt
    | Stall
    | Reset
    | Close
)


class Script(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One answer, healthy or not."""

    name: str = ""
    """Shown in the record of the request."""
    when: Literal["accept", "head", "body"] = "body"
    """At which moment it begins: a new connection, the request's head, or its whole body."""
    answer: Answer | None = None
    """What is played; None: what the request's model name says, else the simulator's default."""
    first_token_s: float | None = None
    """Wait before the first event; None: the simulator's own."""
    interval_s: float | None = None
    """Wait between events with content; 0: all in one write; None: the simulator's own."""

    status: int = 200
    """From 400 on, a script without steps sends the format's error body."""
    reason: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    """Added to the head; they replace what we would send under the same name, and an empty value leaves it
    out."""
    framing: Literal["chunked", "length", "close"] | None = None
    """None: chunked for streams and any script with steps, else a Content-Length."""
    content_length: int | None = None
    """A Content-Length of the script's own, right or wrong."""
    http10: bool = False
    gzip: bool = False
    body: str | None = None
    """Sent whole instead of the answer, when there are no steps."""
    message: str | None = None
    """Message of the error body of a status from 400 on."""
    steps: tuple[AnyStep, ...] = ()

    close: bool = False
    """Announce `connection: close` and close after the answer."""
    hang_up: bool = False
    """Close after the answer without having announced it."""
    read_bytes_per_s: int = 0
    """With `when` accept or head: read the request no faster than this."""


class Rule(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A script and the requests that it is meant for."""

    script: Script
    model: str | None = None
    """The request's model must be this."""
    path: str | None = None
    """The request's path must contain this."""
    holds: str | None = None
    """The request's body must contain this; for scripts that begin with the whole body."""
    times: int | None = 1
    """How often it applies; None: always."""
