"""What two settings must agree on: names that lead somewhere, ids and keys that stand once, credentials
that fit.

Single values are checked where they are read, in `scalars` and the sections; prices in `models`.
"""

import difflib
from collections.abc import Iterable, Iterator
from datetime import datetime
from urllib.parse import urlsplit

from sluicegate.config.document import Path, Problem, show
from sluicegate.config.models import is_vendor
from sluicegate.config.price_rows import Rates
from sluicegate.config.provider_rows import ProviderRow
from sluicegate.config.scalars import FORMATS
from sluicegate.config.schema import KeyRow, Limited, ModelRow, Route, Sections

_SUSPICIOUS_NANO = 1_000_000
"""A tenth of a cent for a million tokens: what is cheaper is likely the price of one token."""
_CREDENTIALS = ("api_key", "api_keys", "api_key_file", "api_key_command")


def problems(sections: Sections) -> Iterator[Problem]:
    """Tell everything that is wrong between settings."""
    yield from _server(sections)
    for name, provider in sections.providers.items():
        yield from _provider(("providers", name), provider)
    yield from _model_ids(sections)
    for model_id, model in sections.models.items():
        yield from _model(("models", model_id), model_id, model, sections)
    yield from _route_limits(sections)
    yield from _keys(sections)


def warnings(sections: Sections, now: datetime) -> Iterator[str]:
    """Tell what works but is hardly meant."""
    if not sections.models:
        yield "models: there are none, so every request is answered with 404"
    for name, provider in sections.providers.items():
        if not any(route.provider == name for model in sections.models.values() for route in model.routes):
            yield f"{show(('providers', name))}: no model has a route to it"
        if not provider.tls.verify:
            yield f"{show(('providers', name, 'tls', 'verify'))}: its certificate is not checked"
        yield from _unlikely_provider(("providers", name), provider)
    for model_id, model in sections.models.items():
        rates = model.price
        if rates is not None and not rates.free and not _any_rate(model):
            yield f"{show(('models', model_id, 'price'))}: every rate is 0; `price: free` would say so"
        low = [
            name for name in Rates.model_fields if 0 < (getattr(rates, name, None) or 0) < _SUSPICIOUS_NANO
        ]
        if low:
            yield (
                f"{show(('models', model_id, 'price', low[0]))}: less than 0.001 USD; rates are those of a million "
                "tokens, not of one"
            )
    for index, key in enumerate(sections.keys):
        if key.account is None and key.balance_usd is None and key.name not in sections.accounts:
            yield f"{show(('keys', index))}: {key.name} has neither account nor balance_usd: it pays for nothing"
        if key.expires_at is not None and key.expires_at <= now:
            yield f"{show(('keys', index, 'expires_at'))}: the key {key.name} has expired"
        for at, pattern in enumerate(key.models):
            if not serves(sections, pattern):
                hint = _near(pattern, sections.models)
                yield f"{show(('keys', index, 'models', at))}: there is no model {pattern}{hint}"


def _unlikely_provider(here: Path, row: ProviderRow) -> Iterator[str]:
    if row.base_url is None or not is_vendor(row.base_url):
        return
    host = urlsplit(row.base_url).hostname
    if row.auth != "none" and not row.headers and all(getattr(row, name) is None for name in _CREDENTIALS):
        yield f"{show(here)}: has no key, and {host} serves nobody without one (`api_key`)"
    if host == "api.openai.com" and urlsplit(row.base_url).path == "":
        yield f"{show((*here, 'base_url'))}: OpenAI's base URL ends in /v1"


def _any_rate(model: ModelRow) -> bool:
    rates = model.price
    return rates is not None and bool(rates.changes or any(value for name, value in rates if name != "free"))


def _server(sections: Sections) -> Iterator[Problem]:
    tls = sections.server.tls
    if (tls.cert_file is None) != (tls.key_file is None):
        missing = "key_file" if tls.key_file is None else "cert_file"
        yield Problem(("server", "tls", missing), "cert_file and key_file go together")
    listen, admin = sections.server.listen, sections.admin.listen
    if sections.admin.token is None and not admin.loopback:
        yield Problem(("admin", "token"), f"is needed where admin.listen is not a loopback address ({admin})")
    if listen.port == admin.port != 0 and (
        listen.host == admin.host or "0.0.0.0" in (listen.host, admin.host)
    ):
        yield Problem(("admin", "listen"), f"is the same as server.listen ({admin})")


def _provider(here: Path, row: ProviderRow) -> Iterator[Problem]:
    if not row.speaks:
        yield Problem((*here, "speaks"), f"must name at least one of {', '.join(FORMATS)}")
    for index, spoken in enumerate(row.speaks):
        if spoken in row.speaks[:index]:
            yield Problem((*here, "speaks", index), f"{spoken} stands twice")
        if row.base_url is None and spoken not in row.url:
            yield Problem((*here, "base_url"), f"is required, or a url for {spoken}")
            break
    yield from _authentication(here, row)
    for spoken, path in row.paths.items():
        if not path.startswith("/") or any(character in path for character in "?# \r\n"):
            yield Problem(
                (*here, "paths", spoken), "must begin with / and have no query; parameters go into `query`"
            )
        elif "{" in path.replace("{model}", "") or "}" in path.replace("{model}", ""):
            yield Problem((*here, "paths", spoken), "may hold {model} and no other placeholder")
    if (row.tls.cert_file is None) != (row.tls.key_file is None):
        missing = "key_file" if row.tls.key_file is None else "cert_file"
        yield Problem((*here, "tls", missing), "cert_file and key_file go together")
    if not row.tls.verify and row.tls.ca_file is not None:
        yield Problem((*here, "tls", "ca_file"), "has no meaning with `verify: false`")


