"""Keys and accounts as every process sees them."""

from datetime import datetime

import msgspec

from sluicegate.messages import TranslationPolicy
from sluicegate.routing.catalog_shapes import StreamSwitches


class KeyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway key, without its secret. `hash` is blake2b(secret, key=server secret), 32 bytes."""

    id: str
    """`key_` and 16 hexadecimal digits."""
    name: str
    prefix: str
    """The first characters of the secret, shown to tell keys apart."""
    hash: bytes
    account_id: str
    unlimited: bool = False
    """The account is not prepaid: no reservation against credit."""
    models: tuple[str, ...] = ("*",)
    """Public ids allowed; one trailing `*` each."""
    rpm: int | None = None
    tpm: int | None = None
    max_streams: int | None = None
    """Requests a minute, tokens a minute, requests at once; None: no limit."""
    day_nano: int | None = None
    week_nano: int | None = None
    month_nano: int | None = None
    lifetime_nano: int | None = None
    expires_at: datetime | None = None
    on_limit: str = "stop"
    may_override: bool = False
    translation: TranslationPolicy | None = None
    """default | strict | lenient; None: the server's."""
    switches: StreamSwitches = StreamSwitches()
    revoked: bool = False


class BootstrapAccount(msgspec.Struct, frozen=True, kw_only=True):
    """An account that the configuration names."""

    name: str
    unlimited: bool = False
    """Not prepaid: only limits stop it."""
    credit_nano: int = 0
    """Credited once, under the entry `bootstrap:account:NAME`."""


class BootstrapKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key that the configuration names, with its secret: for the store alone, which keeps the hash."""

    name: str
    secret: str
    account: str
    """Name of its account: the one it says, else one of the key's own name."""
    credit_nano: int = 0
    """Credited once to that account, under the entry `bootstrap:key:NAME`."""
    models: tuple[str, ...] = ("*",)
    rpm: int | None = None
    tpm: int | None = None
    max_streams: int | None = None
    day_nano: int | None = None
    week_nano: int | None = None
    month_nano: int | None = None
    lifetime_nano: int | None = None
    expires_at: datetime | None = None
    on_limit: str = "stop"
    may_override: bool = False
    translation: TranslationPolicy | None = None
    switches: StreamSwitches = StreamSwitches()

    def __repr__(self) -> str:
        return f"BootstrapKey(name={self.name!r}, account={self.account!r})"


class Bootstrap(msgspec.Struct, frozen=True, kw_only=True):
    """Accounts and keys to make, or to put back, when the configuration is loaded.

    `accounts` holds those of the `accounts` section and those that keys without an account bring along, each once.
    """

    accounts: tuple[BootstrapAccount, ...] = ()
    keys: tuple[BootstrapKey, ...] = ()
