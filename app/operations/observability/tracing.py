"""Traces for OpenTelemetry: a span for each request, query, call of Redis and attempt at a job.

Tracing is off unless a collector is set; while it is off, its packages are not imported. FastAPI
makes the spans of requests, and the instrumentations of OpenTelemetry make the spans of queries.
Nothing is sent on to hubs or receivers of webhooks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from app.container import Container
from app.infra.db.database import Database
from app.infra.extras import DISTRIBUTION
from app.jobs.records import JobRecord
from app.jobs.service import Handler, JobService, Progress
from app.settings import Settings
from modelkin._version import __version__
from modelkin.errors import MissingExtra

if TYPE_CHECKING:
    from opentelemetry.instrumentation.instrumentor import (  # type: ignore[attr-defined]
        BaseInstrumentor,
    )
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

__all__ = ["SpanRequestIds", "Tracing", "exporting"]

log = logging.getLogger(__name__)

_EXPORT_TIMEOUT_S: Final = 2.0
"""Time for a collector to take some spans."""
_CLOSE_TIMEOUT_S: Final = 3.0
"""Seconds for sending the remaining spans at the end; the service is not held up for longer."""

ASGIApp = Callable[[Any, Any, Any], Awaitable[None]]


@contextmanager
def exporting(settings: Settings) -> Iterator[Tracing | None]:
    """Traces for the collector of the settings, sent until the block ends; None without one.

    Raises:
        MissingExtra: a collector is set, and the packages for it are not installed.
    """
    if settings.otlp_endpoint is None:
        yield None
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise MissingExtra("OpenTelemetry", "otel", of=DISTRIBUTION) from None
    exporter = OTLPSpanExporter(
        endpoint=f"{settings.otlp_endpoint.rstrip('/')}/v1/traces", timeout=_EXPORT_TIMEOUT_S
    )
    tracing = Tracing(BatchSpanProcessor(exporter))
    try:
        yield tracing
    finally:
        tracing.close()


class Tracing:
    """The spans of one process.

    Args:
        processor: takes each span when it has ended.
    """

    def __init__(self, processor: SpanProcessor) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider

        named = {"service.name": "modelkin", "service.version": __version__}
        # Variables of OpenTelemetry, such as OTEL_RESOURCE_ATTRIBUTES, add to these.
        self.provider: TracerProvider = TracerProvider(resource=Resource.create(named))
        self.provider.add_span_processor(processor)
        self._instrumentors: list[BaseInstrumentor] = []
        self._tracer = self.provider.get_tracer("modelkin", __version__)

    def trace(self, services: Container) -> None:
        """Make spans of the work of the services."""
        self.trace_database(services[Database])
        if services[Settings].redis_url is not None:
            self.trace_redis()
        self.trace_jobs(services[JobService])

    def trace_database(self, database: Database) -> None:
        """Have each query of the database be a span, with its text and none of its values."""
        from opentelemetry.instrumentation.sqlalchemy import SQLAlchemyInstrumentor

        # The instrumentation works with SQLAlchemy 2.1 by the tests, and declares none above 2.0.
        self._instrument(SQLAlchemyInstrumentor(), engine=database.engine, skip_dep_check=True)

    def trace_redis(self) -> None:
        """Have each call of Redis be a span, with its command and none of its values."""
        from opentelemetry.instrumentation.redis import RedisInstrumentor

        self._instrument(RedisInstrumentor())

    def trace_jobs(self, jobs: JobService) -> None:
        """Have each attempt at a job be a span."""

        def trace_handler(kind: str, handler: Handler) -> Handler:
            def handle(job: JobRecord, progress: Progress) -> Any:
                known: dict[str, str | int] = {
                    "modelkin.job.id": job.id,
                    "modelkin.job.attempt": job.attempts,
                }
                with self._tracer.start_as_current_span(f"job {kind}", attributes=known):
                    return handler(job, progress)

            return handle

        jobs.wrap_handlers(trace_handler)

    def close(self) -> None:
        """Send the remaining spans, and end; a collector that is slow or away misses them."""
        for each in self._instrumentors:
            each.uninstrument()
        closing = threading.Thread(target=self.provider.shutdown, name="traces", daemon=True)
        closing.start()
        closing.join(_CLOSE_TIMEOUT_S)
        if closing.is_alive():
            log.warning(
                "the last traces are lost: the collector of MODELKIN_OTLP_ENDPOINT has not taken "
                "them within %g s",
                _CLOSE_TIMEOUT_S,
            )

    def _instrument(self, library: BaseInstrumentor, **how: object) -> None:
        library.instrument(tracer_provider=self.provider, **how)
        self._instrumentors.append(library)


class SpanRequestIds:
    """A middleware that gives the span of a request its id, by which logs and problems name it.

    FastAPI names the span by the route.

    Args:
        app: sets the id in the scope of its requests.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        from opentelemetry.trace import get_current_span

        span = get_current_span()

        async def send_named(message: Any) -> None:
            if message["type"] == "http.response.start":
                span.set_attribute("modelkin.request_id", scope.get("request_id", ""))
            await send(message)

        await self._app(scope, receive, send_named)
