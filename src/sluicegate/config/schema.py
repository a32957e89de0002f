"""Every setting, as frozen pydantic models: its name, type, bounds, default and one line of help.

The string beneath a field is its help in docs/configuration.md and in `sluicegate config schema`. Scalars
come as the text that stands in the file (`document.Text`), so the types here read text; `values` has the
readers. What one section alone can tell is checked here; what takes two is checked in `meaning`."""

import ast
import difflib
import inspect
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, Union, get_args, get_origin

from annotated_types import Ge, Le
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    SecretStr,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import CoreSchema

from sluicegate.capabilities import EFFORTS, Effort
from sluicegate.config import values
from sluicegate.config.document import Path as SettingPath
from sluicegate.config.document import Problem
from sluicegate.config.values import Address
from sluicegate.messages import Format
from sluicegate.money import format_usd

# --- Scalars ---


def _reader(read: Callable[[str], Any], *done: type) -> BeforeValidator:
    """Make a validator that reads text with `read` and lets values of the types `done` (defaults, tests)
    through."""

    def validate(value: Any) -> Any:
        if isinstance(value, str) and type(value) not in done:
            return read(value)
        if type(value) in done:
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return read(str(value))
        raise ValueError(f"must be a plain value, not {_kind(value)}")

    return BeforeValidator(validate)


def _kind(value: Any) -> str:
    if value is None:
        return "empty"
    return {dict: "a mapping", list: "a list", bool: "true or false"}.get(type(value), "that")


def _secret(read: Callable[[str], str]) -> BeforeValidator:
    """Make a validator of a text that must never be shown."""

    def validate(value: Any) -> SecretStr:
        if isinstance(value, SecretStr):
            return value
        if not isinstance(value, str):
            raise ValueError(f"must be a plain value, not {_kind(value)}")
        return SecretStr(read(value))

    return BeforeValidator(validate)


def _read_whole(text: str) -> int:
    digits = text.strip().replace("_", "")
    if not digits.removeprefix("-").isascii() or not digits.removeprefix("-").isdigit():
        raise ValueError("must be a whole number")
    return int(digits)


def _read_flag(text: str) -> bool:
    flag = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}.get(
        text.lower()
    )
    if flag is None:
        raise ValueError("must be true or false")
    return flag


def _read_rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not 0 <= rate <= 100_000:
        raise ValueError("must be a number of 0 to 100000")
    return rate


def _read_streams(text: str) -> int:
    return 0 if text == "auto" else _read_whole(text)


def _read_memory(value: Any) -> int | None:
    if value is None or isinstance(value, int):
        return value
    if not isinstance(value, str):
        raise ValueError(f"must be a plain value, not {_kind(value)}")
    memory = None if value == "auto" else _read_whole(value)
    if memory is not None and memory < 0:
        raise ValueError("must be at least 0")
    return memory


def _read_repair(text: str) -> Literal["auto"] | bool:
    return "auto" if text == "auto" else _read_flag(text)


def _resolve(value: Any, info: ValidationInfo) -> Path:
    """Read a path; a relative one is relative to the configuration's folder, which the context holds."""
    if isinstance(value, Path):
        return value
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ValueError("must be the path of a file")
    folder: Path = (info.context or {}).get("folder", Path())
    return folder / Path(value).expanduser()


def _schema(kind: str, **more: Any) -> WithJsonSchema:
    return WithJsonSchema({"type": kind, **more})


def _words(*choices: str) -> BeforeValidator:
    """Make a validator that a text is one of a few words; the Literal beside it holds the type."""

    def validate(value: Any) -> Any:
        if not isinstance(value, str) or value not in choices:
            raise ValueError(f"must be {_or(choices)}")
        return str(value)

    return BeforeValidator(validate)


def _or(choices: tuple[str, ...]) -> str:
    return choices[0] if len(choices) == 1 else f"{', '.join(choices[:-1])} or {choices[-1]}"