def _authentication(here: Path, row: ProviderRow) -> Iterator[Problem]:
    given = [name for name in _CREDENTIALS if getattr(row, name) is not None]
    if len(given) > 1:
        yield Problem((*here, given[1]), f"stands beside {given[0]}; give one of {', '.join(_CREDENTIALS)}")
    if row.auth == "none" and given:
        yield Problem((*here, given[0]), "stands beside `auth: none`; take one of the two out")
    elif row.auth == "google" and given != ["api_key_file"]:
        yield Problem((*here, "auth"), "google needs api_key_file, the key file of a service account")
    elif row.auth not in (None, "none") and not given:
        yield Problem((*here, "auth"), f"{row.auth} needs a key: one of {', '.join(_CREDENTIALS)}")
    for header in ("authorization", "x-api-key", "x-goog-api-key", "api-key"):
        if header in row.headers and given:
            yield Problem(
                (*here, "headers", header), f"stands beside {given[0]}, which is sent in such a header"
            )


def _model_ids(sections: Sections) -> Iterator[Problem]:
    owners = {model_id: f"the id of {show(('models', model_id))}" for model_id in sections.models}
    for model_id, model in sections.models.items():
        for index, alias in enumerate(model.aliases):
            path = ("models", model_id, "aliases", index)
            if alias.endswith("*"):
                yield Problem(path, "an alias cannot end in *")
            elif alias in owners:
                yield Problem(path, f"{alias} is already {owners[alias]}")
            owners.setdefault(alias, f"an alias of {show(('models', model_id))}")


def _model(here: Path, model_id: str, model: ModelRow, sections: Sections) -> Iterator[Problem]:
    wildcard = model_id.endswith("*")
    if wildcard and model.aliases:
        yield Problem((*here, "aliases"), "an id that ends in * has no aliases")
    for index, route in enumerate(model.routes):
        if route.provider not in sections.providers:
            hint = _near(route.provider, sections.providers) or _list(sections.providers)
            yield Problem(
                (*here, "routes", index, "provider"), f"there is no provider {route.provider}{hint}"
            )
        if "*" in route.model and not wildcard:
            yield Problem(
                (*here, "routes", index, "model"), "* stands only in routes of an id that ends in *"
            )
    if all(route.weight == 0 for route in model.routes) and model.routes:
        yield Problem((*here, "routes"), "at least one route must have a weight above 0")


def _route_limits(sections: Sections) -> Iterator[Problem]:
    """Tell of routes that lead to one model of one provider under different limits, which are that model's."""
    first: dict[tuple[str, str], tuple[Path, Route]] = {}
    for model_id, model in sections.models.items():
        for index, route in enumerate(model.routes):
            here: Path = ("models", model_id, "routes", index)
            there, other = first.setdefault((route.provider, route.model), (here, route))
            for name in Limited.model_fields:
                mine, others = getattr(route, name), getattr(other, name)
                if mine != others:
                    yield Problem(
                        (*here, name),
                        f"is {_limit(mine)} here and {_limit(others)} at {show(there)}: both lead to {route.model} of "
                        f"{route.provider}, which has one limit; give the same in both places",
                    )


def _limit(value: int | None) -> str:
    return "left out" if value is None else str(value)


def _keys(sections: Sections) -> Iterator[Problem]:
    names: dict[str, int] = {}
    secrets: dict[str, int] = {}
    for index, key in enumerate(sections.keys):
        if key.name in names:
            yield Problem(
                ("keys", index, "name"),
                f"{key.name} is already the name of {show(('keys', names[key.name]))}",
            )
        names.setdefault(key.name, index)
        secret = key.key.get_secret_value()
        if secret in secrets:
            yield Problem(("keys", index, "key"), f"is the same as {show(('keys', secrets[secret], 'key'))}")
        secrets.setdefault(secret, index)
        yield from _key_account(("keys", index), key, sections)


def _key_account(here: Path, key: KeyRow, sections: Sections) -> Iterator[Problem]:
    if key.account is not None and key.balance_usd is not None:
        yield Problem((*here, "balance_usd"), "stands beside account; a key has the one or the other")
    elif key.account is not None and key.account not in sections.accounts:
        hint = _near(key.account, sections.accounts) or _list(sections.accounts)
        yield Problem((*here, "account"), f"there is no account {key.account}{hint}")
    elif key.balance_usd is not None and key.name in sections.accounts:
        yield Problem(
            (*here, "balance_usd"),
            f"the key's own account would be {key.name}, which stands under accounts: give the balance there",
        )


def serves(sections: Sections, model_id: str) -> bool:
    """Tell whether a public id, or a pattern of them, leads to a model."""
    if model_id.endswith("*"):
        return True
    if model_id in sections.models or any(model_id in model.aliases for model in sections.models.values()):
        return True
    return any(known.endswith("*") and model_id.startswith(known[:-1]) for known in sections.models)


def _near(name: str, known: Iterable[str]) -> str:
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {found[0]}?" if found else ""


def _list(known: Iterable[str]) -> str:
    names = list(known)
    return f"; there are {', '.join(names[:8])}" if names else "; there are none"
