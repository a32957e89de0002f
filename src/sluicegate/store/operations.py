"""What an operator does to keys and credit, as plain functions: asked for by name, with plain data in and
out.

The supervisor runs them for the commands and the admin API; a command runs them itself where no supervisor is
there. Making secrets is left to `store.keys`: an operation sees only the hash. Every operation changes all
that it says or, where it raises BadRequest, nothing.
"""

import difflib
import secrets
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from sluicegate.billing.account_shapes import KeyRecord
from sluicegate.billing.spending_limits import WINDOWS
from sluicegate.errors import BadRequest
from sluicegate.money import MAX_NANO
from sluicegate.store import Account, Deposit, Store
from sluicegate.store.spending import refuse_limits_below_spent

Name = Annotated[
    str,
    Meta(min_length=1, max_length=128, pattern=r"\A[^\x00-\x20\x7f]([^\x00-\x1f\x7f]*[^\x00-\x20\x7f])?\Z"),
]
"""Printable, without blanks at the ends."""
Note = Annotated[str, Meta(min_length=1, max_length=500, pattern=r"\A[^\x00-\x1f\x7f]+\Z")]
"""One line that says why."""
Count = Annotated[int, Meta(ge=0, le=MAX_NANO)]
Amount = Annotated[int, Meta(gt=0, le=MAX_NANO)]


