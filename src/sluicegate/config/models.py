"""Turns providers, models and prices of the file into the catalogue that workers route and charge by.

Where a price comes from is decided here, once, at load: the model's own, else the catalogue's row of its
first route with the markup, else the configuration is refused. Costs likewise, without markup, but an
unknown cost is no error."""

import ipaddress
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from sluicegate.config.credentials import Credentials
from sluicegate.config.document import Path, Problem
from sluicegate.config.prices import PriceFile, dated, price_of, split
from sluicegate.config.provider_rows import Abilities, ProviderRow
from sluicegate.config.schema import Limited, ModelRow, Route, Sections
from sluicegate.config.stream_settings import Stream, StreamOverrides, Switches
from sluicegate.money import format_usd
from sluicegate.routing.catalog_shapes import (
    Catalogue,
    DatedPrice,
    Deployment,
    Limits,
    Model,
    Price,
    Provider,
    Said,
    StreamClocks,
    StreamSwitches,
    TlsFiles,
    price_key,
    resolve_capabilities,
)
from sluicegate.routing.families import hides_reasoning

if TYPE_CHECKING:
    from sluicegate.config import price_catalogue  # slow to load, and needed only where a price is looked up

VENDOR_HOSTS = ("api.openai.com", "api.anthropic.com", "googleapis.com", "openai.azure.com")
"""Hosts, with what is below them, whose answers are theirs by definition: nothing to put right."""

_CLOCKS = {
    "connect_timeout": "connect_timeout_s",
    "first_token_timeout": "first_token_timeout_s",
    "idle_timeout": "idle_timeout_s",
    "response_timeout": "response_timeout_s",
    "total_timeout": "total_timeout_s",
    "plain_keepalive": "plain_keepalive_s",
    "usage_wait": "usage_wait_s",
    "max_event_bytes": "max_event_bytes",
    "min_tokens_per_s": "min_tokens_per_s",
    "min_tokens_window": "min_tokens_window_s",
    "continue_midstream": "continue_midstream",
}
"""Settings of `stream` and the fields of StreamClocks they become."""

_SWITCHES = (
    "profile",
    "usage_chunk",
    "cost",
    "cost_extension_key",
    "cost_header",
    "on_disconnect",
    "on_error",
)


@dataclass(frozen=True)
class Priced:
    """Where a model's price came from, for the operator."""

    price: Price | None
    """None: free, or looked up for each id of a wildcard."""
    source: str
    notes: tuple[str, ...] = ()
    later: tuple[DatedPrice, ...] = ()
    """What follows it."""


