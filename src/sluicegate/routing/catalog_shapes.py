"""Providers, deployments, models and prices as data.

Built once from the configuration (`config.py`) and sent whole to every worker, which makes `catalog` of it; nothing
here reads a file. Durations are seconds, money is nano-USD, rates are nano-USD per million tokens."""

import re
from typing import Literal, TypeVar

import msgspec

from sluicegate.capabilities import Capabilities
from sluicegate.messages import Format
from sluicegate.routing.families import capabilities_of, hides_reasoning

Strategy = Literal["weighted", "least_busy", "fastest_first_token", "cheapest"]
CutPolicy = Literal["produced", "drain", "none"]
UsageChunk = Literal["on_request", "always"]
CostPlace = Literal["usage", "extension", "none"]

_Found = TypeVar("_Found")

Said = bool | int | float | str | tuple[str, ...]
"""Value of a field of Capabilities, as a configuration has it."""

_DATE = re.compile(r"([-@])20\d\d(-?)(?:0[1-9]|1[0-2])-?(?:0[1-9]|[12]\d|3[01])$")


class ImagePrice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one image costs, of one size and quality."""

    nano: int
    size: str | None = None
    """Such as `1024x1024`; None: any."""
    quality: str | None = None
    """Such as `high`; None: any."""


class Price(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one model costs. Absent rates fall back: cache to input, reasoning to output, media to their
    side."""

    input: int = 0
    output: int = 0
    """Nano-USD per million tokens, like every rate below that says nothing else."""
    cache_read: int | None = None
    cache_write: int | None = None
    cache_write_1h: int | None = None
    """Writes that live an hour; None: as cache_write."""
    reasoning: int | None = None
    input_audio: int | None = None
    output_audio: int | None = None
    input_image: int | None = None
    output_image: int | None = None
    per_request: int = 0
    """Nano-USD for every answered request."""
    per_web_search: int = 0
    """Nano-USD for every search that a hosted tool made."""
    per_image: tuple[ImagePrice, ...] = ()
    """The first that fits an image; where none does, the dearest."""
    per_second: int = 0
    """Nano-USD for a second of audio or video, exact to the millisecond."""
    per_video_second: tuple[ImagePrice, ...] = ()
    """Nano-USD for a second of video, by size: the first that fits, else the dearest; empty: `per_second`."""
    per_character: int = 0
    """Nano-USD for a character that was spoken."""
    tiers: tuple["PriceTier", ...] = ()
    """Other rates for long prompts, lowest threshold first."""
    service_tiers: dict[str, int] = {}
    """What the rates of tokens are multiplied by where such a tier served, in millionths; other tiers: 1."""


class PriceTier(msgspec.Struct, frozen=True, kw_only=True):
    """The rates of a request whose whole input is longer than a threshold; they hold for all of its
    tokens. What is not by the token is the whole price's."""

    above_input_tokens: int
    price: Price


class DatedPrice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A price that holds for requests admitted from a moment on."""

    from_at: float
    """Seconds since 1970."""
    price: Price | None = None
    """None: free."""


class StreamSwitches(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a profile sets together, or a single switch overrides; None leaves it to the next level."""

    profile: str | None = None
    usage_chunk: UsageChunk | None = None
    cost: CostPlace | None = None
    cost_extension_key: str | None = None
    cost_header: str | None = None
    """Name of the cost header on answers that are not streamed; the empty string sends none."""
    on_disconnect: CutPolicy | None = None
    on_error: CutPolicy | None = None


