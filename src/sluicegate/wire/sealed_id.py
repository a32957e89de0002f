"""An id that a provider keeps, as the gate's own: it leaves bound to the account that made it.

One provider account serves many of ours, so a provider's own id would open one tenant's state to another. What a client
gets instead holds provider and id, hidden and under a MAC over the account: turned back without a look-up, and for any
other account it is no id at all. The word in front (`resp_`, `file-`, `cachedContents/`) stays, since clients and SDKs
look at it. An id may be as long as it comes, and ours is a third longer: what bounds a request bounds the ids in it.
Pure: the key comes in. Source: design page, "Tenants".
"""

import base64
import binascii
import re
from collections.abc import Iterable
from hashlib import blake2b, shake_256
from typing import NamedTuple

MARK = "sg0"
"""Follows the word in front. Its digit ends what could be read as one more word."""
_WORD = re.compile(r"(?:[!-~]*/)?(?:[A-Za-z]++[_-])?")
_MAC_BYTES = 12
_TAG_BYTES = 4
"""Names the provider: its own name may be long, and is nobody's business."""


class Kept(NamedTuple):
    """What a provider keeps, and where."""

    provider: str
    id: str
    """The provider's."""
    model: str
    """The public model whose answer it came with; empty where it came otherwise."""


class IdSeal:
    """Turns providers' ids into ours and back."""

    def __init__(self, secret: bytes, providers: Iterable[str]) -> None:
        """Make the keys.

        Args:
            secret: ours; with another one, all ids given out before are unknown.
            providers: their names, of all that may be asked.
        """
        self._key = blake2b(secret, digest_size=32, person=b"kept ids").digest()
        self._providers = {self._tag(name): name for name in providers}

    def close(self, account_id: str, provider: str, id: str, model: str = "") -> str:
        """Return our id for a provider's; the same for the same arguments."""
        word = _word_of(id)
        spelled = model.encode()
        if len(spelled) > 255:
            spelled = b""
        plain = self._tag(provider) + bytes((len(spelled),)) + spelled + id[len(word) :].encode()
        mac = self._mac(account_id, word, plain)
        hidden = base64.urlsafe_b64encode(mac + self._masked(mac, plain))
        return f"{word}{MARK}{hidden.rstrip(b'=').decode()}"

    def open(self, account_id: str, text: str) -> Kept | None:
        """Return what an id of ours stands for; None where it is none, or another account's."""
        word = _word_of(text)
        if not text.isascii() or not text.startswith(MARK, len(word)):
            return None
        coded = text[len(word) + len(MARK) :]
        try:
            hidden = base64.b64decode(coded + "=" * (-len(coded) % 4), b"-_", validate=True)
        except (binascii.Error, ValueError):
            return None
        mac = hidden[:_MAC_BYTES]
        plain = self._masked(mac, hidden[_MAC_BYTES:])
        if len(plain) <= _TAG_BYTES or self._mac(account_id, word, plain) != mac:
            return None
        provider = self._providers.get(plain[:_TAG_BYTES])
        if provider is None:
            return None
        at = _TAG_BYTES + 1
        model_end = at + plain[_TAG_BYTES]
        return Kept(provider, word + plain[model_end:].decode(), plain[at:model_end].decode())

    def _tag(self, provider: str) -> bytes:
        return blake2b(provider.encode(), digest_size=_TAG_BYTES, key=self._key, person=b"provider").digest()

    def _mac(self, account_id: str, word: str, plain: bytes) -> bytes:
        owner, front = account_id.encode(), word.encode()
        told = b"%d:%b%d:%b%b" % (len(owner), owner, len(front), front, plain)
        return blake2b(told, digest_size=_MAC_BYTES, key=self._key, person=b"binding").digest()

    def _masked(self, mac: bytes, data: bytes) -> bytes:
        """Hide or show what a MAC belongs to."""
        mask = shake_256(self._key + mac).digest(len(data))
        return (int.from_bytes(data) ^ int.from_bytes(mask)).to_bytes(len(data))


def is_sealed(id: str) -> bool:
    """Whether an id looks like one of ours, whoever's it is."""
    return id.startswith(MARK, len(_word_of(id)))


def _word_of(id: str) -> str:
    found = _WORD.match(id)
    assert found is not None, "it matches nothing too"
    return found[0]
