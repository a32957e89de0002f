"""Golden transcripts: what a provider sent, byte for byte, and what the client of each format must get of it.

Those of a chat provider; `crossings` has the other formats. Each folder `chat/<case>/` holds `meta.toml` (where it is
from; `end` says how the client's stream must end),
`request.json`, `stream.sse` and, written by `python -m tests.transcripts`, `to_<format>.sse` and `usage.json`.
"""

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from sluicegate.wire.openai_chat_identity import Identity
from sluicegate.wire.openai_chat_request import ChatRequest
from tests.wire.passing import Passed, run

FOLDER = Path(__file__).parent
ID = "chatcmpl-0123456789abcdef01234567"
CREATED = 1_800_000_000


@dataclass(frozen=True)
class Case:
    """One recorded stream and what was asked."""

    folder: Path
    stream: bytes
    request: ChatRequest
    end: Literal["done", "error"]
    repair: bool

    @property
    def name(self) -> str:
        return f"{self.folder.parent.name}/{self.folder.name}"

    def play(self, pieces: list[bytes]) -> Passed:
        """Pass the stream, cut into these reads, to the client that asked."""
        identity = Identity(model=self.request.model, fallback_id=ID, created=CREATED)
        return run(
            pieces,
            usage=self.request.include_usage,
            choices=self.request.choices,
            identity=identity,
            repair=self.repair,
        )

    def expected(self) -> dict[str, bytes]:
        """Return the files that a whole reading gives; read event by event, as a provider sends them."""
        passed = self.play(self.events())
        usage = None if passed.codec.usage is None else msgspec.to_builtins(passed.codec.usage)
        told: dict[str, Any] = {
            "usage": usage,
            "finish_reason": passed.codec.finish_reason,
            "upstream_id": passed.codec.upstream_id,
            "repaired": passed.codec.repaired,
            "failure": passed.failure,
            "counted_text": passed.counted,
        }
        return {
            "to_chat.sse": passed.raw,
            "usage.json": json.dumps(told, indent=2, ensure_ascii=False).encode() + b"\n",
        }

    def events(self) -> list[bytes]:
        """Return the stream cut after each blank line, in any of the three line ends."""
        pieces: list[bytes] = []
        rest = self.stream
        while rest:
            ends = [rest.find(end) + len(end) for end in (b"\n\n", b"\r\n\r\n", b"\r\r") if end in rest]
            at = min(ends, default=len(rest))
            pieces.append(rest[:at])
            rest = rest[at:]
        return pieces


def load() -> list[Case]:
    """Read all cases."""
    found: list[Case] = []
    for path in sorted(FOLDER.glob("chat/*/meta.toml")):
        meta = tomllib.loads(path.read_text())
        folder = path.parent
        found.append(
            Case(
                folder=folder,
                stream=(folder / "stream.sse").read_bytes(),
                request=ChatRequest((folder / "request.json").read_bytes()),
                end=meta["end"],
                repair=meta.get("repair", True),
            )
        )
    return found
