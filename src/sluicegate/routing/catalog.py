"""The catalogue as a worker serves from it.

What `catalog_shapes` says, put once into classes that are compiled: a request looks at a hundred of these facts, and
each costs ten times as much in a Struct. Made anew from its row whenever settings come; never changed after that.
"""

from typing import Literal

from sluicegate.capabilities import Capabilities
from sluicegate.messages import Format
from sluicegate.routing import catalog_shapes as rows
from sluicegate.routing.catalog_shapes import ImagePrice, Limits, Said, Strategy, StreamSwitches, TlsFiles

MAX_FOUND = 2_000
"""Models that are remembered under wildcards: clients choose those ids."""


class Price:
    """What one model costs; each fact is told at the row's."""

    def __init__(self, row: rows.Price) -> None:
        self.row = row
        """What it was made of, for what is kept or sent."""
        self.input: int = row.input
        self.output: int = row.output
        self.cache_read: int | None = row.cache_read
        self.cache_write: int | None = row.cache_write
        self.cache_write_1h: int | None = row.cache_write_1h
        self.reasoning: int | None = row.reasoning
        self.input_audio: int | None = row.input_audio
        self.output_audio: int | None = row.output_audio
        self.input_image: int | None = row.input_image
        self.output_image: int | None = row.output_image
        self.per_request: int = row.per_request
        self.per_web_search: int = row.per_web_search
        self.per_image: tuple[ImagePrice, ...] = row.per_image
        self.per_second: int = row.per_second
        self.per_video_second: tuple[ImagePrice, ...] = row.per_video_second
        self.per_character: int = row.per_character
        self.tiers = tuple([PriceTier(tier) for tier in row.tiers])
        self.service_tiers: dict[str, int] = row.service_tiers


class PriceTier:
    """The rates of a request whose whole input is longer than a threshold."""

    def __init__(self, row: rows.PriceTier) -> None:
        self.above_input_tokens: int = row.above_input_tokens
        self.price = Price(row.price)


class DatedPrice:
    """A price that holds for requests admitted from a moment on."""

    def __init__(self, row: rows.DatedPrice) -> None:
        self.from_at: float = row.from_at
        self.price = None if row.price is None else Price(row.price)


class StreamClocks:
    """Seconds that bound one request; each is told at the row's."""

    def __init__(self, row: rows.StreamClocks) -> None:
        self.row = row
        self.connect_timeout_s: float = row.connect_timeout_s
        self.first_token_timeout_s: float = row.first_token_timeout_s
        self.idle_timeout_s: float = row.idle_timeout_s
        self.response_timeout_s: float = row.response_timeout_s
        self.total_timeout_s: float = row.total_timeout_s
        self.plain_keepalive_s: float = row.plain_keepalive_s
        self.usage_wait_s: float = row.usage_wait_s
        self.max_event_bytes: int = row.max_event_bytes
        self.min_tokens_per_s: float = row.min_tokens_per_s
        self.min_tokens_window_s: float = row.min_tokens_window_s
        self.continue_midstream: bool = row.continue_midstream


class Provider:
    """Who serves models; each fact is told at the row's."""

    def __init__(self, row: rows.Provider) -> None:
        self.name: str = row.name
        self.base_url: str = row.base_url
        self.urls: dict[str, str] = row.urls
        self.speaks: tuple[Format, ...] = row.speaks
        self.unary: tuple[str, ...] | None = row.unary
        self.api_keys: tuple[str, ...] = row.api_keys
        self.auth: Literal["bearer", "x-api-key", "x-goog-api-key", "api-key", "none", "google"] | None = (
            row.auth
        )
        self.google_credentials: str | None = row.google_credentials
        self.paths: dict[str, str] = row.paths
        self.query: dict[str, str] = row.query
        self.headers: dict[str, str] = row.headers
        self.tls: TlsFiles = row.tls
        self.proxy: str | None = row.proxy
        self.max_connections: int = row.max_connections
        self.repair: bool = row.repair
        self.stream_options: bool = row.stream_options
        self.continuous_usage: bool = row.continuous_usage
        self.drop_fields: tuple[str, ...] = row.drop_fields
        self.betas_deny: tuple[str, ...] = row.betas_deny
        self.cache_ttl: bool = row.cache_ttl
        self.switches: StreamSwitches = row.switches


class Deployment:
    """One routable target: a model at a provider; each fact is told at the row's."""

    def __init__(self, row: rows.Deployment) -> None:
        self.provider: str = row.provider
        self.model: str = row.model
        self.priority: int = row.priority
        self.weight: int = row.weight
        self.cost = None if row.cost is None else Price(row.cost)
        self.clocks = None if row.clocks is None else StreamClocks(row.clocks)
        self.capabilities: Capabilities = row.capabilities
        self.said: tuple[tuple[str, Said], ...] = row.said
        self.limits: Limits | None = row.limits


class Model:
    """A public model id and what serves it; each fact is told at the row's."""

    def __init__(self, row: rows.Model) -> None:
        self.id: str = row.id
        self.deployments = tuple([Deployment(one) for one in row.deployments])
        self.price = None if row.price is None else Price(row.price)
        self.later = tuple([DatedPrice(one) for one in row.later])
        self.strategy: Strategy = row.strategy
        self.hedge_percentile: float | None = row.hedge_percentile
        self.max_calls: int = row.max_calls
        self.max_continuations: int = row.max_continuations
        self.max_output_tokens: int = row.max_output_tokens
        self.prompt_template: Literal["plain", "none"] = row.prompt_template
        self.hidden_output: bool = row.hidden_output
        self.switches: StreamSwitches = row.switches
        self.clocks = None if row.clocks is None else StreamClocks(row.clocks)
        self.limits: Limits | None = row.limits

    def price_at(self, at: float) -> Price | None:
        """Return the price of a request that is admitted at a moment, seconds since 1970."""
        price = self.price
        for dated in self.later:
            if dated.from_at > at:
                break
            price = dated.price
        return price


class Catalogue:
    """Everything that can be asked for, and of whom."""

    def __init__(self, row: rows.Catalogue) -> None:
        self._row = row
        made: dict[int, Model] = {}
        """By the identity of their rows: an alias maps to the same."""
        for one in row.models.values():
            if id(one) not in made:
                made[id(one)] = Model(one)
        self.providers = {name: Provider(provider) for name, provider in row.providers.items()}
        self.models = {name: made[id(one)] for name, one in row.models.items()}
        """By exact public id, aliases included."""
        self.wildcards = tuple([(prefix, Model(one)) for prefix, one in row.wildcards])
        self._found: dict[str, Model] = {}

    def find(self, model_id: str) -> Model | None:
        """Return the model that serves a public id: exact id or alias first, then the longest wildcard."""
        model = self.models.get(model_id) or self._found.get(model_id)
        if model is None and (row := self._row.find(model_id)) is not None:
            if len(self._found) >= MAX_FOUND:
                self._found.clear()
            model = self._found[model_id] = Model(row)
        return model

    def serving(self, provider: str, upstream_id: str) -> tuple[Model, Deployment] | None:
        """Return a model that a provider serves under an id of its own, and where; None where none is routed there."""
        found = self._row.serving(provider, upstream_id)
        return None if found is None else (Model(found[0]), Deployment(found[1]))
