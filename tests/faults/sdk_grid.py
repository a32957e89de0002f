"""What official SDKs make of the faults: the models they ask, and what must hold of what they had in hand.

Every client format, over a provider of its own format and, for some faults, over one of another. The SDK raises its
documented error or has the whole answer, never half of one; each request leaves one row.
"""

import os
from typing import Any

from sluicegate.billing.ledger import UsageRow
from tests.faults.faulty import (
    ANSWER,
    KINDS,
    LIGHT,
    MAX_ATTEMPTS,
    MENDED,
    REJECTED,
    STATUSES,
    Faulty,
    harmless_of,
    words_of,
)

LIMIT_S = 9.0
SOAK = bool(os.environ.get("SLUICEGATE_SOAK"))
BRIEF = (
    *STATUSES, "429-after", "cut", "error-json", "gzip", "html", "json", "negative-usage", "nothing", "refused",
    "reset-mid", "silent",
)  # fmt: skip
ABROAD = ("cut", "error-first", "error-mid", "html", "no-end", "stall", "401", "429", "500", "529", "refused")
"""Faults that are tried over a provider of another format too."""


def words(path: str, format: str, way: str) -> list[str]:
    """Return the faults to try; plain answers fail in fewer ways that differ to an SDK, so a soak alone tries all."""
    if path == "other":
        return list(ABROAD)
    tried = LIGHT if way == "raw" or SOAK else BRIEF
    return [word for word in words_of(format) if word in tried]


def config_of(providers: Faulty, format: str, way: str) -> dict[str, Any]:
    """Return a configuration with a model `PATH-KIND-WORD` for every fault, path and kind of route."""
    foreign = "messages" if format == "chat" else "chat"
    config = providers.config(words("own", format, way), format, path="own-")
    other = providers.config(words("other", format, way), foreign, path="other-")
    for section in ("models", "providers"):
        config[section] |= other[section]
    return config


def models_of(format: str, way: str) -> list[str]:
    """Return the models to ask, in order."""
    return [
        f"{path}-{kind}-{word}"
        for path in ("own", "other")
        for kind in KINDS
        for word in words(path, format, way)
    ]


def judge(format: str, model: str, stream: bool, text: str | None, told: str, row: UsageRow) -> None:
    """Check what a client had in hand against its row.

    Args:
        text: what the SDK read to the end; None where it raised an error.
        told: what the error said.
    """
    path, kind, word = model.split("-", 2)
    if text is not None:
        assert text == ANSWER, f"a false end: {text[:80]!r}"
        assert row.status == "ok", f"the row says {row.status}"
        assert row.usage.output_tokens, "nothing was counted"
    else:
        assert told, "no message"
        assert row.status == ("rejected" if word in REJECTED else "upstream_error"), (
            f"the row says {row.status}"
        )
        assert row.cost_nano_usd == 0 or row.usage.output_tokens, "charged for nothing"
    if word in REJECTED:
        assert text is None, "a false end"
        assert row.attempts == 1, f"{row.attempts} attempts"
    elif path == "own" and word in harmless_of(format, stream):
        assert text is not None, f"an answer was there, yet: {told}"
    elif kind == "backed" and word in MENDED:
        assert text is not None, f"a second route was there, yet: {told}"
        assert 2 <= row.attempts <= MAX_ATTEMPTS, f"{row.attempts} attempts"
    elif kind == "alone":
        assert text is None, "a false end"
