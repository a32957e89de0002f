"""What the requests of a worker share: its settings as a plan, its pool, its limits, its books."""

from typing import Protocol

from sluicegate.billing.accounts import KeyRecord
from sluicegate.billing.ledger import UsageRow
from sluicegate.billing.meter import InputRatios
from sluicegate.billing.output_ratios import OutputRatios
from sluicegate.billing.profiles import Switches, decide
from sluicegate.errors import SluicegateError
from sluicegate.routing.catalog import Deployment, Model, Provider, StreamClocks
from sluicegate.routing.retry import Rules
from sluicegate.server.deadlines import Deadlines
from sluicegate.server.deployments import Deployments
from sluicegate.server.limit_queue import LimitQueue
from sluicegate.server.limiting import LimitClerk
from sluicegate.server.media_fetch import MediaFetcher
from sluicegate.server.settings import WorkerSettings
from sluicegate.server.tab import Tab, Till
from sluicegate.server.tally import Tally
from sluicegate.server.targets import Targets
from sluicegate.server.thoughts import ThoughtMemory
from sluicegate.server.upstream_pool import UpstreamPool
from sluicegate.wire.sealed_id import IdSeal


class Plan:
    """What one set of settings means to requests; a reload makes a new one, and running requests keep theirs."""

    def __init__(self, settings: WorkerSettings) -> None:
        self.settings = settings
        self.targets = Targets(settings.catalogue.providers)
        self.media = MediaFetcher(settings.media)
        self.retry = Rules(settings.retry.max_attempts, settings.retry.after_send)
        self.seal = IdSeal(settings.key_secret, settings.catalogue.providers)
        self._switches: dict[tuple[str, str, str], tuple[KeyRecord, Switches]] = {}

    def switches(self, key: KeyRecord, model: Model, provider: Provider) -> Switches:
        """Return the decided switches of a key at a model of a provider."""
        place = (key.id, model.id, provider.name)
        known = self._switches.get(place)
        if known is not None and known[0] is key:
            return known[1]
        switches = decide((key.switches, model.switches, provider.switches, self.settings.switches))
        if len(self._switches) > Targets.MAX:
            self._switches.clear()
        self._switches[place] = (key, switches)
        return switches

    def clocks(self, model: Model, deployment: Deployment | None = None) -> StreamClocks:
        """Return the clocks of a model, or of one deployment of it."""
        if deployment is not None and deployment.clocks is not None:
            return deployment.clocks
        return model.clocks or self.settings.clocks


class Running(Protocol):
    """A request that is being served, as those see it who only look on, or stop it."""

    request_id: str

    @property
    def key_id(self) -> str:
        """Of the key that asks."""
        ...

    @property
    def tab(self) -> Tab | None:
        """What it may cost; None while it is not admitted."""
        ...

    @property
    def streaming(self) -> bool:
        """Whether a byte of a streamed answer is out."""
        ...

    def row_so_far(self) -> UsageRow | None:
        """Return its row as it would be now."""
        ...

    def stop(self, error: SluicegateError) -> None:
        """End it, with what the client is told."""
        ...


class Bench:
    """What the requests of a worker share."""

    def __init__(
        self, settings: WorkerSettings, till: Till, deadlines: Deadlines, pool: UpstreamPool, number: int
    ) -> None:
        self.plan = Plan(settings)
        self.till = till
        self.deadlines = deadlines
        self.pool = pool
        self.number = number
        self.tally = Tally()
        self.served = self.tally.served
        self.deployments = Deployments(deadlines, self.tally, till.link)
        self.deployments.apply(settings)
        self.ratios = InputRatios()
        self.output_ratios = OutputRatios()
        self.thoughts = ThoughtMemory()
        self.limits = LimitClerk(till.link, deadlines, settings.account_limits)
        self.queue = LimitQueue(self.limits)
        self.running: set[Running] = set()
        self.other_tab: type[Tab] | None = None
        """How what a request costs is kept in place of `Tab`: for `bench/unbilled.py` alone."""

    def running_row(self, key_id: str, request_id: str) -> UsageRow | None:
        """Return the row of a key's running request as it would be now; None where none of that id is served here."""
        for request in self.running:
            if request.request_id == request_id and request.key_id == key_id:
                return request.row_so_far()
        return None
