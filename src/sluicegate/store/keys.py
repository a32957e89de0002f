"""Gateway keys and the secret under which they are hashed.

A key is shown once, when it is made; the store has its keyed hash and a visible prefix. The server's own
secret lies beside the store, so that a copy of the database alone says nothing about the keys.
"""

import errno
import hashlib
import os
import secrets
from pathlib import Path
from typing import NamedTuple

import msgspec

from sluicegate.billing.account_shapes import Bootstrap, BootstrapKey, KeyRecord
from sluicegate.errors import StoreUnavailable
from sluicegate.store import ConfiguredAccount, ConfiguredKey

KEY_PREFIX = "sg-"
SECRET_BYTES = 32
VISIBLE_CHARACTERS = 10


class NewKey(NamedTuple):
    """A key that was just made. `secret` is shown to its owner and kept nowhere."""

    id: str
    secret: str
    prefix: str
    hash: bytes


def mint_key(key_secret: bytes) -> NewKey:
    """Make a key of 32 random bytes."""
    secret = KEY_PREFIX + secrets.token_urlsafe(SECRET_BYTES)
    return NewKey(mint_key_id(), secret, visible_prefix(secret), hash_key(secret, key_secret))


def mint_key_id() -> str:
    """Make an id for a key, which tells nothing about it."""
    return "key_" + secrets.token_hex(8)


def visible_prefix(secret: str) -> str:
    """Return what may be shown of a key: enough to tell keys apart, never more than a third of it."""
    return secret[: min(VISIBLE_CHARACTERS, len(secret) // 3)]


def hash_key(secret: str, key_secret: bytes) -> bytes:
    """Hash a key as the store has it."""
    return hashlib.blake2b(secret.encode(), key=key_secret, digest_size=32).digest()


def configured(
    bootstrap: Bootstrap, key_secret: bytes
) -> tuple[tuple[ConfiguredAccount, ...], tuple[ConfiguredKey, ...]]:
    """Take the configuration's accounts and keys as the store does: with hashes in place of secrets."""
    accounts = tuple(
        ConfiguredAccount(id=account.name, unlimited=account.unlimited, balance_nano=account.credit_nano)
        for account in bootstrap.accounts
    )
    unlimited = {account.id for account in accounts if account.unlimited}
    keys = tuple(
        ConfiguredKey(record=_record(key, key_secret, key.account in unlimited), balance_nano=key.credit_nano)
        for key in bootstrap.keys
    )
    return accounts, keys


def _record(key: BootstrapKey, key_secret: bytes, unlimited: bool) -> KeyRecord:
    limits = {name: value for name, value in msgspec.structs.asdict(key).items() if name in _SHARED_FIELDS}
    return KeyRecord(
        id=mint_key_id(),
        prefix=visible_prefix(key.secret),
        hash=hash_key(key.secret, key_secret),
        account_id=key.account,
        unlimited=unlimited,
        **limits,
    )


_SHARED_FIELDS = frozenset(KeyRecord.__struct_fields__).intersection(BootstrapKey.__struct_fields__)


def find_key_secret(configured: str | None, store_url: str, journal_dir: Path) -> bytes:
    """Return the key of the keyed hash: of what the configuration says, else the secret beside the store.

    Raises:
        StoreUnavailable: the secret beside the store cannot be read or made.
    """
    if configured is not None:
        return hashlib.blake2b(configured.encode(), digest_size=SECRET_BYTES).digest()
    scheme, _, path = store_url.partition(":///")
    beside = Path(f"{path}.secret") if scheme == "sqlite" else journal_dir / "key.secret"
    return load_or_create_key_secret(beside)


def load_or_create_key_secret(path: str | Path) -> bytes:
    """Read the server's secret, or make it once, readable by its owner alone.

    Raises:
        StoreUnavailable: it cannot be read or made, or is not what we once wrote.
    """
    path = Path(path)
    try:
        if not path.exists():
            _create(path)
        secret = bytes.fromhex(path.read_text().strip())
    except OSError as error:
        raise StoreUnavailable(
            f"the secret of the keys cannot be read or made: {path}: {error.strerror}"
        ) from error
    except ValueError:
        secret = b""
    if len(secret) != SECRET_BYTES:
        raise StoreUnavailable(f"the secret of the keys is damaged: {path}")
    return secret


def _create(path: Path) -> None:
    """Put the secret in place whole; of two who try at once one wins, and both then read the same."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from error
    making = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    fd = os.open(making, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, secrets.token_bytes(SECRET_BYTES).hex().encode() + b"\n")
        os.fsync(fd)
        os.link(making, path)
    except FileExistsError:
        pass
    finally:
        os.close(fd)
        os.unlink(making)
