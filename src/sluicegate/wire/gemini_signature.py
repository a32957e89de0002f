"""Thought signatures: Google's own, other vendors' state in their place, and the stand-in for one that is lost.

The field holds bytes, so SDKs want base64 and send either alphabet back; a sealed envelope stands in it as base64.
Source: wire formats page `gemini.md`, "Thoughts and signatures"; translation matrix, section 12.
"""

from base64 import b64decode, b64encode

from sluicegate.messages import Opaque
from sluicegate.wire.envelope import open_envelope, seal
from sluicegate.wire.inline_media import standard_base64

STAND_IN = "skip_thought_signature_validator"
"""What a call may carry whose signature was never there, or is lost."""
_STAND_INS = frozenset({standard_base64(STAND_IN), b64encode(STAND_IN.encode()).decode()})
_ALIAS = "-latest"


def read_signature(text: str, model: str | None = None) -> Opaque | None:
    """Read a `thoughtSignature`; None for the stand-in, which says nothing.

    Args:
        model: who made it, where known.
    """
    spelled = standard_base64(text)
    if spelled is None:  # no SDK sends it, and nobody but its maker knows what it is
        return Opaque(vendor="google", kind="signature", value=text, model=model)
    if spelled in _STAND_INS:
        return None
    inner = b64decode(spelled)
    foreign = open_envelope(inner.decode("ascii")) if inner.isascii() else None
    return foreign or Opaque(vendor="google", kind="signature", value=spelled, model=model)


def write_signature(opaque: Opaque) -> str:
    """Return state as a client's `thoughtSignature`: always base64 in the standard alphabet."""
    if opaque.vendor == "google":
        spelled = standard_base64(opaque.value)
        if spelled:
            return spelled
    return b64encode(seal(opaque).encode()).decode()


def may_return(opaque: Opaque | None, model: str) -> bool:
    """Whether state may be sent to a model of Google's: only to whoever made it.

    A version is named more closely in answers than in requests, and an alias names whatever it stands for.
    """
    if opaque is None or opaque.vendor != "google":
        return False
    made_by = _plain(opaque.model or "")
    target = _plain(model)
    return (
        not made_by
        or made_by.startswith(target)
        or target.startswith(made_by)
        or _ALIAS in made_by
        or _ALIAS in target
    )


def _plain(model: str) -> str:
    return model.rsplit("/", 1)[-1]