@dataclass
class Models:
    """The catalogue in the making: what is known once the file is read."""

    sections: Sections
    now: datetime
    price_file: PriceFile | None = None
    problems: list[Problem] = field(default_factory=list)
    priced: dict[str, Priced] = field(default_factory=dict)
    """By public id, wildcards included."""
    models: list[Model] = field(default_factory=list)
    wildcard_prices: dict[str, Price] = field(default_factory=dict)
    wildcard_later: dict[str, tuple[DatedPrice, ...]] = field(default_factory=dict)
    wildcard_costs: dict[str, Price] = field(default_factory=dict)

    def build(self) -> None:
        """Price every model; what is missing becomes a problem."""
        for model_id, row in self.sections.models.items():
            self.models.append(self._model(model_id, row))

    def catalogue(
        self, credentials: Mapping[str, Credentials], proxy_for: Callable[[str, str, int], str | None]
    ) -> Catalogue:
        """Return the whole, with the providers' keys and the environment's proxies put in."""
        exact = [model for model in self.models if not model.id.endswith("*")]
        wild = [model for model in self.models if model.id.endswith("*")]
        return Catalogue(
            providers={
                name: self._provider(name, row, credentials[name], proxy_for)
                for name, row in self.sections.providers.items()
            },
            models={name: model for model in exact for name in (model.id, *model.aliases)},
            wildcards=tuple(
                sorted(((model.id[:-1], model) for model in wild), key=lambda pair: -len(pair[0]))
            ),
            wildcard_prices=self.wildcard_prices,
            wildcard_later=self.wildcard_later,
            wildcard_costs=self.wildcard_costs,
        )

    def _model(self, model_id: str, row: ModelRow) -> Model:
        here = ("models", model_id)
        priced = self.priced[model_id] = self._price(here, model_id, row)
        server = self.sections.stream
        hidden = row.capabilities.hidden_output
        return Model(
            id=model_id,
            deployments=tuple(
                sorted(
                    (self._deployment(row, route) for route in row.routes), key=lambda target: target.priority
                )
            ),
            price=priced.price,
            later=priced.later,
            free=row.price is not None and row.price.free,
            aliases=row.aliases,
            strategy=row.strategy,
            hedge_percentile=row.hedge_percentile,
            max_calls=row.max_calls,
            max_continuations=row.max_continuations,
            max_output_tokens=row.max_output_tokens,
            prompt_template=row.prompt_template,
            hidden_output=any(hides_reasoning(r.model) for r in row.routes) if hidden is None else hidden,
            capabilities={} if hidden is None else {"hidden_output": hidden},
            switches=switches(row.stream),
            clocks=clocks(server, row.stream) if row.stream.model_fields_set else None,
            limits=limits(f"model:{model_id}", row),
        )

    def _deployment(self, row: ModelRow, route: Route) -> Deployment:
        provider = self.sections.providers[route.provider]
        overridden = row.stream.model_fields_set or provider.stream.model_fields_set
        merged = abilities(provider.capabilities) | abilities(row.capabilities)
        if row.prompt_template != "plain":
            merged["prompt_template"] = row.prompt_template
        said = tuple(merged.items())
        return Deployment(
            provider=route.provider,
            model=route.model,
            priority=route.priority,
            weight=route.weight,
            cost=self._cost(provider, route),
            clocks=clocks(self.sections.stream, provider.stream, row.stream) if overridden else None,
            capabilities=resolve_capabilities(route.model, provider.speaks[0], said),
            said=said,
            limits=limits(f"route:{route.provider}/{route.model}", route),
        )

    def _price(self, here: Path, model_id: str, row: ModelRow) -> Priced:
        if row.price is not None:
            price, later = dated(row.price, self.now)
            notes = tuple(f"changes on {_day(change.from_at)}" for change in later[:1])
            return Priced(price, "free" if price is None else "configuration", notes, later)
        route = row.routes[0]
        listed = catalogue_id(self.sections.providers[route.provider])
        if listed is None:
            self._refuse(here, f"has no price, and provider {route.provider} is not in the price catalogue")
            return Priced(None, "missing")
        markup = self.sections.billing.markup_percent
        if "*" in route.model:
            for listed_id, found in self._rows(listed):
                key = price_key(route.provider, listed_id)
                self.wildcard_prices[key], following = _marked_up(found, markup)
                if following:
                    self.wildcard_later[key] = following
            return Priced(None, f"catalogue, {listed}, by id")
        found_row = self._find(listed, route.model)
        if found_row is None:
            from sluicegate.config import price_catalogue

            near = price_catalogue.similar(listed, route.model, self.now.date())
            hint = f" (its {near.model} costs {_rates(near.price)})" if near else ""
            self._refuse(
                here, f"has no price, and the catalogue of {listed} does not list {route.model}{hint}"
            )
            return Priced(None, "missing")
        source = found_row.source
        if markup:
            source += f", with markup of {format_usd(markup * 1000)} %"
        marked_up, later = _marked_up(found_row, markup)
        return Priced(marked_up, source, found_row.notes, later)

    def _find(self, listed: str, upstream_id: str) -> Priced | None:
        """Return what a provider's model costs by the bundled list and the price file."""
        from sluicegate.config import price_catalogue

        row = price_catalogue.find(listed, upstream_id, self.now.date())
        return self._listed(listed, upstream_id, row)

    def _rows(self, listed: str) -> "Iterator[tuple[str, Priced]]":
        """Go through all that the two know of a provider."""
        from sluicegate.config import price_catalogue

        seen = set()
        for listed_id, row in price_catalogue.rows(listed, self.now.date()):
            seen.add(listed_id.lower())
            found = self._listed(listed, listed_id, row)
            if found is not None:
                yield listed_id, found
        only_ours = self.price_file.ids(listed) if self.price_file else ()
        for listed_id in only_ours:
            found = None if listed_id in seen else self._listed(listed, listed_id, None)
            if found is not None:
                yield listed_id, found

    def _listed(self, listed: str, upstream_id: str, row: "price_catalogue.Row | None") -> Priced | None:
        source = "" if row is None else f"catalogue, {row.provider} {row.model}"
        notes = () if row is None else row.notes
        course = [] if row is None else [DatedPrice(from_at=0.0, price=row.price)]
        for day, following in () if row is None else row.later:
            starts = datetime(day.year, day.month, day.day, tzinfo=UTC)
            course.append(DatedPrice(from_at=starts.timestamp(), price=following))
        file = self.price_file
        stated = None if file is None else file.find(listed, upstream_id)
        if file is not None and stated is not None and self.now.timestamp() < file.until_at:
            course = file.lay_over(course, stated)
            if course[0].from_at > self.now.timestamp():
                return None  # only the file has it, and has not begun
            if file.from_at <= self.now.timestamp():
                source = f"{file.path.name}, {listed} {upstream_id}, until {_day(file.until_at)}"
            else:
                notes = (*notes, f"changes on {_day(file.from_at)} by {file.path.name}")
        if not course:
            return None
        price, later = split(course, self.now)
        return Priced(price, source, notes, later)

    def _refuse(self, here: Path, reason: str) -> None:
        self.problems.append(
            Problem((*here, "price"), f"{reason}: write `price: {{input: …, output: …}}` or `price: free`")
        )

    def _cost(self, provider: ProviderRow, route: Route) -> Price | None:
        if route.cost is not None:
            return Price() if route.cost.free else price_of(route.cost)
        listed = catalogue_id(provider)
        if listed is None:
            return None
        if "*" in route.model:
            for listed_id, found in self._rows(listed):
                if found.price is not None:
                    self.wildcard_costs[price_key(route.provider, listed_id)] = found.price
            return None
        row = self._find(listed, route.model)
        return row.price if row else None

    def _provider(
        self,
        name: str,
        row: ProviderRow,
        credentials: Credentials,
        proxy_for: Callable[[str, str, int], str | None],
    ) -> Provider:
        base_url = row.base_url or next(iter(row.url.values()))
        return Provider(
            name=name,
            base_url=base_url,
            urls={str(spoken): url for spoken, url in row.url.items()},
            speaks=row.speaks,
            unary=row.unary,
            api_keys=credentials.keys,
            auth="none" if not credentials.keys and credentials.google is None else row.auth,
            google_credentials=credentials.google,
            paths={str(spoken): path for spoken, path in row.paths.items()},
            query={key: value.get_secret_value() for key, value in row.query.items()},
            headers={key: value.get_secret_value() for key, value in row.headers.items()},
            tls=TlsFiles(
                ca_file=_text(row.tls.ca_file),
                cert_file=_text(row.tls.cert_file),
                key_file=_text(row.tls.key_file),
                verify=row.tls.verify,
            ),
            proxy=_proxy(row, base_url, proxy_for),
            max_connections=row.max_connections,
            probe=row.probe,
            repair=not is_vendor(base_url) if row.repair == "auto" else row.repair,
            stream_options=row.capabilities.stream_options,
            continuous_usage=row.capabilities.continuous_usage,
            drop_fields=row.capabilities.drop_fields,
            betas_deny=row.capabilities.betas_deny,
            cache_ttl=row.capabilities.cache_ttl,
            switches=switches(row.stream),
            clocks=clocks(self.sections.stream, row.stream) if row.stream.model_fields_set else None,
        )


