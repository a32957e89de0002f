"""Every setting, as frozen pydantic models: its name, type, bounds, default and one line of help.

The string beneath a field is its help in docs/configuration.md and in `sluicegate config schema`. Here are the gate's
own sections, models, accounts, keys and the whole file; clocks and switches of streams are in `stream_settings`,
providers in `provider_rows`, prices in `price_rows`. What one section alone can tell is checked there; what takes two
is checked in `meaning`.
"""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, SecretStr, model_validator

from sluicegate.config.price_rows import ListedPrice, PriceRow
from sluicegate.config.provider_rows import Abilities, ProviderRow
from sluicegate.config.scalars import (
    CountersUrl,
    Credential,
    CutRule,
    Duration,
    File,
    Flag,
    GatewayKey,
    Instant,
    KeyHash,
    Limit,
    Listen,
    Memory,
    ModelId,
    Name,
    Origin,
    Percent,
    Probe,
    Profile,
    StoreUrl,
    Strategy,
    Streams,
    Translation,
    UpstreamId,
    Usd,
    Whole,
    Word,
    words,
)
from sluicegate.config.section import Section
from sluicegate.config.stream_settings import Stream, StreamOverrides, Switches
from sluicegate.config.values import Address

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
    sync: Annotated[Literal["process", "disk"], words("process", "disk")] = "process"
    """process: nothing is lost when a process is killed, at most `fsync_every` of records when the power
    fails; disk: an answer ends only when its settlement is on the disk."""
    fsync_every: Annotated[Duration, Field(ge=0.001, le=10)] = 0.05
    """Longest time between two writes to the disk."""
    drain_every: Annotated[Duration, Field(ge=0.01, le=10)] = 0.2
    """Longest time until the store has what the journal has."""


# --- Billing, retries, media ---


class Billing(Section):
    """What is charged when things go wrong, and how much is held beforehand."""

    on_crash: Annotated[Literal["none", "produced"], words("none", "produced")] = "none"
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
    probe: Probe = "none"
    """How a provider whose route is open is asked whether it works again: none, models (its list of models) or request
    (one token of the route's model, at the operator's expense)."""
    probe_every: Annotated[Duration, Field(ge=0.1, le=3600)] = 5.0
    """Time between probes of an open route, drawn from a quarter less to a quarter more."""
    probe_closed_every: Annotated[Duration, Field(le=86_400)] = 0.0
    """Time between probes of a route that works; `failures` of them in a row that fail open it, unless it answers
    clients. 0: never."""
    probe_timeout: Annotated[Duration, Field(ge=0.05, le=60)] = 5.0
    """How long a probe may take, connection and answer."""


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


def _empty_is_absent(value: Any) -> Any:
    return None if value == {} else value


# --- Models, accounts, keys ---


class Limited(Section):
    """Limits over time; what is left out is not limited."""

    rpm: Limit | None = None
    """Requests a minute."""
    tpm: Limit | None = None
    """Tokens a minute, input and output."""
    max_streams: Limit | None = None
    """Requests at once."""


class Route(Limited):
    """One target of a model. Its limits are the provider's model's, whichever routes lead there: all of them give the
    same."""

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
    max_calls: Annotated[Whole, Field(ge=1, le=16)] = 1
    """Answers of one request (`n`, `candidateCount`) that are asked for one by one where the provider's format gives
    one answer a request; more are refused."""
    max_continuations: Annotated[Whole, Field(ge=0, le=64)] = 8
    """How often a provider that pauses its answer (`pause_turn` of Messages, `CONTINUATION` of Gemini) is asked to go
    on, for clients of other formats; 0: never. Each time is one call more of the same request."""
    price: PriceRow | None = None
    """What a customer pays, USD per million tokens, or free. Left out: the catalogue's row of the first
    route, with `billing.markup_percent`."""
    max_output_tokens: Annotated[Whole, Field(ge=1, le=10_000_000)] = 8192
    """Output that is held where the client gave no limit, tokens."""
    prompt_template: Annotated[Literal["plain", "none"], words("plain", "none")] = "plain"
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
    rpm: Limit | None = None
    """Requests a minute. Left out, like every limit below: no limit."""
    tpm: Limit | None = None
    """Tokens a minute, input and output."""
    max_streams: Limit | None = None
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
    on_limit: Annotated[Literal["stop", "finish"], words("stop", "finish")] = "stop"
    """What a running stream does at a spending limit: stop, or finish at the operator's expense."""
    may_override: Flag = False
    """Whether its requests may choose providers and name other models."""


# --- The whole file ---


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