Whole = Annotated[int, _reader(_read_whole, int), _schema("integer")]
Positive = Annotated[int, _reader(_read_whole, int), Field(ge=1), _schema("integer", minimum=1)]
Flag = Annotated[bool, _reader(_read_flag, bool), _schema("boolean")]
Duration = Annotated[
    float,
    _reader(values.parse_duration, float),
    _schema("string", format="duration", examples=["250ms", "30s", "5m"]),
]
Usd = Annotated[int, _reader(values.parse_amount, int), _schema("number", minimum=0, format="usd")]
"""Nano-USD. A Python int is taken as nano-USD already; text is USD."""
PriceUsd = Annotated[
    int, _reader(values.parse_price, int), _schema("number", minimum=0, maximum=1_000_000, format="usd")
]
"""Nano-USD, as `Usd`."""
Factor = Annotated[int, _reader(values.parse_multiplier, int), _schema("number", minimum=0, maximum=100)]
"""Millionths."""
Percent = Annotated[int, _reader(values.parse_percent, int), _schema("number", minimum=0, maximum=10000)]
"""Millionths of a percent."""
Rate = Annotated[float, _reader(_read_rate, float), _schema("number", minimum=0)]
Listen = Annotated[Address, _reader(values.parse_address, Address), _schema("string", format="host:port")]
File = Annotated[Path, BeforeValidator(_resolve), _schema("string", format="path")]
Name = Annotated[str, _reader(values.parse_name), _schema("string")]
ModelId = Annotated[str, _reader(values.parse_model_id), _schema("string")]
UpstreamId = Annotated[str, _reader(values.parse_upstream_id), _schema("string")]
BaseUrl = Annotated[str, _reader(values.parse_base_url), _schema("string", format="uri")]
Origin = Annotated[str, _reader(values.parse_origin), _schema("string")]
HeaderName = Annotated[str, _reader(values.parse_header_name), _schema("string")]
CostHeader = Annotated[str, _reader(values.parse_cost_header), _schema("string")]
Instant = Annotated[datetime, _reader(values.parse_instant, datetime), _schema("string", format="date-time")]
Word = Annotated[str, _reader(str), _schema("string")]
Streams = Annotated[
    int,
    _reader(_read_streams, int),
    Field(ge=0),
    WithJsonSchema({"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1}]}),
]
Memory = Annotated[
    int | None,
    BeforeValidator(_read_memory),
    WithJsonSchema({"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 0}]}),
]
Repair = Annotated[
    Literal["auto"] | bool, _reader(_read_repair, bool), WithJsonSchema({"enum": ["auto", True, False]})
]

Credential = Annotated[SecretStr, _secret(values.parse_credential), _schema("string", format="password")]
GatewayKey = Annotated[
    SecretStr,
    _secret(values.parse_gateway_key),
    _schema("string", format="password", minLength=16, maxLength=128),
]
KeyHash = Annotated[
    SecretStr, _secret(values.parse_key_hash), _schema("string", format="password", minLength=32)
]
HeaderValue = Annotated[SecretStr, _secret(values.parse_header_value), _schema("string")]
QueryValue = Annotated[SecretStr, _secret(str), _schema("string")]
Proxy = Annotated[SecretStr, _secret(values.parse_proxy), _schema("string", format="uri")]
StoreUrl = Annotated[SecretStr, _secret(values.parse_store_url), _schema("string")]
CountersUrl = Annotated[SecretStr, _secret(values.parse_counters_url), _schema("string")]

CutRule = Annotated[Literal["produced", "drain", "none"], _words("produced", "drain", "none")]
UsageChunk = Annotated[Literal["on_request", "always"], _words("on_request", "always")]
CostPlace = Annotated[Literal["usage", "extension", "none"], _words("usage", "extension", "none")]
PROFILES = ("default", "relaykit", "openrelay", "rutoken", "cloakray")
Profile = Annotated[Literal["default", "relaykit", "openrelay", "rutoken", "cloakray"], _words(*PROFILES)]
Translation = Annotated[Literal["default", "strict", "lenient"], _words("default", "strict", "lenient")]
FORMATS = ("chat", "completions", "responses", "messages", "gemini")
WireFormat = Annotated[Format, _words(*FORMATS)]
UNARY = (
    "embeddings", "images", "speech", "transcription", "moderation", "rerank", "video", "files", "batches",
    "count_tokens",
)  # fmt: skip
Unary = Annotated[str, _words(*UNARY), WithJsonSchema({"enum": list(UNARY)})]
AuthScheme = Literal["bearer", "x-api-key", "x-goog-api-key", "api-key", "none", "google"]
Auth = Annotated[AuthScheme, _words("bearer", "x-api-key", "x-goog-api-key", "api-key", "none", "google")]
Strategy = Annotated[
    Literal["weighted", "least_busy", "fastest_first_token", "cheapest"],
    _words("weighted", "least_busy", "fastest_first_token", "cheapest"),
]


class Section(BaseModel):
    """A mapping of the file whose keys are all known."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    empty_means_default: ClassVar[bool] = True
    """Whether a section that stands there empty (`server:`) is the same as one that does not stand there."""

    words: ClassVar[dict[str, dict[str, Any]]] = {}
    """Single words that may stand for the section, and what they mean."""

    @model_validator(mode="before")
    @classmethod
    def _take_word(cls, data: Any) -> Any:
        if data is None and cls.empty_means_default:
            return {}
        if isinstance(data, str):
            if data in cls.words:
                return cls.words[data]
            raise ValueError(
                f"must be a mapping or the word {_or(tuple(cls.words))}" if cls.words else "must be a mapping"
            )
        if isinstance(data, dict):
            return {name: value for name, value in data.items() if value is not None or cls._takes_null(name)}
        return data

    @classmethod
    def _takes_null(cls, name: str) -> bool:
        """Whether null means something other than the field's absence."""
        field = cls.model_fields.get(name)
        return field is None or (not field.is_required() and field.default is None)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler.resolve_ref_schema(handler(core))
        if not cls.words:
            return schema
        for field in set().union(*cls.words.values()):
            schema.get("properties", {}).pop(field, None)
        return {"anyOf": [{"enum": list(cls.words)}, schema]}


SectionT = TypeVar("SectionT", bound=Section)


# --- The server and what is around it ---


class ServerTls(Section):
    """Certificate and key of the listening side; both or neither."""

    cert_file: File | None = None
    """PEM file of the certificate and its chain."""
    key_file: File | None = None
    """PEM file of the certificate's private key."""


class Server(Section):
    """The client side."""

    listen: Listen = Address("127.0.0.1", 4000)
    """Where clients connect, host:port; IPv6 in brackets."""
    workers: Annotated[Whole, Field(ge=1, le=256)] = 1
    """Worker processes, 1 to 256; one for each processor core that the gate may use."""
    tls: ServerTls = ServerTls()
    """TLS to clients."""
    max_body_bytes: Annotated[Whole, Field(ge=1024, le=2**31)] = 33_554_432
    """Largest request body of a text endpoint, bytes; larger ones are refused with 413."""
    max_upload_bytes: Annotated[Whole, Field(ge=1024, le=2**40)] = 536_870_912
    """Largest body of an upload (files, audio), bytes."""
    max_inflight_bytes: Annotated[Whole, Field(ge=1024, le=2**40)] = 268_435_456
    """Request bodies held in memory at once by one worker, bytes; above it new requests get 503."""
    keepalive_after: Annotated[Duration, Field(ge=0.05)] = 15.0
    """Silence after which a waiting stream gets a keep-alive, which fixes its status 200."""
    keepalive_every: Annotated[Duration, Field(ge=0.05)] = 15.0
    """Time between keep-alives while the provider stays silent."""
    request_timeout: Annotated[Duration, Field(ge=0.05)] = 30.0
    """Time for the whole head of a request, and then the longest gap between bytes of its body."""
    write_timeout: Annotated[Duration, Field(ge=0.05)] = 60.0
    """How long a client may take nothing of what is ready for it before it is cut off."""
    idle_connection: Annotated[Duration, Field(ge=0.05)] = 75.0
    """How long a client's connection is kept without a request."""
    drain_timeout: Duration = 300.0
    """How long running requests may finish when the gate stops."""
    max_streams: Streams = 0
    """Requests at once in one worker, above which new ones get 503; auto: as many as its descriptors allow."""
    max_memory: Memory = None
    """Memory of one worker, bytes, above which new requests get 503; auto: its share of nine tenths of the machine or
    its control group; 0: no limit."""
    max_lag: Duration = 1.0
    """How late a worker's loop may be, on average over some sweeps, before new requests get 503; 0: no limit."""
    queue_for: Duration = 0.0
    """How long a request above a limit waits for a place before it gets 429; 0: not at all."""
    cors_origins: tuple[Origin, ...] = ()
    """Browser origins that may call the gate; `*` for any."""
    expose_provider: Flag = True
    """Whether answers name the provider, its attempts and its own ids."""


class Admin(Section):
    """The operator's side: health, metrics, and with a token the API and the console."""

    listen: Listen = Address("127.0.0.1", 4001)
    """Where the operator connects, host:port; a loopback address where there is no token."""
    token: Credential | None = None
    """Bearer token of the API and the console. Left out: health and metrics only."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_empty_token(cls, data: Any) -> Any:
        if isinstance(data, dict) and "token" in data and not data["token"]:
            raise ValueError("token is empty; set one, or take the line out for health and metrics only")
        return data


class Secrets(Section):
    """Secrets of the gate itself."""

    key_hash: KeyHash | None = None
    """Key of the keyed hash under which gateway keys are stored. Left out: made once beside the store, mode
    0600."""


class Journal(Section):
    """Where settlements are written before an answer ends."""

    dir: File = Path("journal")
    """Folder of the journal files."""
    sync: Annotated[Literal["process", "disk"], _words("process", "disk")] = "process"
    """process: nothing is lost when a process is killed, at most `fsync_every` of records when the power
    fails; disk: an answer ends only when its settlement is on the disk."""
    fsync_every: Annotated[Duration, Field(ge=0.001, le=10)] = 0.05
    """Longest time between two writes to the disk."""
    drain_every: Annotated[Duration, Field(ge=0.01, le=10)] = 0.2
    """Longest time until the store has what the journal has."""


# --- Streams, billing, retries ---


class Switches(Section):
    """What a profile sets together; each can be set alone."""

    usage_chunk: UsageChunk | None = None
    """Whether a stream ends with its usage: on_request or always. Left out: as the profile says."""
    cost: CostPlace | None = None
    """Where the cost stands: in the usage object, in an object beside it (extension), or nowhere (none)."""
    cost_extension_key: Annotated[Word, Field(min_length=1, max_length=64)] | None = None
    """Name of the object beside usage, for `cost: extension`."""
    cost_header: CostHeader | None = None
    """Header that names the cost of an answer that is not streamed; none: no header."""


class Stream(Switches):
    """Clocks and switches of every request; a model or a provider can set each for itself, under `stream`."""

    profile: Profile = "default"
    """Sets usage_chunk, cost, cost_header and the cut rules together."""
    connect_timeout: Annotated[Duration, Field(ge=0.01)] = 5.0
    """Name look-up, TCP and TLS of one attempt."""
    first_token_timeout: Annotated[Duration, Field(ge=0.01)] = 300.0
    """From the request's end to the first content of one attempt."""
    idle_timeout: Annotated[Duration, Field(ge=0.01)] = 300.0
    """Longest silence of a provider inside its answer."""
    response_timeout: Annotated[Duration, Field(ge=0.01)] = 600.0
    """Whole answer that is not streamed."""
    total_timeout: Annotated[Duration, Field(ge=0.01)] = 3600.0
    """Whole request, all attempts together."""
    plain_keepalive: Annotated[Duration, Field(ge=0.05)] = 240.0
    """Silence after which an answer that is not streamed gets a line feed, so that clients keep waiting."""
    usage_wait: Duration = 5.0
    """How long a finish waits for its usage in formats that join the two; after it the gate's own count is
    used."""
    max_event_bytes: Annotated[Whole, Field(ge=1024, le=2**30)] = 16_777_216
    """Largest single event of a provider, bytes."""
    min_tokens_per_s: Rate = 0.0
    """A stream slower than this, over `min_tokens_window`, is ended as if it were silent; 0: no minimum."""
    min_tokens_window: Annotated[Duration, Field(ge=0.1, le=3600)] = 10.0
    """Over how long a stream's tokens are counted for `min_tokens_per_s`; a client that does not read stops it."""
    continue_midstream: Flag = False
    """Whether a stream that breaks off may be continued by another provider."""


class StreamOverrides(Stream):
    """What a model or a provider sets for itself: only what stands there counts, anything else is as above
    it."""

    on_disconnect: CutRule | None = None
    """What a client that leaves pays for: produced, drain or none."""
    on_error: CutRule | None = None
    """The same for a stream that ends with an error."""


class Billing(Section):
    """What is charged when things go wrong, and how much is held beforehand."""

    on_crash: Annotated[Literal["none", "produced"], _words("none", "produced")] = "none"
    """What a request pays that a crash of the gate interrupted: none, or what was produced at its last
    checkpoint."""
    on_disconnect: CutRule | None = None
    """What a client that leaves pays for: produced, drain (the provider finishes) or none. Left out: the
    profile's."""
    on_error: CutRule | None = None
    """The same for a stream that ends with an error. Left out: the profile's."""
    catalogue_file: File | None = None
    """Prices of providers that go before the bundled price list for a while; see docs/billing.md. Read again on
    SIGHUP."""
    drain_cap: Duration = 60.0
    """How long a provider may go on for `on_disconnect: drain`."""
    markup_percent: Percent = 0
    """Added to prices that come from the catalogue, percent; prices that stand here are charged as they
    stand."""
    reserve_output_tokens: Annotated[Whole, Field(ge=1, le=10_000_000)] = 1024
    """Output that is held for a stream at first, tokens; more is held as it runs."""
    shortfall_limit_usd: Usd = 1_000_000_000
    """What an account may cost the operator in a day beyond its credit, USD, before every model holds its
    whole limit."""


class Retry(Section):
    """How often the gate tries again before anything has reached the client."""

    max_attempts: Annotated[Whole, Field(ge=1, le=20)] = 3
    """Attempts of one request where nothing was processed (no connection, 429, 503, 529); each route is tried once
    all the same."""
    after_send: Annotated[Whole, Field(ge=0, le=10)] = 1
    """Further attempts of a request that was sent whole and never answered."""
    budget_percent: Annotated[Whole, Field(ge=0, le=100)] = 20
    """Retries of a provider's requests in 10 s, percent; ten are always free, other providers never count."""


class Health(Section):
    """When a route that fails is left alone, and for how long; told by every request's outcome."""

    failures: Annotated[Whole, Field(ge=1, le=1000)] = 5
    """Failures in a row that open a route's circuit breaker."""
    failure_percent: Annotated[Whole, Field(ge=1, le=100)] = 50
    """Share of failures that opens it, percent."""
    min_requests: Annotated[Whole, Field(ge=1, le=1_000_000)] = 20
    """Requests of the last 5 to 10 s, in one worker, before their share of failures counts."""
    open_for: Annotated[Duration, Field(ge=0.1, le=3600)] = 5.0
    """How long it stays open before one request tries the route again; twice as long each further time, and drawn
    from a quarter less to a quarter more."""
    max_open_for: Annotated[Duration, Field(ge=0.1, le=86_400)] = 60.0
    """Longest time that it stays open."""


class Media(Section):
    """Pictures and files that a request names by address, for providers that take only their data."""

    fetch: Flag = False
    """Whether the gate fetches them: over https, from public addresses only; else such a request is refused."""
    max_bytes: Annotated[Whole, Field(ge=1024, le=2**30)] = 20_971_520
    """What all of one request may have, bytes."""
    timeout: Duration = 10.0
    """How long the fetch of each may take."""
    allow_hosts: tuple[Word, ...] = ()
    """Hosts, as `host` or `host:port`, that may have private addresses and need no TLS."""


class ResponsesStore(Section):
    """Whether the gate keeps responses itself where their provider does not, so that clients can go on from them."""

    enabled: Flag = False
    """Whether responses, and what they answer, are kept in the store. Off, who goes on from one is refused."""
    ttl: Duration = 86_400.0
    """How long a response is kept, from when its conversation last went on."""
    max_bytes: Annotated[Whole, Field(ge=0, le=2**50)] = 1_073_741_824
    """Bytes of all that are kept; those that expire first make room."""


class Jobs(Section):
    """Work that goes on at providers after its request was answered: video jobs and batches."""

    poll_every: Annotated[Duration, Field(gt=0)] = 15.0
    """How soon, and then how often at first, a job that nobody asks for is asked after. Old ones are asked after more
    rarely, but at least every twenty times as long."""
    give_up_after: Annotated[Duration, Field(gt=0)] = 172_800.0
    """A job that has not ended by then is settled as failed, and costs nothing."""


# --- Providers, models, accounts, keys ---


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


Temperature = Annotated[
    float, _reader(_read_rate, float), Field(le=2), _schema("number", minimum=0, maximum=2)
]
Tokens = Annotated[int, _reader(_read_whole, int), Field(ge=1, le=10_000_000), _schema("integer")]
EffortName = Annotated[Effort, _words(*EFFORTS)]


class Abilities(Section):
    """What a model can take and how it wants it said. All that is left out is known for the well-known families by
    the provider's id of the model, and else as any server of the format has it."""

    limit_field: (
        Annotated[
            Literal["max_tokens", "max_completion_tokens"], _words("max_tokens", "max_completion_tokens")
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
            _words("none", "effort", "budget", "adaptive", "level"),
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
        Annotated[int, _reader(_read_whole, int), Field(ge=0, le=1000), _schema("integer")] | None
    ) = None
    """How many stop sequences it takes."""
    reasoning_in_history: Flag | None = None
    """Whether chat gets the model's thoughts back as `reasoning_content`, which some servers demand and others
    refuse."""
    prefill: Flag | None = None
    """Whether a trailing assistant turn is continued."""
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


class Rates(Section):
    """Rates in USD per million tokens. Left-out cache rates are input's, reasoning is output's, audio and images are
    their side's."""

    input: PriceUsd | None = None
    """Tokens read."""
    output: PriceUsd | None = None
    """Tokens generated."""
    cache_read: PriceUsd | None = None
    """Tokens read from the provider's cache."""
    cache_write: PriceUsd | None = None
    """Tokens written to it (for five minutes)."""
    cache_write_1h: PriceUsd | None = None
    """Tokens written to it for an hour."""
    reasoning: PriceUsd | None = None
    """Tokens of hidden thought."""
    input_audio: PriceUsd | None = None
    """Tokens of audio read."""
    output_audio: PriceUsd | None = None
    """Tokens of audio generated."""
    input_image: PriceUsd | None = None
    """Tokens of images read."""
    output_image: PriceUsd | None = None
    """Tokens of images generated."""


class TierRow(Rates):
    """Rates of a request whose whole input is longer than a threshold, for all of its tokens. What is left out is as
    it stands without the tier."""

    empty_means_default: ClassVar[bool] = False

    above_input_tokens: Annotated[Whole, Field(ge=1, le=2**53)]
    """Input, cached tokens included, must be longer than this."""


class ImageRow(Section):
    """The price of one image, or of a second of video."""

    empty_means_default: ClassVar[bool] = False

    usd: PriceUsd
    """USD for each."""
    size: Word | None = None
    """Of this size only, such as 1024x1024."""
    quality: Word | None = None
    """Of this quality only, such as high."""


class ListedPrice(Rates):
    """Rates in USD per million tokens, or the word free. Left-out cache rates are input's, reasoning is
    output's, audio and images are their side's."""

    per_request: PriceUsd = 0
    """USD for every answered request."""
    per_web_search: PriceUsd = 0
    """USD for every search that a hosted tool made."""
    per_image: tuple[ImageRow, ...] = ()
    """Images sold by the piece: the first that fits in size and quality, else the dearest."""
    per_second: PriceUsd = 0
    """USD for a second of audio or video, by the millisecond."""
    per_video_second: tuple[ImageRow, ...] = ()
    """Video sold by the second and size: the first that fits, else the dearest. Left out: `per_second`."""
    per_character: PriceUsd = 0
    """USD for a character that was spoken."""
    tiers: tuple[TierRow, ...] = ()
    """Other rates for long prompts, lowest threshold first."""
    service_tiers: dict[Word, Factor] = {}
    """What the rates of tokens are multiplied by where such a tier served: `{flex: 0.5, priority: 2}`."""

    free: Flag = False
    """It costs nothing."""

    empty_means_default: ClassVar[bool] = False
    words: ClassVar[dict[str, dict[str, Any]]] = {"free": {"free": True}}

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.free:
            return self
        if not self.model_fields_set.intersection(_UNITS):
            for side in ("input", "output"):
                if getattr(self, side) is None:
                    raise ValueError(
                        f"{side} is missing; write `{side}: 0` where it costs nothing, or `free` for the whole"
                    )
        thresholds = [tier.above_input_tokens for tier in self.tiers]
        if thresholds != sorted(set(thresholds)):
            raise ValueError("tiers must stand lowest threshold first, each once")
        return self


_UNITS = ("per_request", "per_image", "per_second", "per_video_second", "per_character")
"""Prices that may stand without rates of tokens."""


class DatedRow(ListedPrice):
    """A whole price that takes the place of the one before it."""

    start: Annotated[Instant, Field(alias="from")]
    """When it begins, ISO 8601; UTC where no zone stands. Requests admitted before keep the price they had."""

    words: ClassVar[dict[str, dict[str, Any]]] = {}


class PriceRow(ListedPrice):
    """Rates in USD per million tokens, or the word free. Left-out cache rates are input's, reasoning is
    output's, audio and images are their side's."""

    changes: tuple[DatedRow, ...] = ()
    """What it becomes and when, earliest first; each a whole price with `from`."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        starts = [change.start for change in self.changes]
        if starts != sorted(set(starts)):
            raise ValueError("changes must stand earliest first, each `from` once")
        return self


def _empty_is_absent(value: Any) -> Any:
    return None if value == {} else value


class Limited(Section):
    """Limits over time; what is left out is not limited."""

    rpm: Positive | None = None
    """Requests a minute."""
    tpm: Positive | None = None
    """Tokens a minute, input and output."""
    max_streams: Positive | None = None
    """Requests at once."""


class Route(Limited):
    """One target of a model. Its limits are the provider's model's, whichever routes lead there."""

    provider: Name
    """Name of a provider."""
    model: UpstreamId
    """The provider's id of the model; `*` under a wildcard keeps what the client's id has there."""
    priority: Annotated[Whole, Field(ge=0, le=1000)] = 0
    """Lower comes first; the next only when those before it fail."""
    weight: Annotated[Whole, Field(ge=0, le=1_000_000)] = 1
    """Share of requests among routes of one priority; 0: only when the others fail."""
    cost: Annotated[ListedPrice | None, BeforeValidator(_empty_is_absent)] = None
    """What it costs the operator, rates as in `price`. Left out: the catalogue's."""


class ModelCapabilities(Abilities):
    """What a model can take, over what its provider and its family say."""

    hidden_output: Flag | None = None
    """Whether it bills reasoning that a stream does not show, so that its whole output limit is held. Left
    out: known for families that do."""


class ModelRow(Limited):
    """A public model id: what serves it and what it costs. An id may end in `*`. Its limits count the requests of all
    keys."""

    empty_means_default: ClassVar[bool] = False

    aliases: tuple[ModelId, ...] = ()
    """Other ids of it; an answer names the id that was asked for."""
    routes: Annotated[tuple[Route, ...], Field(min_length=1)]
    """What serves it, at least one."""
    strategy: Strategy = "weighted"
    """Choice among routes of one priority; a conversation keeps its route as far as the strategy allows."""
    hedge_percentile: Annotated[Whole, Field(ge=1, le=99)] | None = None
    """A stream whose first token is later than this percentage of the route's latest ones gets a second attempt at
    the next route; who is first serves it. Left out: never."""
    price: PriceRow | None = None
    """What a customer pays, USD per million tokens, or free. Left out: the catalogue's row of the first
    route, with `billing.markup_percent`."""
    max_output_tokens: Annotated[Whole, Field(ge=1, le=10_000_000)] = 8192
    """Output that is held where the client gave no limit, tokens."""
    prompt_template: Annotated[Literal["plain", "none"], _words("plain", "none")] = "plain"
    """How chat is written as one prompt for targets that speak completions only."""
    capabilities: ModelCapabilities = ModelCapabilities()
    """What it does."""
    stream: StreamOverrides = StreamOverrides()
    """Clocks and switches of its own."""


class AccountRow(Limited):
    """Who pays: a mapping with a balance, or the word unlimited. Its limits count the requests of all its keys."""

    balance_usd: Usd = 0
    """Credit that is given once, USD."""
    unlimited: Flag = False
    """Not prepaid: only limits stop it. As a mapping with limits: `{unlimited: true, rpm: 600}`."""

    empty_means_default: ClassVar[bool] = False
    words: ClassVar[dict[str, dict[str, Any]]] = {"unlimited": {"unlimited": True}}

    @model_validator(mode="after")
    def _one_of(self) -> "AccountRow":
        if self.unlimited and "balance_usd" in self.model_fields_set:
            raise ValueError("balance_usd and unlimited exclude each other")
        return self


class KeyRow(Switches):
    """A gateway key that is there from the start. Taken out of the file it is revoked; put back it works
    again."""

    empty_means_default: ClassVar[bool] = False

    name: Name
    """Its name in usage and logs, unique."""
    key: GatewayKey
    """The key itself, 16 to 128 printable characters, unique."""
    account: Name | None = None
    """Account that pays. Left out: one of the key's own name."""
    balance_usd: Usd | None = None
    """Credit that its own account is given once, USD; not together with `account`."""
    profile: Profile | None = None
    """Profile of its answers. Left out: the model's, provider's or server's."""
    on_disconnect: CutRule | None = None
    """What a client that leaves pays for: produced, drain or none."""
    on_error: CutRule | None = None
    """The same for a stream that ends with an error."""
    translation: Translation | None = None
    """How strictly requests are translated between formats. Left out: the server's."""
    models: tuple[ModelId, ...] = ("*",)
    """Public ids it may use; one trailing `*` each."""
    rpm: Positive | None = None
    """Requests a minute. Left out, like every limit below: no limit."""
    tpm: Positive | None = None
    """Tokens a minute, input and output."""
    max_streams: Positive | None = None
    """Requests at once."""
    day_usd: Usd | None = None
    """Spending in a UTC day, USD."""
    week_usd: Usd | None = None
    """Spending in a week from Monday, UTC, USD."""
    month_usd: Usd | None = None
    """Spending in a calendar month, UTC, USD."""
    lifetime_usd: Usd | None = None
    """Spending in all, USD."""
    expires_at: Instant | None = None
    """When it stops to work, ISO 8601; UTC where no zone stands."""
    on_limit: Annotated[Literal["stop", "finish"], _words("stop", "finish")] = "stop"
    """What a running stream does at a spending limit: stop, or finish at the operator's expense."""
    may_override: Flag = False
    """Whether its requests may choose providers and name other models."""


class CatalogueFile(Section):
    """A file of prices that providers charge, which go before the bundled price list for a while."""

    start: Annotated[Instant | None, Field(alias="from")] = None
    """When they begin, ISO 8601; UTC where no zone stands. Left out: at once."""
    until: Instant
    """When they end, and the bundled list counts again."""
    prices: dict[Name, dict[UpstreamId, ListedPrice]]
    """By the provider's id in the price list, then by the provider's id of the model."""

    @model_validator(mode="after")
    def _span(self) -> Self:
        if self.start is not None and self.start >= self.until:
            raise ValueError("until must be after from")
        return self


class Sections(Section):
    """The whole file."""

    server: Server = Server()
    """The client side."""
    admin: Admin = Admin()
    """The operator's side."""
    secrets: Secrets = Secrets()
    """Secrets of the gate itself."""
    store: StoreUrl = SecretStr("sqlite:///sluicegate.db")
    """Where keys, accounts, ledger and usage live: sqlite:///FILE, or postgresql://…"""
    counters: CountersUrl = SecretStr("memory")
    """Where limits are counted: memory, or redis://… when several gates share them."""
    journal: Journal = Journal()
    """Where settlements are written first."""
    stream: Stream = Stream()
    """Clocks and switches of every request."""
    billing: Billing = Billing()
    """What is charged when things go wrong."""
    retry: Retry = Retry()
    """How often the gate tries again."""
    health: Health = Health()
    """When a route that fails is left alone."""
    media: Media = Media()
    """Pictures and files that requests name by address."""
    translation: Translation = "default"
    """How strictly requests are translated between formats: default, strict or lenient."""
    responses_store: ResponsesStore = ResponsesStore()
    """Whether responses are kept."""
    jobs: Jobs = Jobs()
    """Video jobs and batches."""
    providers: dict[Name, ProviderRow] = {}
    """Who serves models, by name."""
    models: dict[ModelId, ModelRow] = {}
    """What can be asked for, by public id."""
    accounts: dict[Name, AccountRow] = {}
    """Who pays, by name."""
    keys: tuple[KeyRow, ...] = ()
    """Keys that are there from the start; more are made with `sluicegate keys create`."""


# --- Reading, and what went wrong ---


def read(data: dict[str, Any], folder: Path) -> Sections | list[Problem]:
    """Read a parsed file into sections, or tell everything that is wrong with it.

    Args:
        folder: what relative paths are relative to.
    """
    return read_as(Sections, data, folder)


def read_as(root: type[SectionT], data: dict[str, Any], folder: Path) -> SectionT | list[Problem]:
    """Do what `read` does for a file of another kind."""
    try:
        return root.model_validate(data, context={"folder": folder})
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=True, include_input=False)
        return [_problem(root, detail["type"], detail["loc"], detail.get("ctx") or {}) for detail in found]


def _problem(
    root: type[Section], kind: str, place: tuple[int | str, ...], context: dict[str, Any]
) -> Problem:
    if place and place[-1] == "[key]":
        place = place[:-1]
    if kind == "extra_forbidden":
        return Problem(place, _unknown(place, root))
    if kind == "value_error":
        return Problem(place, str(context["error"]))
    if kind in _REASONS:
        return Problem(place, _REASONS[kind].format(**context))
    return Problem(place, kind.replace("_", " "))


_REASONS = {
    "missing": "is required",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "too_short": "must have at least {min_length} entry",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
    "dict_type": "must be a mapping",
    "tuple_type": "must be a list",
    "string_type": "must be text",
}
"""What pydantic finds, in our words."""


def _unknown(place: SettingPath, root: type[Section]) -> str:
    names = sorted(field.alias or name for name, field in _section_at(place[:-1], root).model_fields.items())
    near = difflib.get_close_matches(str(place[-1]), names, n=1, cutoff=0.6)
    if near:
        return f"unknown field; did you mean {near[0]}?"
    return f"unknown field; there are {', '.join(names)}"


def _section_at(place: SettingPath, root: type[Section]) -> type[Section]:
    """Return the section that stands at a path, for its field names."""
    kind: Any = root
    for part in place:
        section = _sections_in(kind)
        inner = section.model_fields[str(part)].annotation if section and isinstance(part, str) else None
        if section is not None and inner is not None:
            kind = inner
        else:
            kind = get_args(kind)[-1 if get_origin(kind) is dict else 0]
    section = _sections_in(kind)
    if section is None:
        raise AssertionError(f"no section at {place}")
    return section


def _sections_in(kind: Any) -> type[Section] | None:
    """Return the section that a type is, alone or beside None."""
    for choice in (kind, *(get_args(kind) if get_origin(kind) in (Union, UnionType) else ())):
        if isinstance(choice, type) and issubclass(choice, Section):
            return choice
    return None


def json_schema(root: type[Section] = Sections) -> dict[str, Any]:
    """Return the JSON Schema of the file, for editors and for the reference in docs/."""
    schema = root.model_json_schema()
    schema.pop("title")
    helps = _help()
    sections: list[type[Section]] = list(_sections_below(Section))
    for section in sections:
        definition = schema if section is root else schema["$defs"].get(section.__name__, {})
        definition.pop("title", None)
        for form in definition.get("anyOf", [definition]):
            form.pop("title", None)
            fields = {field.alias or name: name for name, field in section.model_fields.items()}
            for spelled, setting in form.get("properties", {}).items():
                name = fields[spelled]
                setting.pop("title", None)
                setting["description"] = helps[section.__name__][name]
                for bound in section.model_fields[name].metadata:
                    if setting.get("type") == "integer":
                        setting |= {"minimum": bound.ge} if isinstance(bound, Ge) else {}
                        setting |= {"maximum": bound.le} if isinstance(bound, Le) else {}
                if section is StreamOverrides:
                    setting.pop("default", None)
                if "default" in setting:
                    setting["default"] = _written(section.model_fields[name].default, setting)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Sluicegate", **schema}


def _sections_below(base: type[Section]) -> Iterator[type[Section]]:
    for section in base.__subclasses__():
        yield section
        yield from _sections_below(section)


def _written(default: Any, setting: dict[str, Any]) -> Any:
    """Return a default as it would stand in a file."""
    if isinstance(default, Section):
        return {}
    if isinstance(default, SecretStr | Address | Path):
        return plain(default)
    if setting.get("format") == "duration":
        return values.format_duration(default)
    if setting.get("format") == "usd":
        return json.loads(format_usd(default))
    if not default and {"const": "auto"} in setting.get("anyOf", []):
        return "auto"
    if isinstance(default, float) and default.is_integer():
        return int(default)
    return list(default) if isinstance(default, tuple) else default


def _help() -> dict[str, dict[str, str]]:
    """Read the strings beneath the fields of each section, inherited ones included, out of this module's
    source.

    pydantic can do it too, but parses the whole module anew for every section, each time the gate starts.
    """
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(inspect.getsource(sys.modules[__name__])).body:
        if isinstance(node, ast.ClassDef):
            fields = found[node.name] = {}
            for base in node.bases:
                fields |= found.get(ast.unparse(base), {})
            for setting, text in itertools.pairwise(node.body):
                if isinstance(setting, ast.AnnAssign) and isinstance(text, ast.Expr):
                    fields[ast.unparse(setting.target)] = " ".join(ast.literal_eval(text.value).split())
    return found


def plain(value: Any) -> str:
    """Return a setting's text, secrets included: to be looked at, not shown."""
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)