class CreateKey(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`keys.create`: a key in force from now on."""

    id: str
    name: Name
    prefix: str
    hash: Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    """In hexadecimal."""
    account: Name | None = None
    """One that is there; None: one of the key's own name, which is made where it is not there."""
    create_account: bool = False
    """Make the account that is named too, where it is not there: else a slip of the pen would be a payer."""
    unlimited: bool = False
    """Whether an account that is made for it has no bound."""
    balance_nano: Count = 0
    """Credited to the account at once."""
    reference: Name | None = None
    models: tuple[Name, ...] = ("*",)
    rpm: Count | None = None
    tpm: Count | None = None
    max_streams: Count | None = None
    day_nano: Count | None = None
    week_nano: Count | None = None
    month_nano: Count | None = None
    lifetime_nano: Count | None = None
    expires_at: datetime | None = None
    on_limit: Literal["stop", "finish"] = "stop"
    may_override: bool = False


class WhichKey(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`keys.revoke`: out of force for good."""

    key: str
    """Id, name or visible prefix, here and below."""


class LimitKey(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`keys.limit`: what is named changes, None lifts a limit."""

    key: str
    models: tuple[Name, ...] | UnsetType = UNSET
    rpm: Count | UnsetType | None = UNSET
    tpm: Count | UnsetType | None = UNSET
    max_streams: Count | UnsetType | None = UNSET
    day_nano: Count | UnsetType | None = UNSET
    week_nano: Count | UnsetType | None = UNSET
    month_nano: Count | UnsetType | None = UNSET
    lifetime_nano: Count | UnsetType | None = UNSET
    expires_at: datetime | UnsetType | None = UNSET
    on_limit: Literal["stop", "finish"] | UnsetType = UNSET
    may_override: bool | UnsetType = UNSET


class TopUp(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`keys.topup`, `accounts.topup`: credit that was paid for."""

    key: str | None = None
    account: str | None = None
    """One of the two."""
    amount_nano: Amount
    reference: Name | None = None
    """Names the payment, so that saying it twice credits it once."""
    note: Note | None = None


class Refund(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`requests.refund`: what a request was charged is given back to the account that paid."""

    request_id: Name
    amount_nano: Amount | None = None
    """None: all that is left of the charge."""
    reference: Name | None = None
    note: Note | None = None


class Adjust(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`accounts.adjust`: in, or out where the amount is negative; a debit takes free credit only."""

    account: str
    amount_nano: Annotated[int, Meta(ge=-MAX_NANO, le=MAX_NANO)]
    reference: Name | None = None
    request_id: Name | None = None
    """The request that it corrects: then it moves revenue, and gives back no more than was charged."""
    note: Note | None = None
    leased_nano: Count = 0
    """What leases hold of the balance; the supervisor says so."""


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """`keys.list`, `accounts.list`."""


async def apply_operation(store: Store, name: str, args: dict[str, Any]) -> dict[str, Any]:
    """Do one operation.

    Returns:
        Plain data: `key` or `keys`, `account` or `accounts`, and for money `amount_nano_usd`, `posted` (False: this
        reference had been posted before) and `reference`.
    Raises:
        BadRequest: no such operation, wrong arguments, an unknown key or account, too little credit.
        StoreUnavailable: the store could not do it now.
    """
    found = _OPERATIONS.get(name)
    if found is None:
        raise BadRequest(f"there is no operation {name!r}")
    arguments, operation = found
    try:
        wanted = msgspec.convert(args, arguments)
    except msgspec.ValidationError as error:
        raise BadRequest(f"{name}: {error}") from None
    return await operation(store, wanted)


def show_key(key: KeyRecord, account: Account) -> dict[str, Any]:
    """Write a key as the commands and the admin API show it."""
    return {
        "id": key.id,
        "name": key.name,
        "prefix": key.prefix,
        "account": key.account_id,
        "unlimited": account.unlimited,
        "balance_nano_usd": account.balance_nano,
        "models": list(key.models),
        "rpm": key.rpm,
        "tpm": key.tpm,
        "max_streams": key.max_streams,
        "day_nano_usd": key.day_nano,
        "week_nano_usd": key.week_nano,
        "month_nano_usd": key.month_nano,
        "lifetime_nano_usd": key.lifetime_nano,
        "expires_at": None if key.expires_at is None else key.expires_at.isoformat().replace("+00:00", "Z"),
        "on_limit": key.on_limit,
        "may_override": key.may_override,
        "revoked": key.revoked,
    }


def show_account(account: Account) -> dict[str, Any]:
    """Write an account as the commands and the admin API show it."""
    return {"id": account.id, "unlimited": account.unlimited, "balance_nano_usd": account.balance_nano}


async def _shown(store: Store, key: KeyRecord) -> dict[str, Any]:
    return {"key": show_key(key, await store.get_account(key.account_id))}


async def _create_key(store: Store, wanted: CreateKey) -> dict[str, Any]:
    if wanted.create_account and wanted.account is None:
        raise BadRequest("name the account to make")
    if wanted.account is not None and not wanted.create_account:
        await _refuse_unknown_account(store, wanted.account)
    limits = {name: getattr(wanted, name) for name in _LIMITS}
    key = KeyRecord(
        id=wanted.id,
        name=wanted.name,
        prefix=wanted.prefix,
        hash=bytes.fromhex(wanted.hash),
        account_id=wanted.account or wanted.name,
        unlimited=wanted.unlimited,
        **limits,
    )
    reference = wanted.reference or f"keys.create:{wanted.id}"
    made = await store.create_key(key, balance_nano=wanted.balance_nano, reference=reference, at=time.time())
    return await _shown(store, made)


async def _list_keys(store: Store, wanted: Nothing) -> dict[str, Any]:
    accounts = {account.id: account for account in await store.all_accounts()}
    return {"keys": [show_key(key, accounts[key.account_id]) for key in await store.all_keys()]}


async def _revoke_key(store: Store, wanted: WhichKey) -> dict[str, Any]:
    return await _shown(store, await store.revoke_key(wanted.key, time.time()))


async def _limit_key(store: Store, wanted: LimitKey) -> dict[str, Any]:
    changes = {name: getattr(wanted, name) for name in _LIMITS if getattr(wanted, name) is not UNSET}
    if not changes:
        raise BadRequest("no limit to change was named")
    key = await store.get_key(wanted.key)
    limits = {window: changes.get(f"{window}_nano") for window in WINDOWS}
    await refuse_limits_below_spent(store, key, limits, time.time())
    return await _shown(store, await store.limit_key(key.id, changes))


async def _top_up(store: Store, wanted: TopUp) -> dict[str, Any]:
    reference = wanted.reference or _new_reference("topup")
    done = await store.deposit(
        await _payer(store, wanted),
        wanted.amount_nano,
        reference=reference,
        kind="topup",
        at=time.time(),
        note=wanted.note,
    )
    return await _moved(store, done, reference)


async def _refund(store: Store, wanted: Refund) -> dict[str, Any]:
    reference = wanted.reference or _new_reference("refund")
    done = await store.refund(
        wanted.request_id, wanted.amount_nano, reference=reference, note=wanted.note, at=time.time()
    )
    return await _moved(store, done, reference)


async def _adjust(store: Store, wanted: Adjust) -> dict[str, Any]:
    if wanted.amount_nano == 0:
        raise BadRequest("an adjustment of 0 changes nothing")
    await _refuse_unknown_account(store, wanted.account)
    kind: Literal["adjust", "correction"] = "adjust" if wanted.request_id is None else "correction"
    reference = wanted.reference or _new_reference(kind)
    done = await store.deposit(
        wanted.account,
        wanted.amount_nano,
        reference=reference,
        kind=kind,
        at=time.time(),
        leased_nano=wanted.leased_nano,
        request_id=wanted.request_id,
        note=wanted.note,
    )
    return await _moved(store, done, reference)


async def _list_accounts(store: Store, wanted: Nothing) -> dict[str, Any]:
    return {"accounts": [show_account(account) for account in await store.all_accounts()]}


async def _payer(store: Store, wanted: TopUp) -> str:
    if (wanted.key is None) == (wanted.account is None):
        raise BadRequest("name a key or an account, one of the two")
    if wanted.key is not None:
        return (await store.get_key(wanted.key)).account_id
    assert wanted.account is not None
    await _refuse_unknown_account(store, wanted.account)
    return wanted.account


async def _refuse_unknown_account(store: Store, account_id: str) -> None:
    """See that an account is there; where it is not, name those that may have been meant."""
    try:
        await store.get_account(account_id)
    except BadRequest as refusal:
        names = [account.id for account in await store.all_accounts()]
        raise BadRequest(refusal.message + did_you_mean(account_id, names)) from None


def did_you_mean(name: str, known: list[str]) -> str:
    """Return the end of an error about a name that is not known: the nearest ones that are, at most three."""
    near = difflib.get_close_matches(name, known, cutoff=0.6)
    folded = {one.casefold(): one for one in known}
    near = near or [
        folded[one] for one in difflib.get_close_matches(name.casefold(), list(folded), cutoff=0.6)
    ]
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def _new_reference(kind: str) -> str:
    return f"{kind}:{secrets.token_hex(8)}"


async def _moved(store: Store, done: Deposit, reference: str) -> dict[str, Any]:
    account = await store.get_account(done.account_id)
    return {
        "account": show_account(account),
        "amount_nano_usd": done.amount_nano,
        "posted": done.posted,
        "reference": reference,
    }


_LIMITS = tuple(name for name in LimitKey.__struct_fields__ if name != "key")

_OPERATIONS: dict[str, tuple[type[Any], Callable[[Store, Any], Awaitable[dict[str, Any]]]]] = {
    "keys.create": (CreateKey, _create_key),
    "keys.list": (Nothing, _list_keys),
    "keys.revoke": (WhichKey, _revoke_key),
    "keys.limit": (LimitKey, _limit_key),
    "keys.topup": (TopUp, _top_up),
    "accounts.list": (Nothing, _list_accounts),
    "accounts.topup": (TopUp, _top_up),
    "accounts.adjust": (Adjust, _adjust),
    "requests.refund": (Refund, _refund),
}

OPERATIONS = frozenset(_OPERATIONS)
"""The names `apply_operation` knows."""
