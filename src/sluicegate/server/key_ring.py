"""The supervisor's copy of all keys; what changes in it is pushed to the workers at once."""

from collections.abc import Callable, Iterable

from sluicegate.billing.account_shapes import KeyRecord
from sluicegate.server.control_messages import KeysChanged


class KeyRing:
    """Every key by its hash, revoked ones too. Nobody else writes keys: what is not here does not exist."""

    def __init__(self, keys: Iterable[KeyRecord], push: Callable[[KeysChanged], None]) -> None:
        self._keys = {key.hash: key for key in keys}
        self._push = push

    def find(self, key_hash: bytes) -> KeyRecord | None:
        """Return a key."""
        return self._keys.get(key_hash)

    def all(self) -> list[KeyRecord]:
        """Return all keys, for a worker that starts."""
        return list(self._keys.values())

    def put(self, key: KeyRecord) -> None:
        """Take over a key that was made or changed."""
        self._keys[key.hash] = key
        self._push(KeysChanged([key]))

    def replace(self, keys: Iterable[KeyRecord]) -> None:
        """Take over all keys of the store."""
        new = {key.hash: key for key in keys}
        changed = [key for key_hash, key in new.items() if self._keys.get(key_hash) != key]
        removed = [key_hash for key_hash in self._keys if key_hash not in new]
        self._keys = new
        if changed or removed:
            self._push(KeysChanged(changed, removed))
