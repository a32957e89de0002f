"""Which conversation a request belongs to, so that its turns can go where the provider has its beginning cached.

Source: the vendors' pages on prompt caching: `prompt_cache_key` and `user` (OpenAI), `metadata.user_id` (Anthropic).
"""

from hashlib import blake2b

import msgspec

from sluicegate.wire.translation import AdmittedRequest


class _Metadata(msgspec.Struct):
    user_id: str | None = None


_decode_metadata = msgspec.json.Decoder(_Metadata).decode


def conversation_key(request: AdmittedRequest) -> int:
    """Return a number that all requests of one conversation share, in any format.

    It comes from `prompt_cache_key`, `metadata.user_id` or `user`, whichever is the first that is there, else from the
    first messages.
    """
    said = _text(request.value("prompt_cache_key")) or _user_id(request) or _text(request.value("user"))
    digest = blake2b(said, digest_size=8).digest() if said else request.messages_hash
    return int.from_bytes(digest[:8])


def _text(raw: bytes | None) -> bytes:
    """Return the text of a JSON string as it is spelled; nothing where it is none, or empty."""
    return raw[1:-1] if raw is not None and raw.startswith(b'"') else b""


def _user_id(request: AdmittedRequest) -> bytes:
    raw = request.value("metadata")
    if raw is None or b"user_id" not in raw:
        return b""
    try:
        user_id = _decode_metadata(raw).user_id
    except (msgspec.DecodeError, RecursionError):
        return b""
    return (user_id or "").encode()