def catalogue_id(row: ProviderRow) -> str | None:
    """Return a provider's id in the price catalogue: as the row says, else by the host of its base URL."""
    if row.catalogue is not None:
        return None if row.catalogue == "none" else row.catalogue
    if row.base_url is None or _is_private(row.base_url):
        return None
    from sluicegate.config import price_catalogue

    return price_catalogue.provider_of(row.base_url)


def unknown_catalogues(sections: Sections, price_file: PriceFile | None = None) -> Iterator[Problem]:
    """Tell which providers name a price catalogue that is not there."""
    named = {
        name: row.catalogue for name, row in sections.providers.items() if row.catalogue not in (None, "none")
    }
    if not named:
        return
    from sluicegate.config import price_catalogue

    known = sorted({*price_catalogue.provider_ids(), *(price_file.prices if price_file else ())})
    for name, wanted in named.items():
        if wanted not in known:
            yield Problem(
                ("providers", name, "catalogue"), f"there is no {wanted}; there are {', '.join(known)}"
            )


def unused_prices(sections: Sections, price_file: PriceFile | None) -> Iterator[str]:
    """Warn of providers that a price file prices and no provider of the configuration is."""
    if price_file is None:
        return
    used = {catalogue_id(row) for row in sections.providers.values()}
    for name in price_file.prices:
        if name not in used:
            yield f"billing.catalogue_file: no provider here has the prices of {name} ({price_file.path.name})"


