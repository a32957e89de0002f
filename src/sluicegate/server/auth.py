"""Who is calling: credentials in any of the places that SDKs put them, looked up by keyed hash.

Every form is accepted on every route. Of several different values the one that is a key of ours counts; none or more
than one is a 401. The secret itself is never kept, logged or sent on.
"""

import hashlib
import time
from urllib.parse import parse_qsl

from sluicegate.billing.accounts import KeyRecord
from sluicegate.errors import Unauthenticated
from sluicegate.server.exchange import Exchange
from sluicegate.server.supervisor_link import SupervisorLink

_HEADERS = (b"x-api-key", b"x-goog-api-key", b"api-key")
MIN_KEY_CHARS = 16
MAX_KEY_CHARS = 128
MAX_CANDIDATES = 4


def credentials(exchange: Exchange) -> list[bytes]:
    """Return the different credentials that a request carries."""
    found: dict[bytes, None] = {}
    for name, value in exchange.headers:
        if name == b"authorization":
            if value[:7].lower() == b"bearer ":
                found[value[7:].strip()] = None
        elif name in _HEADERS:
            found[value] = None
    if exchange.query and "key=" in exchange.query:
        for key, text in parse_qsl(exchange.query):
            if key == "key":
                found[text.encode()] = None
    found.pop(b"", None)
    return list(found)


class Authenticator:
    """Turns credentials into a key's record."""

    def __init__(self, link: SupervisorLink, key_secret: bytes) -> None:
        """Args: key_secret: the key of the keyed hash."""
        self._link = link
        self._secret = key_secret

    def find_now(self, exchange: Exchange) -> KeyRecord | None:
        """Return the caller if its key is in memory; None where the supervisor has to be asked.

        Raises:
            Unauthenticated: no credential that could be a key, more than one key, a revoked or an expired one.
        """
        keys = self._link.keys
        hashes = exchange.memo.key_hashes or self._hashes(exchange)
        if len(hashes) == 1:
            record = keys.get(hashes[0])
            return None if record is None else self._judge(record)
        return self._judge_all([record for hash in hashes if (record := keys.get(hash)) is not None])

    async def find(self, exchange: Exchange) -> KeyRecord:
        """Return the caller, asking the supervisor about keys that are not in memory yet.

        Raises:
            Unauthenticated: as `find_now`, or nobody knows the key.
            StoreUnavailable: the supervisor does not answer.
        """
        record = self.find_now(exchange)
        if record is not None:
            return record
        records = []
        for hash in exchange.memo.key_hashes:
            found = await self._link.find_key(hash)
            if found is not None:
                records.append(found)
        known = self._judge_all(records)
        if known is None:
            raise Unauthenticated("Incorrect API key provided.")
        return known

    def _hashes(self, exchange: Exchange) -> list[bytes]:
        found = credentials(exchange)
        if not found:
            raise Unauthenticated(
                "You didn't provide an API key. Send it as 'Authorization: Bearer YOUR_KEY', or in x-api-key, "
                "x-goog-api-key or api-key."
            )
        likely = [value for value in found if MIN_KEY_CHARS <= len(value) <= MAX_KEY_CHARS][:MAX_CANDIDATES]
        if not likely:
            raise Unauthenticated("Incorrect API key provided.")
        secret = self._secret
        hashes = [hashlib.blake2b(value, digest_size=32, key=secret).digest() for value in likely]
        exchange.memo.key_hashes = hashes
        return hashes

    def _judge_all(self, records: list[KeyRecord]) -> KeyRecord | None:
        if len(records) > 1:
            raise Unauthenticated("Two different API keys were provided.")
        return self._judge(records[0]) if records else None

    @staticmethod
    def _judge(record: KeyRecord) -> KeyRecord:
        if record.revoked:
            raise Unauthenticated("This API key has been revoked.")
        if record.expires_at is not None and record.expires_at.timestamp() <= time.time():
            raise Unauthenticated("This API key has expired.")
        return record
