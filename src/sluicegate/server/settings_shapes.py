"""What a worker needs to know, as plain data: made from the configuration, sent over the control channel."""

import msgspec

from sluicegate.messages import TranslationPolicy
from sluicegate.routing.catalog_shapes import Catalogue, Limits, StreamClocks, StreamSwitches
from sluicegate.routing.health import HealthRules
from sluicegate.routing.probing import ProbeRules


class TlsServer(msgspec.Struct, frozen=True, kw_only=True):
    """Certificate and key of the listening side."""

    cert_file: str
    key_file: str


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits and clocks of the client side; bytes and seconds."""

    host: str = "127.0.0.1"
    port: int = 4000
    workers: int = 1
    tls: TlsServer | None = None
    max_body_bytes: int = 33_554_432
    max_upload_bytes: int = 536_870_912
    max_inflight_bytes: int = 268_435_456
    keepalive_after_s: float = 15.0
    keepalive_every_s: float = 15.0
    request_timeout_s: float = 30.0
    write_timeout_s: float = 60.0
    idle_connection_s: float = 75.0
    drain_timeout_s: float = 300.0
    max_streams: int = 0
    """0: as many as descriptors allow."""
    max_memory_bytes: int | None = None
    """Of one worker; None: its share of the machine; 0: no limit."""
    max_lag_s: float = 1.0
    """0: no limit."""
    queue_for_s: float = 0.0
    cors_origins: tuple[str, ...] = ()
    expose_provider: bool = True


class BillingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How cut streams and crashes are billed."""

    on_crash: str = "none"
    """none | produced"""
    drain_cap_s: float = 60.0
    reserve_output_tokens: int = 1024
    shortfall_limit_nano: int = 1_000_000_000


class RetrySettings(msgspec.Struct, frozen=True, kw_only=True):
    """How often we try again."""

    max_attempts: int = 3
    after_send: int = 1
    budget_percent: int = 20


class MediaSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Whether and how media that requests name by address are fetched."""

    fetch: bool = False
    max_bytes: int = 20_971_520
    """All of one request."""
    timeout_s: float = 10.0
    """Of each."""
    allow_hosts: tuple[str, ...] = ()
    """Hosts, with or without a port, that may be private ones and need no TLS."""


class ResponsesStoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the gate keeps answers for Responses clients, where their provider does not; seconds and bytes."""

    enabled: bool = False
    ttl_s: float = 86_400.0
    max_bytes: int = 1_073_741_824


class JobSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How work that goes on at providers is followed; seconds."""

    poll_every_s: float = 15.0
    give_up_after_s: float = 172_800.0


class JournalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where settlements are written first, and how safely."""

    dir: str
    sync: str = "process"
    fsync_every_s: float = 0.05
    drain_every_s: float = 0.2


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """All of it; rebuilt and sent again when the configuration is reloaded."""

    server: ServerSettings
    switches: StreamSwitches
    clocks: StreamClocks
    billing: BillingSettings
    retry: RetrySettings
    health: HealthRules = HealthRules()
    probes: ProbeRules = ProbeRules()
    journal: JournalSettings
    media: MediaSettings = MediaSettings()
    responses_store: ResponsesStoreSettings = ResponsesStoreSettings()
    jobs: JobSettings = JobSettings()
    translation: TranslationPolicy
    catalogue: Catalogue
    key_secret: bytes
    """Key of the keyed hash under which gateway keys are stored."""
    account_limits: dict[str, Limits] = {}
    """By the account's id, of those that have any."""

    def __repr__(self) -> str:
        return f"WorkerSettings(server={self.server!r}, …)"
