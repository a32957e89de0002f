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
        hashes = self._hashes(exchange)
        records = [record for hash in hashes if (record := self._link.keys.get(hash)) is not None]
        return self._judge(records) if records else None

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
        for hash in self._hashes(exchange):
            found = await self._link.find_key(hash)
            if found is not None:
                records.append(found)
        if not records:
            raise Unauthenticated("Incorrect API key provided.")
        return self._judge(records)

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
        return [hashlib.blake2b(value, digest_size=32, key=secret).digest() for value in likely]

    @staticmethod
    def _judge(records: list[KeyRecord]) -> KeyRecord:
        if len(records) > 1:
            raise Unauthenticated("Two different API keys were provided.")
        record = records[0]
        if record.revoked:
            raise Unauthenticated("This API key has been revoked.")
        if record.expires_at is not None and record.expires_at.timestamp() <= time.time():
            raise Unauthenticated("This API key has expired.")
        return record
