"""Metrics for Prometheus at /metrics. They sum over all tenants, so a key needs a scope.

Labels hold routes, methods and status codes, never a name that a tenant chose.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Final, Literal

from fastapi import Response
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from app.fingerprints.finding.index import FindingIndex
from app.infra.db.database import Database
from app.infra.db.visibility import every_tenant
from app.infra.errors import (
    Forbidden,
    QuotaExceeded,
    RateLimited,
    StorageFull,
    Unauthorized,
    Unavailable,
)
from app.infra.http.routes import Routes
from app.infra.http.services import Service
from app.models.index.registry import IndexRegistry
from app.operations.observability import repository
from app.operations.observability.fingerprint_metrics import FindingSizes, of_fingerprints
from app.operations.observability.shared_values import SharedValues
from app.tenancy.auth.dependencies import AUTHENTICATED, MetricsContext
from modelkin._version import __version__
from modelkin.errors import InvalidParameter

__all__ = ["Metrics", "routes"]

routes = Routes(tags=["health"], dependencies=AUTHENTICATED)

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_RECENT = timedelta(minutes=5)
_WATCHED = (
    "internal_error",
    *(each.code for each in (StorageFull, Unavailable, Unauthorized, QuotaExceeded, RateLimited)),
)
"""Codes that alerts may watch: `increase()` does not see the first count of a new series."""
_MODES: Final[Mapping[str, Literal["livemax", "livemin"]]] = {
    "modelkin_index_spaces": "livemax",
    "modelkin_index_models": "livemax",
    "modelkin_index_bytes": "livemax",
    "modelkin_finding_index_fingerprints": "livemax",
    "modelkin_finding_index_segments": "livemax",
    "modelkin_finding_index_bytes": "livemax",
    "process_open_fds": "livemax",
    "process_max_fds": "livemin",
    "process_start_time_seconds": "livemin",
}
"""Metrics that do not add up over processes: each has all models, and limits hold for each."""
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Metrics:
    """The metrics of a service: the counts of this process, and of other processes.

    Args:
        indexes: the indexes of this process.
        finding: those of fingerprints.
        database: the database, with the work of all processes and workers; None leaves it out.
        shared: the values that the processes of one service share; None for one process.
    """

    def __init__(
        self,
        indexes: IndexRegistry,
        finding: FindingIndex,
        database: Database | None = None,
        shared: SharedValues | None = None,
    ) -> None:
        self._shown = own = CollectorRegistry()
        self._state: _SharedState | None = None
        if shared is None:
            _show_state(indexes, finding, own)
        else:
            shared.use()
            MultiProcessCollector(self._shown, str(shared.folder))  # type: ignore[no-untyped-call]
            own = CollectorRegistry()  # it shows the values of its files
            self._state = _SharedState(indexes, finding, own)
        if database is not None:
            self._shown.register(_Work(database, finding))
        self._count_in(own)
        self._counters: dict[tuple[str, str, int], Histogram] = {}

    def _count_in(self, own: CollectorRegistry) -> None:
        info, named = ["version", "process"], (__version__, str(os.getpid()))
        Gauge(
            "modelkin_info",
            "The version and process id",
            info,
            multiprocess_mode="livemax",
            registry=own,
        ).labels(*named).set(1)
        self.in_flight = Gauge(
            "modelkin_requests_in_flight",
            "Requests being answered",
            multiprocess_mode="livesum",
            registry=own,
        )
        self._seconds = Histogram(
            "modelkin_request_seconds",
            "Seconds from the first byte of a request to the last of its answer",
            ["method", "route", "status"],
            buckets=_SECONDS,
            registry=own,
        )
        self.refusals = Counter(
            "modelkin_refusals", "Problems answered, by code", ["code"], registry=own
        )
        for code in _WATCHED:
            self.refusals.labels(code)
        self.degraded = Counter(
            "modelkin_degraded_answers",
            "Answers by another method than the one that was to be used, or of a part",
            ["operation"],
            registry=own,
        )
        self.questions = Counter(
            "modelkin_finding_questions",
            "Questions to the index of fingerprints, by outcome",
            ["outcome"],
            registry=own,
        )

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answer; status 0 is a client that left."""
        known = method if method in _METHODS else "other"
        counter = self._counters.get((known, route, status))
        if counter is None:  # as many as there are routes and statuses
            counter = self._seconds.labels(known, route, str(status))
            self._counters[known, route, status] = counter
        counter.observe(seconds)

    async def refresh(self) -> None:
        """Show other processes the present state of this one."""
        if self._state is not None:
            self._state.refresh()

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        if self._state is not None:
            self._state.refresh()
        return generate_latest(self._shown)


