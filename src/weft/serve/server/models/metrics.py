"""`/metrics`: the tallies as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Gauge, Info, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from weft.serve.server.models.model import Model
from weft.serve.server.models.repository import Repository
from weft.serve.server.models.tally import Histogram, Tally
from weft.version import __version__

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LABELS = ("model", "version")
_HISTOGRAMS: tuple[tuple[str, str, Callable[[Tally], Histogram]], ...] = (
    ("weft_request_seconds", "From the request to its answer.", lambda tally: tally.latency),
    ("weft_queue_seconds", "Waiting for a replica and for company.", Tally.queued),
    ("weft_compute_seconds", "One run of the model.", lambda tally: tally.computing),
    ("weft_batch_rows", "Rows in one run.", Tally.sizes),
)


class Tallies(Collector):
    """The Prometheus metrics of all models, made from their tallies at each scrape."""

    def __init__(self, repository: Repository, in_flight: Callable[[], int]) -> None:
        self._repository = repository
        self._in_flight = in_flight

    def collect(self) -> Iterator[Metric]:
        models = self._repository.loaded()
        requests = CounterMetricFamily("weft_requests", "Requests answered.", labels=_LABELS)
        failures = CounterMetricFamily(
            "weft_failures", "Requests refused or failed.", labels=(*_LABELS, "status")
        )
        cancelled = CounterMetricFamily(
            "weft_cancelled", "Requests whose client left the queue.", labels=_LABELS
        )
        rows = CounterMetricFamily("weft_rows", "Rows computed.", labels=_LABELS)
        waiting = GaugeMetricFamily("weft_waiting", "Requests in the queue.", labels=_LABELS)
        tallies = self._repository.tallies()
        for name, version, tally in tallies:
            labels = (name, version)
            requests.add_metric(labels, tally.successes)
            cancelled.add_metric(labels, tally.cancelled)
            rows.add_metric(labels, tally.rows)
            for status, count in sorted(tally.failures.items()):
                failures.add_metric((*labels, str(status)), count)
        for model in models:
            waiting.add_metric((model.name, model.version), model.queue.waiting)
        yield from (requests, failures, cancelled, rows, waiting, self._loaded(models))
        for name, text, pick in _HISTOGRAMS:
            yield _histogram(name, text, tallies, pick)
        yield GaugeMetricFamily("weft_in_flight", "Requests at the door.", value=self._in_flight())

    def _loaded(self, models: list[Model]) -> Metric:
        found = GaugeMetricFamily(
            "weft_model_ready", "Models that can answer: 1; that cannot: 0.", labels=_LABELS
        )
        for model in models:
            found.add_metric((model.name, model.version), 1)
        for name in self._repository.missing():
            found.add_metric((name, ""), 0)
        return found


def exposition(collector: Collector, ready: bool) -> bytes:
    """Return all metrics as text: those of the models, of the process, and of the server."""
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    Gauge("weft_ready", "Whether the server and all its models are ready.", registry=registry).set(ready)
    Info("weft", "The server.", registry=registry).info({"version": __version__})
    return generate_latest(registry)


def _histogram(
    name: str, text: str, tallies: list[tuple[str, str, Tally]], pick: Callable[[Tally], Histogram]
) -> Metric:
    family = HistogramMetricFamily(name, text, labels=_LABELS)
    for model, version, tally in tallies:
        found = pick(tally)
        family.add_metric((model, version), found.buckets(), sum_value=found.total)
    return family
