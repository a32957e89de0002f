"""What a worker serves by: its settings, put once into classes that are compiled; see `routing.catalog`.

What requests hardly look at stays the Struct it came as.
"""

from sluicegate.messages import TranslationPolicy
from sluicegate.routing.catalog import Catalogue, StreamClocks
from sluicegate.routing.catalog_shapes import Limits, StreamSwitches
from sluicegate.routing.health import HealthRules
from sluicegate.server import settings_shapes as rows


class ServerSettings:
    """Limits and clocks of the client side; bytes and seconds. Each is told at the row's."""

    def __init__(self, row: rows.ServerSettings) -> None:
        self.workers: int = row.workers
        self.tls: rows.TlsServer | None = row.tls
        self.max_body_bytes: int = row.max_body_bytes
        self.max_upload_bytes: int = row.max_upload_bytes
        self.max_inflight_bytes: int = row.max_inflight_bytes
        self.keepalive_after_s: float = row.keepalive_after_s
        self.keepalive_every_s: float = row.keepalive_every_s
        self.request_timeout_s: float = row.request_timeout_s
        self.write_timeout_s: float = row.write_timeout_s
        self.idle_connection_s: float = row.idle_connection_s
        self.drain_timeout_s: float = row.drain_timeout_s
        self.max_streams: int = row.max_streams
        self.max_memory_bytes: int | None = row.max_memory_bytes
        self.max_lag_s: float = row.max_lag_s
        self.queue_for_s: float = row.queue_for_s
        self.cors_origins: tuple[str, ...] = row.cors_origins
        self.expose_provider: bool = row.expose_provider


class WorkerSettings:
    """All of it; made again when the configuration is reloaded."""

    def __init__(self, row: rows.WorkerSettings) -> None:
        self.server = ServerSettings(row.server)
        self.switches: StreamSwitches = row.switches
        self.clocks = StreamClocks(row.clocks)
        self.billing: rows.BillingSettings = row.billing
        self.retry: rows.RetrySettings = row.retry
        self.health: HealthRules = row.health
        self.journal: rows.JournalSettings = row.journal
        self.media: rows.MediaSettings = row.media
        self.fetches_media: bool = row.media.fetch
        self.responses_store: rows.ResponsesStoreSettings = row.responses_store
        self.translation: TranslationPolicy = row.translation
        self.catalogue = Catalogue(row.catalogue)
        self.key_secret: bytes = row.key_secret
        self.account_limits: dict[str, Limits] = row.account_limits
