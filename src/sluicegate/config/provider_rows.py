"""Providers as rows of the configuration, and what they and their models can take."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from sluicegate.config.scalars import (
    AspectRatio,
    Auth,
    BaseUrl,
    Credential,
    EffortName,
    File,
    Flag,
    HeaderName,
    HeaderValue,
    PictureSize,
    Probe,
    Proxy,
    QueryValue,
    Repair,
    Temperature,
    Tokens,
    Unary,
    Whole,
    WireFormat,
    Word,
    read_whole,
    reader,
    schema_of,
    words,
)
from sluicegate.config.section import Section
from sluicegate.config.stream_settings import StreamOverrides


class ProviderTls(Section):
    """TLS to a provider."""

    ca_file: File | None = None
    """PEM file of the authorities to trust instead of the system's."""
    cert_file: File | None = None
    """PEM file of a client certificate."""
    key_file: File | None = None
    """PEM file of the client certificate's key."""
    verify: Flag = True
    """Whether the provider's certificate is checked."""


class Abilities(Section):
    """What a model can take and how it wants it said. All that is left out is known for the well-known families by
    the provider's id of the model, and else as any server of the format has it."""

    limit_field: (
        Annotated[
            Literal["max_tokens", "max_completion_tokens"], words("max_tokens", "max_completion_tokens")
        ]
        | None
    ) = None
    """How chat spells the limit on output: max_tokens or max_completion_tokens."""
    developer_role: Flag | None = None
    """Whether chat knows the role `developer`; if not, it is said as `system`."""
    mid_system: Flag | None = None
    """Whether Messages takes system messages in mid-conversation."""
    temperature: Flag | None = None
    """Whether sampling may be changed (temperature, top_p and the like)."""
    max_temperature: Temperature | None = None
    """The highest temperature it takes; higher ones are cut to it."""
    images: Flag | None = None
    """Whether it takes images."""
    audio: Flag | None = None
    """Whether it takes audio."""
    files: Flag | None = None
    """Whether it takes documents such as PDF."""
    tools: Flag | None = None
    """Whether it takes tools."""
    parallel_tools: Flag | None = None
    """Whether the switch for several calls at once is taken."""
    strict_tools: Flag | None = None
    """Whether Messages takes `strict` on tools."""
    forced_tools: Flag | None = None
    """Whether a call can be demanded."""
    custom_tools: Flag | None = None
    """Whether it takes free-form tools; if not, they become functions."""
    images_in_results: Flag | None = None
    """Whether results of tools may hold images; if not, they are sent behind the results."""
    response_schema: Flag | None = None
    """Whether an answer can be held to a JSON Schema."""
    json_object: Flag | None = None
    """Whether an answer can be held to JSON without a schema."""
    json_with_tools: Flag | None = None
    """Whether Gemini takes a JSON answer and functions together."""
    reasoning: (
        Annotated[
            Literal["none", "effort", "budget", "adaptive", "level"],
            words("none", "effort", "budget", "adaptive", "level"),
        ]
        | None
    ) = None
    """How it is asked to think: none, effort (OpenAI formats), budget (Messages, Gemini 2.5), adaptive (newer
    Messages) or level (Gemini 3)."""
    reasoning_off: Flag | None = None
    """Whether thinking can be switched off."""
    efforts: Annotated[tuple[EffortName, ...], Field(min_length=1)] | None = None
    """Efforts it knows: none, minimal, low, medium, high, xhigh, max; others become the nearest."""
    min_budget_tokens: Tokens | None = None
    """Smallest budget of thought, tokens."""
    max_budget_tokens: Tokens | None = None
    """Largest budget of thought, tokens."""
    max_output_tokens: Tokens | None = None
    """The most output it can be asked for, tokens; larger limits are cut to it."""
    max_stop_sequences: (
        Annotated[int, reader(read_whole, int), Field(ge=0, le=1000), schema_of("integer")] | None
    ) = None
    """How many stop sequences it takes."""
    reasoning_in_history: Flag | None = None
    """Whether chat gets the model's thoughts back as `reasoning_content`, which some servers demand and others
    refuse."""
    prefill: Flag | None = None
    """Whether a trailing assistant turn is continued."""
    continuation: (
        Annotated[
            Literal["none", "turn", "prefix", "final_message"],
            words("none", "turn", "prefix", "final_message"),
        ]
        | None
    ) = None
    """How it is asked to go on with an answer that broke off elsewhere (`stream.continue_midstream`): turn (the
    partial answer is the last turn), prefix (chat, `prefix: true`), final_message (chat,
    `continue_final_message`) or none."""
    prompt_cache: Flag | None = None
    """Whether OpenAI formats take explicit cache breakpoints."""
    prompt_excludes_cache: Flag | None = None
    """Whether its count of input leaves cached tokens out although the format includes them."""
    output_excludes_reasoning: Flag | None = None
    """Whether its count of output leaves reasoning out although the format includes it."""
    web_search: Flag | None = None
    """Whether chat takes `web_search_options`; without, a search among functions is left out, one alone refused."""
    search_with_tools: Flag | None = None
    """Whether Gemini takes a web search and functions together."""
    clean_schemas: Flag | None = None
    """Whether it refuses uncommon keywords of JSON Schema, so that they become descriptions."""
    call_ids: Flag | None = None
    """Whether Gemini takes ids on calls and results."""
    signed_calls: Flag | None = None
    """Whether Gemini refuses calls without the signature they came with."""
    xhigh_effort: Flag | None = None
    """Whether Gemini takes the thinking level XHIGH."""
    media_resolution: Flag | None = None
    """Whether Gemini takes a resolution for each picture."""
    native_images: Flag | None = None
    """Whether Gemini makes pictures as parts of its answers; if not, it is asked for them as Imagen is."""
    image_ratios: Annotated[tuple[AspectRatio, ...], Field(min_length=1)] | None = None
    """Aspect ratios in which Gemini can be asked for pictures, such as 16:9; a size becomes the nearest."""
    image_sizes: tuple[PictureSize, ...] | None = None
    """Resolutions in which Gemini can be asked for pictures: 512, 1K, 2K, 4K; a size becomes the nearest. An empty
    list: it has one."""

    @model_validator(mode="after")
    def _budgets_fit(self) -> Self:
        least, most = self.min_budget_tokens, self.max_budget_tokens
        if least is not None and most is not None and least > most:
            raise ValueError("min_budget_tokens is above max_budget_tokens")
        return self


