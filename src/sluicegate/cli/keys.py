"""`sluicegate keys`: make gateway keys, list them, take them out of force, give them credit and limits."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from sluicegate.cli.options import AsJson, ConfigFile
from sluicegate.cli.store_access import key_secret, load_config, perform, print_json
from sluicegate.cli.tables import print_table
from sluicegate.config import DEFAULT_FILE, Config
from sluicegate.config.meaning import serves
from sluicegate.config.values import parse_instant, parse_model_id, parse_name
from sluicegate.errors import BadRequest
from sluicegate.money import MAX_NANO, format_usd, parse_usd
from sluicegate.store.keys import mint_key

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

NONE = "none"
_SIGNED = {"ignore_unknown_options": True}
"""Lets a negative amount through as an argument, so that it is refused as such and not as an option."""

Which = Annotated[str, typer.Argument(help="Name, id or visible prefix.", show_default=False)]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model", metavar="ID", help="A model it may use; again for more; `*` at an end; or none: any."
    ),
]
Rpm = Annotated[str | None, typer.Option(metavar="N", help="Requests a minute, or none.")]
Tpm = Annotated[str | None, typer.Option(metavar="N", help="Tokens a minute, or none.")]
MaxStreams = Annotated[str | None, typer.Option(metavar="N", help="Requests at once, or none.")]
DayUsd = Annotated[str | None, typer.Option(metavar="USD", help="USD a day (UTC), or none.")]
WeekUsd = Annotated[str | None, typer.Option(metavar="USD", help="USD a week, or none.")]
MonthUsd = Annotated[str | None, typer.Option(metavar="USD", help="USD a month, or none.")]
LifetimeUsd = Annotated[str | None, typer.Option(metavar="USD", help="USD in all, or none.")]
Expires = Annotated[
    str | None, typer.Option(metavar="WHEN", help="When it ends: 2026-12-31 or 2026-12-31T18:00Z, or none.")
]
OnLimit = Annotated[
    str | None,
    typer.Option(metavar="WORD", help="`stop` a stream that passes a spending limit, or let it `finish`."),
]


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="What to call it.", show_default=False)],
    account: Annotated[
        str | None, typer.Option(help="Who pays, an account that is there; else one of its own name.")
    ] = None,
    create_account: Annotated[
        bool, typer.Option("--create-account", help="Make the account of --account where it is not there.")
    ] = False,
    balance: Annotated[str | None, typer.Option(help="USD of credit for the account.")] = None,
    unlimited: Annotated[
        bool, typer.Option("--unlimited", help="A new account without a bound: only limits stop it.")
    ] = False,
    model: Models = None,
    rpm: Rpm = None,
    tpm: Tpm = None,
    max_streams: MaxStreams = None,
    day_usd: DayUsd = None,
    week_usd: WeekUsd = None,
    month_usd: MonthUsd = None,
    lifetime_usd: LifetimeUsd = None,
    expires: Expires = None,
    on_limit: OnLimit = None,
    config: ConfigFile = DEFAULT_FILE,
    as_json: AsJson = False,
) -> None:
    """Make a key and print it: this once, as only its hash is kept."""
    for what, text in (("the name", name), ("--account", account)):
        _checked(what, parse_name, text)
    if create_account and account is None:
        raise BadRequest("--create-account makes the account that --account names")
    args: dict[str, Any] = {"name": name, "account": account, "unlimited": unlimited}
    args["create_account"] = create_account
    if balance is not None:
        args["balance_nano"] = _usd("--balance", balance)
    args |= _limits(
        model, rpm, tpm, max_streams, day_usd, week_usd, month_usd, lifetime_usd, expires, on_limit
    )
    settings = load_config(config)
    _tell_unknown(settings, args.get("models", ()), config)
    new = mint_key(key_secret(settings))
    args |= {"id": new.id, "prefix": new.prefix, "hash": new.hash.hex()}
    try:
        made = perform(settings, "keys.create", args)["key"]
    except BadRequest as refused:
        hint = "; --create-account makes it" if "there is no account" in refused.message else ""
        raise BadRequest(refused.message + hint) from None
    if as_json:
        print_json({"key": new.secret, **made})
        return
    typer.echo(new.secret)
    typer.echo(f"key {name!r} pays from account {made['account']!r}: {_balance(made)}", err=True)


@app.command("list")
def list_keys(config: ConfigFile = DEFAULT_FILE, as_json: AsJson = False) -> None:
    """List all keys, oldest first."""
    keys = perform(load_config(config), "keys.list", {})["keys"]
    if as_json:
        for key in keys:
            print_json(key)
        return
    table = Table("name", "prefix", "account", "balance", "limits", "state", box=None, pad_edge=False)
    for key in keys:
        table.add_row(
            key["name"], key["prefix"] + "…", key["account"], _balance(key), _limits_shown(key), _state(key)
        )
    print_table(table)


def _state(key: dict[str, Any]) -> str:
    if key["revoked"]:
        return "revoked"
    expires_at = key["expires_at"]
    if expires_at is not None and parse_instant(expires_at) <= datetime.now(UTC):
        return "expired"
    return "in force"


@app.command()
def revoke(key: Which, config: ConfigFile = DEFAULT_FILE, as_json: AsJson = False) -> None:
    """Take a key out of force, at once and for good."""
    revoked = perform(load_config(config), "keys.revoke", {"key": key})["key"]
    if as_json:
        print_json(revoked)
    else:
        typer.echo(f"key {revoked['name']!r} is revoked")


@app.command(context_settings=_SIGNED)
def topup(
    key: Annotated[str, typer.Argument(help="A key's name, id or prefix: its account gets the credit.")],
    usd: Annotated[str, typer.Argument(help="How much.", show_default=False)],
    account: Annotated[bool, typer.Option("--account", help="The name given is an account's.")] = False,
    reference: Annotated[
        str | None, typer.Option(help="Names the payment: the same one again credits nothing.")
    ] = None,
    config: ConfigFile = DEFAULT_FILE,
    as_json: AsJson = False,
) -> None:
    """Credit an account."""
    amount_nano = _usd("the amount", usd)
    if amount_nano == 0:
        raise BadRequest("the amount must be above 0")
    who = {"account" if account else "key": key}
    try:
        done = perform(
            load_config(config), "keys.topup", {**who, "amount_nano": amount_nano, "reference": reference}
        )
    except BadRequest as refused:
        hint = "" if account or "there is no key" not in refused.message else "; --account names an account"
        raise BadRequest(refused.message + hint) from None
    if as_json:
        told = {"account": done["account"]["id"], "balance_nano_usd": done["account"]["balance_nano_usd"]}
        print_json({**told, "posted": done["posted"], "reference": done["reference"]})
        return
    again = "" if done["posted"] else " (this reference was credited before)"
    typer.echo(f"account {done['account']['id']!r} has {_balance(done['account'])}{again}")


@app.command()
def limit(
    key: Which,
    model: Models = None,
    rpm: Rpm = None,
    tpm: Tpm = None,
    max_streams: MaxStreams = None,
    day_usd: DayUsd = None,
    week_usd: WeekUsd = None,
    month_usd: MonthUsd = None,
    lifetime_usd: LifetimeUsd = None,
    expires: Expires = None,
    on_limit: OnLimit = None,
    config: ConfigFile = DEFAULT_FILE,
    as_json: AsJson = False,
) -> None:
    """Change limits of a key; `none` lifts one. What is not named stays."""
    changes = _limits(
        model, rpm, tpm, max_streams, day_usd, week_usd, month_usd, lifetime_usd, expires, on_limit
    )
    settings = load_config(config)
    _tell_unknown(settings, changes.get("models", ()), config)
    changed = perform(settings, "keys.limit", {"key": key, **changes})["key"]
    if as_json:
        print_json(changed)
    else:
        typer.echo(f"key {changed['name']!r}: {_limits_shown(changed) or 'no limits'}")


def _limits(
    models: list[str] | None,
    rpm: str | None,
    tpm: str | None,
    max_streams: str | None,
    day_usd: str | None,
    week_usd: str | None,
    month_usd: str | None,
    lifetime_usd: str | None,
    expires: str | None,
    on_limit: str | None,
) -> dict[str, Any]:
    """Read the limits that were named, as the operations want them.

    Raises:
        BadRequest: one of them makes no sense.
    """
    changes: dict[str, Any] = {}
    if models == [NONE]:
        changes["models"] = ["*"]
    elif models:
        changes["models"] = [_checked("--model", parse_model_id, pattern) for pattern in models]
    for name, text in (("rpm", rpm), ("tpm", tpm), ("max_streams", max_streams)):
        if text is not None:
            changes[name] = None if text == NONE else _count("--" + name.replace("_", "-"), text)
    usd = {"day_nano": day_usd, "week_nano": week_usd, "month_nano": month_usd, "lifetime_nano": lifetime_usd}
    for name, text in usd.items():
        if text is not None:
            changes[name] = None if text == NONE else _usd(f"--{name.removesuffix('_nano')}-usd", text)
    if expires is not None:
        try:
            changes["expires_at"] = None if expires == NONE else parse_instant(expires).isoformat()
        except ValueError as error:
            raise BadRequest(f"--expires {error}") from None
    if on_limit is not None:
        if on_limit not in ("stop", "finish"):
            raise BadRequest("--on-limit must be stop or finish")
        changes["on_limit"] = on_limit
    return changes


def _tell_unknown(settings: Config, models: Iterable[str], config: Path) -> None:
    """Say which models of a key the configuration does not have; they may come later."""
    for pattern in models:
        if not serves(settings.sections, pattern):
            typer.echo(f"there is no model {pattern} in {config}", err=True)


def _checked(what: str, parse: Callable[[str], str], text: str | None) -> str | None:
    """Return a text that the configuration would take too.

    Raises:
        BadRequest: it would not; says why.
    """
    try:
        return None if text is None else parse(text)
    except ValueError as error:
        raise BadRequest(f"{what} {error}") from None


def _usd(what: str, text: str) -> int:
    try:
        nano = parse_usd(text)
    except ValueError as error:
        raise BadRequest(f"{what}: {error}") from None
    if nano < 0:
        raise BadRequest(f"{what} must not be below 0: {text}")
    return nano


def _count(what: str, text: str) -> int:
    if not text.removeprefix("-").isdecimal() or not text.isascii():
        raise BadRequest(f"{what} must be a whole number or none: {text}")
    count = int(text) if len(text) < 20 else MAX_NANO + 1
    if text.startswith("-"):
        raise BadRequest(f"{what} must not be below 0: {text}")
    if count > MAX_NANO:
        raise BadRequest(f"{what} is too large: {text}")
    return count


def _balance(shown: dict[str, Any]) -> str:
    amount = f"${format_usd(shown['balance_nano_usd'])}"
    return f"unlimited, {amount}" if shown["unlimited"] else amount


def _limits_shown(key: dict[str, Any]) -> str:
    shown = [f"{name} {key[name]}" for name in ("rpm", "tpm", "max_streams") if key[name] is not None]
    for name in ("day", "week", "month", "lifetime"):
        nano = key[f"{name}_nano_usd"]
        if nano is not None:
            shown.append(f"{name} ${format_usd(nano)}")
    if key["models"] != ["*"]:
        shown.append("models " + " ".join(key["models"]))
    if key["expires_at"] is not None:
        shown.append(f"until {key['expires_at']}")
    return ", ".join(shown)
