"""Traces for OpenTelemetry: which spans there are, how they are nested, and what they leave out."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace import export as sdk_export
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from pydantic import ValidationError

from app.jobs.service import JobService
from app.operations.observability.tracing import exporting
from app.settings import Settings
from modelkin.errors import MissingExtra
from tests.support.app.harness import AppHarness, open_app
from tests.support.backends import SQLITE, Backend
from tests.support.servers.redis_server import RedisProcess
from tests.support.servers.waiting import wait_for

COLLECTOR = "http://127.0.0.1:9"
TRACE = "0af7651916cd43dd8448eb211c80319c"
SECRET = "a-name-of-a-model"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """What would be sent to a collector."""
    memory = InMemorySpanExporter()
    monkeypatch.setattr(sdk_export, "BatchSpanProcessor", lambda _: SimpleSpanProcessor(memory))
    return memory


@pytest.fixture
def app(backend: Backend, tmp_path: Path, spans: InMemorySpanExporter) -> Iterator[AppHarness]:
    """A service that sends its traces to a collector."""
    with open_app(tmp_path, backend, otlp_endpoint=COLLECTOR) as opened:
        yield opened


def of_kind(spans: InMemorySpanExporter, kind: SpanKind) -> list[ReadableSpan]:
    """The spans that have ended, of one kind, and none from here on."""
    found = [span for span in spans.get_finished_spans() if span.kind == kind]
    spans.clear()
    return found


@pytest.mark.slow
def test_a_request_and_its_queries_are_spans(app: AppHarness, spans: InMemorySpanExporter) -> None:
    """A request is named by its route and is part of its caller's trace; queries are its children,
    and have no values. Probes have none.
    """
    space = app.create_space("s")
    spans.clear()
    caller = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
    app.http.get(f"/v1/spaces/{space}/models/{SECRET}", headers=caller)
    app.http.get("/livez")
    app.http.get("/metrics")
    ended = spans.get_finished_spans()
    (request,) = of_kind(spans, SpanKind.SERVER)
    assert "GET /v1/spaces/{space}/models/{model}" == request.name
    assert request.attributes is not None
    assert 404 == request.attributes["http.response.status_code"]
    assert "/v1/spaces/{space}/models/{model}" == request.attributes["http.route"]
    assert request.context.trace_id == int(TRACE, 16)
    below = [span for span in ended if span.parent and span.context != request.context]
    assert {request.context.trace_id} == {span.context.trace_id for span in below}
    assert any("SELECT" in str(dict(span.attributes or {})) for span in below)
    assert not any(SECRET in str(dict(span.attributes or {})) for span in below)


@pytest.mark.slow
def test_an_attempt_at_a_job_is_a_span(app: AppHarness, spans: InMemorySpanExporter) -> None:
    """It has the job's kind and id, and the job's queries below it."""
    space = app.create_space("s")
    made = app.http.post(f"/v1/spaces/{space}/jobs", json={"kind": "rebuild_buckets"}).json()
    spans.clear()
    assert ["rebuild_buckets"] == app.worker.run_all()
    ended = spans.get_finished_spans()
    (job,) = [span for span in ended if span.name.startswith("job ")]
    assert job.attributes is not None
    assert ("job rebuild_buckets", made["id"]) == (job.name, job.attributes["modelkin.job.id"])
    assert [span for span in ended if span.parent == job.context]


def test_calls_of_redis_are_spans(
    tmp_path: Path, single: RedisProcess, spans: InMemorySpanExporter
) -> None:
    """A counter of rate limits is one, below the request that it counts."""
    with open_app(
        tmp_path, SQLITE, otlp_endpoint=COLLECTOR, redis_url=single.url, rate_limit=1000
    ) as app:
        spans.clear()
        app.http.get("/v1/spaces")
        ended = spans.get_finished_spans()
    assert [s for s in ended if s.attributes and s.attributes.get("db.system") == "redis"]


@pytest.mark.slow
def test_a_service_without_a_collector_is_as_before(
    tmp_path: Path, spans: InMemorySpanExporter
) -> None:
    """It makes no span, also where one with a collector ran before in this process."""
    with open_app(tmp_path, SQLITE, otlp_endpoint=COLLECTOR):
        pass
    spans.clear()
    (tmp_path / "other").mkdir()
    with open_app(tmp_path / "other", SQLITE) as app:
        app.http.get("/v1/spaces")
    assert () == spans.get_finished_spans()


@pytest.mark.slow
def test_a_collector_that_never_answers_holds_up_no_end(caplog: pytest.LogCaptureFixture) -> None:
    """Batches of spans are left, which would wait for it one after another."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        collector = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with exporting(Settings(otlp_endpoint=collector)) as tracing:
            assert tracing is not None
            tracer = tracing.provider.get_tracer("test")
            for _ in range(2500):
                tracer.start_span("s").end()
            began = time.monotonic()
        assert time.monotonic() - began < 6
        assert "the last traces are lost" in caplog.text
        wait_for(lambda: "Failed to export span" in caplog.text)
        assert time.monotonic() - began < 9  # a request itself waits for ten by default


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collector without the packages for it ends the start with what to install."""
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace.export", None)
    with (
        pytest.raises(MissingExtra, match=r"pip install 'modelkin-service\[otel\]'"),
        exporting(Settings(otlp_endpoint=COLLECTOR)),
    ):
        pass


def test_a_collector_is_a_url() -> None:
    """A host alone is refused, with what to write."""
    with pytest.raises(ValidationError, match="use http://HOST:4318"):
        Settings(otlp_endpoint="collector:4318")


def test_a_handler_is_wrapped_once() -> None:
    """With its kind; what it returns stays."""
    jobs = JobService()
    jobs.register("k", lambda job, progress: {"done": 1})
    jobs.wrap_handlers(lambda kind, handler: lambda job, progress: {kind: handler(job, progress)})
    assert {"k": {"done": 1}} == jobs.handler("k")(None, None)  # type: ignore[arg-type]