def _show_state(indexes: IndexRegistry, finding: FindingIndex, registry: CollectorRegistry) -> None:
    ProcessCollector(registry=registry)
    registry.register(_Indexes(indexes))
    registry.register(FindingSizes(finding))


class _SharedState:
    """The metrics of a process's own state, copied to files that the other processes read.

    Args:
        indexes: the indexes of this process.
        finding: those of fingerprints.
        own: the registry of the copies.
    """

    def __init__(
        self, indexes: IndexRegistry, finding: FindingIndex, own: CollectorRegistry
    ) -> None:
        self._source = CollectorRegistry()
        _show_state(indexes, finding, self._source)
        self._copies: dict[str, Gauge | Counter] = {}
        self._counted: dict[str, float] = {}
        self._lock = Lock()
        for family in self._source.collect():
            name, text = family.name, family.documentation
            if family.type == "counter":
                self._copies[name] = Counter(name, text, registry=own)
            else:
                self._copies[name] = Gauge(
                    name, text, multiprocess_mode=_MODES.get(name, "livesum"), registry=own
                )

    def refresh(self) -> None:
        """Copy the present state."""
        with self._lock:
            for family in self._source.collect():
                copy, value = self._copies[family.name], family.samples[0].value
                if isinstance(copy, Gauge):
                    copy.set(value)
                else:
                    copy.inc(value - self._counted.get(family.name, 0.0))
                    self._counted[family.name] = value


class _Work(Collector):
    """The work of all processes and workers, as the database has it at the time of the scrape.

    Args:
        database: the database; while it does not answer, these metrics are left out.
        finding: the indexes of fingerprints of this process, which follow it.
    """

    def __init__(self, database: Database, finding: FindingIndex) -> None:
        self._database = database
        self._finding = finding

    def collect(self) -> Iterator[GaugeMetricFamily]:
        since = datetime.now(UTC) - _RECENT
        try:
            with every_tenant(), self._database.reading() as session:
                jobs = repository.count_jobs(session, since)
                deliveries = repository.count_deliveries(session, since)
                events = repository.count_hub_events(session, since)
                feeds = repository.feeds_of_fingerprints(session)
                due = repository.count_due_anatomies(session)
        except Unavailable:
            return
        text = "Jobs that wait or run, and those that finished in the last 5 minutes"
        yield _family("modelkin_jobs", text, ["kind", "state"], jobs)
        text = "Webhook deliveries that are pending, and those finished in the last 5 minutes"
        named: dict[tuple[str, ...], int]
        named = {(state,): count for state, count in deliveries.items()}
        yield _family("modelkin_webhook_deliveries", text, ["state"], named)
        text = "Hub events of the last 5 minutes"
        named = {(outcome,): count for outcome, count in events.items()}
        yield _family("modelkin_hub_events", text, ["outcome"], named)
        yield from of_fingerprints(feeds, due, self._finding)

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Nothing is read before the first scrape."""
        return iter(())


def _family(
    name: str, text: str, labels: Sequence[str], counts: Mapping[tuple[str, ...], int]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, count in sorted(counts.items()):
        family.add_metric(values, count)
    return family


class _Indexes(Collector):
    """The size of the in-process indexes at the time of the scrape."""

    def __init__(self, indexes: IndexRegistry) -> None:
        self._indexes = indexes

    def collect(self) -> Iterator[GaugeMetricFamily]:
        spaces, models, nbytes = self._indexes.totals()
        yield GaugeMetricFamily("modelkin_index_spaces", "Spaces in the index", spaces)
        yield GaugeMetricFamily("modelkin_index_models", "Signatures in the index", models)
        yield GaugeMetricFamily("modelkin_index_bytes", "Memory of the index", nbytes)


@routes.get(
    "/metrics",
    operation_id="metrics",
    summary="Read the metrics for Prometheus",
    refuses=(Unauthorized, Forbidden, RateLimited, InvalidParameter, Unavailable),
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def metrics(_: MetricsContext, metrics: Service[Metrics]) -> Response:
    """The metrics in Prometheus' text format; a key needs the scope `metrics`."""
    return Response(metrics.text(), media_type=CONTENT_TYPE_LATEST)