class StreamClocks(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that bound one request; see design of each in docs/configuration.md."""

    connect_timeout_s: float = 5.0
    first_token_timeout_s: float = 300.0
    idle_timeout_s: float = 300.0
    response_timeout_s: float = 600.0
    total_timeout_s: float = 3600.0
    plain_keepalive_s: float = 240.0
    usage_wait_s: float = 5.0
    max_event_bytes: int = 16_777_216
    min_tokens_per_s: float = 0.0
    """0: no minimum."""
    min_tokens_window_s: float = 10.0
    continue_midstream: bool = False


class Limits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a key, an account, a model or a deployment may do; None: no limit."""

    name: str
    """Under which it is counted, over the whole gate."""
    rpm: int | None = None
    tpm: int | None = None
    max_streams: int | None = None
    """Requests a minute, tokens a minute, requests at once."""


class TlsFiles(msgspec.Struct, frozen=True, kw_only=True):
    """How to speak TLS to a provider."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify: bool = True


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """Who serves models: base URL, formats, credentials and quirks. A provider is data, never code."""

    name: str
    base_url: str
    urls: dict[str, str] = {}
    """Whole base URL of one format where it differs."""
    speaks: tuple[Format, ...] = ("chat",)
    unary: tuple[str, ...] | None = None
    """Which of its formats' endpoints without a stream it serves; None: all."""
    api_keys: tuple[str, ...] = ()
    auth: Literal["bearer", "x-api-key", "x-goog-api-key", "api-key", "none", "google"] | None = None
    """None: the format's own default."""
    google_credentials: str | None = None
    """Content of a service account's key file, for `auth: google`."""
    paths: dict[str, str] = {}
    """Path templates per format, `{model}` filled in, joined to the base URL."""
    query: dict[str, str] = {}
    headers: dict[str, str] = {}
    tls: TlsFiles = TlsFiles()
    proxy: str | None = None
    """Proxy URL; None: none (the environment was looked at when the catalogue was built)."""
    max_connections: int = 0
    """Connections at once from one worker; 0: no limit."""
    probe: Literal["none", "models", "request"] | None = None
    """How it is probed; None: as all are."""
    repair: bool = True
    """Whether tool-call ids, indexes, roles and the like are put right on the same format."""
    stream_options: bool = True
    """Whether the provider takes `stream_options.include_usage`."""
    continuous_usage: bool = False
    drop_fields: tuple[str, ...] = ()
    """Top-level request fields it must not see."""
    betas_deny: tuple[str, ...] = ()
    cache_ttl: bool = True
    """Whether marks of the prompt cache may say how long they hold."""
    switches: StreamSwitches = StreamSwitches()
    clocks: StreamClocks | None = None
    """The provider's own clocks over the server's; None: the server's."""

    def __repr__(self) -> str:
        return f"Provider(name={self.name!r}, base_url={self.base_url!r})"


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """One routable target: a model at a provider."""

    provider: str
    model: str
    """The provider's id; `*` under a wildcard keeps what the client's id has there."""
    priority: int = 0
    """Lower comes first."""
    weight: int = 1
    cost: Price | None = None
    """What it costs the operator; None: unknown."""
    clocks: StreamClocks | None = None
    """The model's clocks over the provider's over the server's; None: the server's."""
    capabilities: Capabilities = Capabilities()
    """What it can take in the first of its provider's formats, the only one that requests are translated into."""
    said: tuple[tuple[str, Said], ...] = ()
    """What the configuration itself says of `capabilities`; the rest is known of the id's family."""
    limits: Limits | None = None
    """Shared by all deployments of one provider's model, and by all ids of a wildcard."""


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A public model id and what serves it."""

    id: str
    deployments: tuple[Deployment, ...]
    """By priority, lowest first."""
    price: Price | None
    """None: free, because the configuration says so; or, under a wildcard that is not free, one of
    `Catalogue.wildcard_prices`."""
    later: tuple[DatedPrice, ...] = ()
    """What follows the price, earliest first."""
    free: bool = False
    """The configuration says `price: free`."""
    aliases: tuple[str, ...] = ()
    strategy: Strategy = "weighted"
    hedge_percentile: float | None = None
    """A first token later than this share of them gets a second attempt beside it; None: never."""
    max_calls: int = 1
    """For one request that wants so many answers of a format that gives one."""
    max_continuations: int = 8
    """For one answer: pauses of its provider that are resumed, each by one call more."""
    max_output_tokens: int = 8192
    prompt_template: Literal["plain", "none"] = "plain"
    hidden_output: bool = False
    """The family hides reasoning, so a stream reserves its whole output limit."""
    capabilities: dict[str, object] = {}
    switches: StreamSwitches = StreamSwitches()
    clocks: StreamClocks | None = None
    """The model's clocks over the server's, for what is bounded before a deployment is chosen."""
    limits: Limits | None = None
    """Of all that ask for it, together; the ids of a wildcard share them."""


class Catalogue(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that can be asked for, and of whom."""

    providers: dict[str, Provider]
    models: dict[str, Model]
    """By exact public id, aliases included (an alias maps to the same Model)."""
    wildcards: tuple[tuple[str, Model], ...] = ()
    """(prefix, model) of ids that end in `*`, longest prefix first."""
    wildcard_prices: dict[str, Price] = {}
    """Catalogue price by `price_key`, for models reached through an unpriced wildcard."""
    wildcard_later: dict[str, tuple[DatedPrice, ...]] = {}
    """What follows those of them that change."""
    wildcard_costs: dict[str, Price] = {}
    """The same without markup: what such a deployment costs the operator."""

    def find(self, model_id: str) -> Model | None:
        """Return the model that serves a public id: exact id or alias first, then the longest wildcard."""
        model = self.models.get(model_id)
        if model is not None:
            return model
        for prefix, wild in self.wildcards:
            if model_id.startswith(prefix) and len(model_id) > len(prefix):
                return self._from_wildcard(wild, model_id, model_id[len(prefix) :])
        return None

    def serving(self, provider: str, upstream_id: str) -> tuple[Model, Deployment] | None:
        """Return a model that a provider serves under an id of its own, and where; None where none is routed there."""
        for model in self.models.values():
            for deployment in model.deployments:
                if deployment.provider == provider and deployment.model == upstream_id:
                    return model, deployment
        for _, model in self.wildcards:
            for deployment in model.deployments:
                before, star, after = deployment.model.partition("*")
                rest = upstream_id.removeprefix(before).removesuffix(after)
                if (
                    deployment.provider == provider
                    and star
                    and deployment.model.replace("*", rest) == upstream_id
                ):
                    return model, self._with_id(deployment, rest)
        return None

    def _from_wildcard(self, wild: Model, model_id: str, rest: str) -> Model | None:
        deployments = tuple(self._with_id(deployment, rest) for deployment in wild.deployments)
        price, later = wild.price, wild.later
        if price is None and not wild.free:
            price = _look_up(self.wildcard_prices, deployments[0])
            if price is None:
                return None
            later = _look_up(self.wildcard_later, deployments[0]) or ()
        hidden = wild.hidden_output
        if "hidden_output" not in wild.capabilities:
            hidden = any(hides_reasoning(deployment.model) for deployment in deployments)
        return msgspec.structs.replace(
            wild, id=model_id, deployments=deployments, price=price, later=later, hidden_output=hidden
        )

    def _with_id(self, deployment: Deployment, rest: str) -> Deployment:
        upstream_id = deployment.model.replace("*", rest)
        spoken = self.providers[deployment.provider].speaks[0]
        target = msgspec.structs.replace(
            deployment,
            model=upstream_id,
            capabilities=resolve_capabilities(upstream_id, spoken, deployment.said),
        )
        if target.cost is None:
            target = msgspec.structs.replace(target, cost=_look_up(self.wildcard_costs, target))
        return target


def resolve_capabilities(
    upstream_id: str, spoken: Format, said: tuple[tuple[str, Said], ...]
) -> Capabilities:
    """Lay what a configuration says over what is known of a model's family."""
    known = capabilities_of(upstream_id, spoken)
    return msgspec.structs.replace(known, **dict(said)) if said else known


def price_key(provider: str, upstream_id: str) -> str:
    """Return the key of a provider's model in a table of prices."""
    return f"{provider}/{upstream_id.lower()}"


def dated_key(key: str) -> str | None:
    """Return the key that stands for all dated forms of an id (`…-yyyymmdd`), or None where an id has no
    date."""
    spelled, found = _DATE.subn(lambda date: f"{date[1]}yyyy{date[2]}mm{date[2]}dd", key)
    return spelled if found else None


def _look_up(prices: dict[str, _Found], deployment: Deployment) -> _Found | None:
    key = price_key(deployment.provider, deployment.model)
    price = prices.get(key)
    if price is None and (dated := dated_key(key)) is not None:
        price = prices.get(dated)
    return price