class ProviderCapabilities(Abilities):
    """What a provider can take, and what its models can unless they say it themselves."""

    stream_options: Flag = True
    """Whether it takes `stream_options.include_usage`; if not, the gate counts."""
    continuous_usage: Flag = False
    """Whether it takes `stream_options.continuous_usage_stats`."""
    betas_deny: tuple[Word, ...] = ()
    """Values of `anthropic-beta` that are not passed on."""
    drop_fields: tuple[Word, ...] = ()
    """Top-level request fields that are not passed on."""
    cache_ttl: Flag = True
    """Messages: whether it takes a `ttl` on `cache_control`; if not, marks are passed on without."""


class ProviderRow(Section):
    """Who serves models. A provider is a row here, never code."""

    empty_means_default: ClassVar[bool] = False

    base_url: BaseUrl | None = None
    """Base URL, joined as the SDKs do; one may serve several formats. Needed unless `url` has every
    format."""
    url: dict[WireFormat, BaseUrl] = {}
    """Base URL of single formats."""
    speaks: tuple[WireFormat, ...] = ("chat",)
    """Formats it speaks, best first: chat, completions, responses, messages, gemini."""
    unary: tuple[Unary, ...] | None = None
    """Endpoints without a stream that it serves. Left out: all that its formats have."""
    api_key: Credential | None = None
    """Its key. One of api_key, api_keys, api_key_file and api_key_command; none of them for servers without
    keys."""
    api_keys: Annotated[tuple[Credential, ...], Field(min_length=1)] | None = None
    """Several keys, used in turn."""
    api_key_file: File | None = None
    """File that holds the key; for `auth: google` the service account's key file."""
    api_key_command: Annotated[tuple[Word, ...], Field(min_length=1)] | None = None
    """Command that prints the key, as a list of words; run without a shell when the configuration is
    loaded, 10 s at most."""
    auth: Auth | None = None
    """How the key is sent. Left out: as the format has it (bearer, x-api-key or x-goog-api-key)."""
    paths: dict[WireFormat, Word] = {}
    """Path of single formats instead of the usual one; `{model}` is filled in."""
    query: dict[Word, QueryValue] = {}
    """Parameters added to every URL."""
    headers: dict[HeaderName, HeaderValue] = {}
    """Headers added to every request."""
    tls: ProviderTls = ProviderTls()
    """TLS to it."""
    proxy: Proxy | None = None
    """Proxy to it; none: no proxy. Left out: as HTTPS_PROXY, HTTP_PROXY and NO_PROXY say."""
    max_connections: Annotated[Whole, Field(ge=0, le=100_000)] = 0
    """Connections at once from one worker; 0: no limit."""
    probe: Probe | None = None
    """How it is asked whether it works again: none, models or request. Left out: as `health.probe` says."""
    catalogue: Word | None = None
    """Its id in the price catalogue. Left out: found by the host of base_url."""
    repair: Repair = "auto"
    """Whether ids, indexes and roles in its answers are put right; auto: on but for the vendors' own
    hosts."""
    capabilities: ProviderCapabilities = ProviderCapabilities()
    """What it can take."""
    stream: StreamOverrides = StreamOverrides()
    """Clocks and switches of its own."""

    @model_validator(mode="before")
    @classmethod
    def _proxy_none(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("proxy") == "none":
            return {**data, "proxy": None}
        return data

    @property
    def direct(self) -> bool:
        """Whether the row says that there is no proxy, whatever the environment says."""
        return "proxy" in self.model_fields_set and self.proxy is None
