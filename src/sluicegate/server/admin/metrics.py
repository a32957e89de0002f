"""The counts of all workers as the text that Prometheus reads.

Source: prometheus.io, "Exposition formats" (text format, and OpenMetrics where the client asks for it).
"""

from collections.abc import Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector, CollectorRegistry

from sluicegate.server.tally import Snapshot
from sluicegate.server.telemetry import METRICS, Metric

PREFIX = "sluicegate_"


class _Collector(Collector):
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Family]:
        for metric in METRICS:
            yield _family(metric, self._snapshot.get(metric.name, []))


def _family(metric: Metric, samples: list[Any]) -> Family:
    name = PREFIX + metric.name
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(name, metric.help, labels=metric.labels)
        bounds = [*(str(bound) for bound in metric.buckets), "+Inf"]
        for labels, value in samples:
            histogram.add_metric(labels, _cumulative(bounds, value[:-1]), value[-1])
        return histogram
    family: CounterMetricFamily | GaugeMetricFamily
    if metric.kind == "counter":
        family = CounterMetricFamily(name.removesuffix("_total"), metric.help, labels=metric.labels)
    else:
        family = GaugeMetricFamily(name, metric.help, labels=metric.labels)
    if not samples and not metric.labels:
        samples = [[[], 0]]
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def _cumulative(bounds: list[str], counts: list[float]) -> list[tuple[str, float]]:
    buckets = []
    so_far = 0.0
    for bound, count in zip(bounds, counts, strict=True):
        so_far += count
        buckets.append((bound, so_far))
    return buckets


def metrics_text(snapshot: Snapshot, accept: str) -> tuple[bytes, str]:
    """Return the text and its content type, in the form that the `accept` header asks for."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(snapshot))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type
