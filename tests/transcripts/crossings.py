"""Golden transcripts of the formats beside chat, streamed and plain, told to clients of every format.

Each folder `<format>/<case>/` holds `meta.toml` (where it is from; `end` says how the client's stream must end), and
what the provider sent: `stream.sse`, or `answer.json` for an answer that is not streamed. `python -m tests.transcripts`
writes `to_<format>.sse` or `to_<format>.json` beside it, and `usage.json` with what was metered.
"""

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from sluicegate.capabilities import Capabilities
from sluicegate.messages import Format, Usage
from sluicegate.wire import Bill
from sluicegate.wire.codecs import FORMATS
from sluicegate.wire.translated_answer import TranslatedAnswer
from sluicegate.wire.translation import PassedAnswer
from tests.wire.openai_world import ASKED, COST, Ran, run

FOLDER = Path(__file__).parent
TARGETS: tuple[Format, ...] = ("chat", "completions", "responses", "messages", "gemini")
SEVERAL: tuple[Format, ...] = ("chat", "completions", "gemini")
"""Formats that hold several answers."""


@dataclass(frozen=True)
class Crossing:
    """One answer as a provider sent it."""

    folder: Path
    format: Format
    stream: bytes | None
    answer: bytes | None
    end: Literal["done", "error"]
    own_end: Literal["done", "error"]
    """On its own format, where a word that means failure passes."""
    choices: int

    @property
    def name(self) -> str:
        return f"{self.format}/{self.folder.name}"

    @property
    def targets(self) -> tuple[Format, ...]:
        return TARGETS if self.choices == 1 else SEVERAL

    def end_for(self, target: Format) -> Literal["done", "error"]:
        """Return how the stream must end for a client."""
        return self.own_end if target == self.format else self.end

    def play(self, target: Format, pieces: list[bytes]) -> Ran:
        """Bring the stream, cut into these reads, to a client."""
        return run(pieces, self.format, target, choices=self.choices)

    def tell(self, target: Format) -> tuple[PassedAnswer, bytes]:
        """Bring the plain answer to a client."""
        assert self.answer is not None
        client = FORMATS[target]
        told: PassedAnswer
        if target == self.format:
            told = client.pass_answer(ASKED, self.answer)
        else:
            events = FORMATS[self.format].decode_answer(self.answer, Capabilities())
            told = TranslatedAnswer(client, ASKED, events, None)
        usage = told.usage or Usage(input_tokens=3, output_tokens=5)
        return told, told.encode(Bill(usage, in_usage=COST))

    def expected(self) -> dict[str, bytes]:
        """Return the files that a whole reading gives; a stream is read event by event, as a provider sends it."""
        files: dict[str, bytes] = {}
        told: dict[str, Any]
        if self.stream is not None:
            for target in self.targets:
                ran = self.play(target, self.events())
                files[f"to_{target}.sse"] = ran.raw
                if target == self.format:
                    told = metered(ran.codec) | {"failure": ran.failure, "counted_text": ran.counted}
        else:
            for target in self.targets:
                answer, body = self.tell(target)
                files[f"to_{target}.json"] = pretty(json.loads(body))
                if target == self.format:
                    told = metered(answer)
        files["usage.json"] = pretty(told)
        return files

    def events(self) -> list[bytes]:
        """Return the stream cut after each blank line; an array, after each of its lines."""
        assert self.stream is not None
        ends = (b"\r\n\r\n", b"\n\n") if not self.stream.startswith(b"[") else (b",\r\n",)
        pieces: list[bytes] = []
        rest = self.stream
        while rest:
            found = [rest.find(end) + len(end) for end in ends if end in rest]
            at = min(found, default=len(rest))
            pieces.append(rest[:at])
            rest = rest[at:]
        return pieces


def metered(answer: Any) -> dict[str, Any]:
    """Return what billing reads of an answer."""
    return {
        "usage": None if answer.usage is None else msgspec.to_builtins(answer.usage),
        "finish_reason": answer.finish_reason,
        "upstream_id": answer.upstream_id,
        "repaired": answer.repaired,
    }


def pretty(value: Any) -> bytes:
    """Return JSON that a reviewer can read."""
    return json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"


def load() -> list[Crossing]:
    """Read all cases."""
    found: list[Crossing] = []
    for format in TARGETS[1:]:
        for path in sorted((FOLDER / format).glob("*/meta.toml")):
            meta = tomllib.loads(path.read_text())
            stream, answer = path.parent / "stream.sse", path.parent / "answer.json"
            found.append(
                Crossing(
                    folder=path.parent,
                    format=format,
                    stream=stream.read_bytes() if stream.exists() else None,
                    answer=answer.read_bytes() if answer.exists() else None,
                    end=meta["end"],
                    own_end=meta.get("own_end", meta["end"]),
                    choices=meta.get("choices", 1),
                )
            )
    return found
