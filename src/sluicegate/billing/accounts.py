"""Keys as a worker serves them: put once into a class that is compiled, see `routing.catalog`."""

from datetime import datetime

from sluicegate.billing import account_shapes as rows
from sluicegate.billing.spending_limits import limits_of
from sluicegate.messages import TranslationPolicy
from sluicegate.routing.catalog_shapes import StreamSwitches

_NONE: dict[str, int] = {}


class KeyRecord:
    """A gateway key, without its secret; each fact is told at the row's."""

    def __init__(self, row: rows.KeyRecord) -> None:
        self.id: str = row.id
        self.name: str = row.name
        self.hash: bytes = row.hash
        self.account_id: str = row.account_id
        self.unlimited: bool = row.unlimited
        self.models: tuple[str, ...] = row.models
        self.rpm: int | None = row.rpm
        self.tpm: int | None = row.tpm
        self.max_streams: int | None = row.max_streams
        self.spending: dict[str, int] = limits_of(row) or _NONE
        """What it may spend, in nano-USD by window; who leases it counts."""
        self.expires_at: datetime | None = row.expires_at
        self.on_limit: str = row.on_limit
        self.may_override: bool = row.may_override
        self.translation: TranslationPolicy | None = row.translation
        self.switches: StreamSwitches = row.switches
        self.revoked: bool = row.revoked
