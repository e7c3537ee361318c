"""/metrics: the work of all processes, read from the database, and what this one refused."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update

from app.errors import Unavailable
from app.infra.db.tables.jobs import JobRow
from app.observability import repository
from tests.support.app.harness import AppHarness, open_app
from tests.support.backends import Backend


@pytest.fixture
def app(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppHarness]:
    """A service of its own, since its counts are compared."""
    with open_app(tmp_path_factory.mktemp("metrics"), backend) as opened:
        yield opened


def said(app: AppHarness) -> set[str]:
    """The lines of /metrics."""
    return set(app.http.get("/metrics").text.splitlines())


def test_jobs_are_counted_wherever_they_run(app: AppHarness) -> None:
    """A queued job, and one that ended a minute ago; not one that ended an hour ago."""
    now = datetime.now(UTC)
    for at, ago in enumerate((timedelta(minutes=1), timedelta(hours=1), None)):
        space = app.create_space(f"s{at}")
        made = app.http.post(f"/v1/spaces/{space}/jobs", json={"kind": "rebuild_buckets"})
        if ago is not None:
            ended = {"state": "failed", "finished_at": now - ago}
            with app.database.writing() as session:
                job = JobRow.id == made.json()["id"]
                session.execute(update(JobRow).where(job).values(ended))
    lines = said(app)
    assert 'modelkin_jobs{kind="rebuild_buckets",state="queued"} 1.0' in lines
    assert 'modelkin_jobs{kind="rebuild_buckets",state="failed"} 1.0' in lines


def test_refusals_are_counted_by_code(app: AppHarness) -> None:
    """Each problem that is answered counts once, and a good answer does not."""
    for _ in range(2):
        app.http.get("/v1/spaces/nowhere")
    app.http.get("/v1/spaces")
    assert 'modelkin_refusals_total{code="space_not_found"} 2.0' in said(app)


def test_metrics_are_answered_without_the_database(
    app: AppHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the database does not answer, the metrics of the process itself do."""

    def fail(*_: object) -> None:
        raise Unavailable("the database is away")

    monkeypatch.setattr(repository, "count_jobs", fail)
    lines = said(app)
    assert any(line.startswith("modelkin_info") for line in lines)
    assert not any(line.startswith("modelkin_jobs") for line in lines)