def limits(name: str, section: Limited) -> Limits | None:
    """Return the limits that a section states, to be counted under a name; None where it states none."""
    if section.rpm is None and section.tpm is None and section.max_streams is None:
        return None
    return Limits(name=name, rpm=section.rpm, tpm=section.tpm, max_streams=section.max_streams)


def abilities(section: Abilities) -> dict[str, Said]:
    """Collect what a section says of a model's capabilities; the rest is left to the model's family."""
    return {name: value for name in Abilities.model_fields if (value := getattr(section, name)) is not None}


def switches(section: Switches) -> StreamSwitches:
    """Collect what a section switches itself; the rest is left to what stands above it."""
    said = {name: getattr(section, name) for name in _SWITCHES if name in section.model_fields_set}
    return StreamSwitches(**said)


def clocks(server: Stream, *overrides: StreamOverrides) -> StreamClocks:
    """Lay overrides over the server's clocks; the last one that says a thing counts."""
    said: dict[str, Any] = {ours: getattr(server, name) for name, ours in _CLOCKS.items()}
    for section in overrides:
        said |= {
            ours: getattr(section, name) for name, ours in _CLOCKS.items() if name in section.model_fields_set
        }
    return msgspec.convert(said, StreamClocks)


def is_vendor(base_url: str) -> bool:
    """Tell whether a URL is a vendor's own host, which serves nobody without a key."""
    host = urlsplit(base_url).hostname or ""
    return any(host == vendor or host.endswith("." + vendor) for vendor in VENDOR_HOSTS)


def _is_private(base_url: str) -> bool:
    """Tell whether a URL can be in no price list: an address, or a name without a dot."""
    host = urlsplit(base_url).hostname or ""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return "." not in host
    return True


def _proxy(row: ProviderRow, base_url: str, proxy_for: Callable[[str, str, int], str | None]) -> str | None:
    if row.proxy is not None:
        return row.proxy.get_secret_value()
    if row.direct:
        return None
    url = urlsplit(base_url)
    return proxy_for(url.scheme, url.hostname or "", url.port or (443 if url.scheme == "https" else 80))


def _text(file: object) -> str | None:
    return None if file is None else str(file)


def _marked_up(found: Priced, markup: int) -> tuple[Price, tuple[DatedPrice, ...]]:
    """Add the markup to a listed price and to what follows it."""
    from sluicegate.config.price_catalogue import mark_up

    if found.price is None:
        raise AssertionError("the price list has no free rows")
    later = tuple(
        msgspec.structs.replace(change, price=mark_up(change.price or Price(), markup))
        for change in found.later
    )
    return mark_up(found.price, markup), later


def _day(at: float) -> str:
    """Write a moment: the day alone where it begins with it."""
    moment = datetime.fromtimestamp(at, UTC)
    return moment.strftime("%Y-%m-%d" if moment.time() == datetime.min.time() else "%Y-%m-%dT%H:%M:%SZ")


def _rates(price: Price) -> str:
    return f"{format_usd(price.input)} in, {format_usd(price.output)} out"
