"""/metrics: the work of all processes, read from the database, and what this one refused."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from sqlalchemy import update

from app.infra.db.tables.hubs import HubEventRow
from app.infra.db.tables.jobs import JobRow
from app.infra.errors import Unavailable
from app.operations.observability import repository
from tests.support.app.fingerprints import StoredFingerprints, made_fingerprint
from tests.support.app.harness import AppHarness, open_app
from tests.support.backends import Backend
from tests.support.fixtures import on_one_database
from tests.support.hub_payloads import hf_payload
from tests.support.jobs.deployment import Process
from tests.support.models.checkpoints import random_tensors, safetensors
from tests.support.servers.fake_huggingface import Hub
from tests.support.servers.server_process import Server
from tests.support.servers.webhook_receiver import receiving

pytestmark = on_one_database


@pytest.fixture
def app(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppHarness]:
    """A service of its own, since its counts are compared."""
    with open_app(tmp_path_factory.mktemp("metrics"), backend) as opened:
        yield opened


def said(app: AppHarness) -> set[str]:
    """The lines of /metrics."""
    return set(app.http.get("/metrics").text.splitlines())


@pytest.mark.slow
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


@pytest.mark.slow
def test_refusals_are_counted_by_code(app: AppHarness) -> None:
    """Each problem that is answered counts once, and a good answer does not."""
    for _ in range(2):
        app.http.get("/v1/spaces/nowhere")
    app.http.get("/v1/spaces")
    assert 'modelkin_refusals_total{code="space_not_found"} 2.0' in said(app)


@pytest.mark.slow
def test_codes_that_alerts_watch_begin_at_zero(app: AppHarness) -> None:
    """Each that alerts.yaml names, and that of quotas, has its series before the first refusal."""
    text = (Path(__file__).parents[4] / "docs/recipes/alerts.yaml").read_text()
    watched = set(re.findall(r'refusals_total\{code="(\w+)"', text))
    assert "internal_error" in watched
    shown = said(app)
    for code in {*watched, "quota_exceeded"}:
        assert f'modelkin_refusals_total{{code="{code}"}} 0.0' in shown


@pytest.mark.slow
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


def counts(text: str, name: str) -> dict[str, float]:
    """The values of one metric in a scrape, by what is between its braces."""
    found = re.findall(rf"^{name}{{(.*?)}} (\S+)$", text, re.MULTILINE)
    return {labels: float(value) for labels, value in found}


@pytest.mark.slow
def test_hub_events_are_counted_by_outcome(app: AppHarness) -> None:
    """Those that start a sync, those that do not, and those of a hub without an address.

    One that comes twice counts once, and one of an hour ago no more. An event with a wrong secret
    is a refusal, and no event.
    """
    source = app.hubs.create(filters={"owners": ["acme"]})
    recorder = app.hubs.create(url=None)
    for model in ("acme/a", "acme/b", "other/c"):
        app.hubs.push(source, model)
    for _ in range(2):
        app.hubs.send(source, hf_payload("acme/d"), "the-same-id")
    app.hubs.push(recorder, "acme/a")
    forged = app.http.post(source["hook"], json=hf_payload("acme/e"), headers={})
    assert 401 == forged.status_code
    scraped = app.http.get("/metrics").text
    expected = {'outcome="enqueued"': 3.0, 'outcome="ignored"': 1.0, 'outcome="recorded"': 1.0}
    assert expected == counts(scraped, "modelkin_hub_events")
    refused = counts(scraped, "modelkin_refusals_total")
    assert {'code="unauthorized"': 1.0} == {code: n for code, n in refused.items() if n}
    with app.database.writing() as session:
        ended = {"received_at": datetime.now(UTC) - timedelta(hours=1)}
        session.execute(update(HubEventRow).values(ended))
    assert {} == counts(app.http.get("/metrics").text, "modelkin_hub_events")


@pytest.mark.slow
def test_deliveries_are_counted_by_state(app: AppHarness) -> None:
    """Those that arrived, those that failed for good, and those that wait, however old."""
    with receiving() as receiver:
        for path in ("/ok", "/ok", "/status/410", "/status/500"):
            made = app.webhooks.subscribe(f"{receiver.url}{path}")
            app.http.post(f"/v1/subscriptions/{made['id']}/ping").raise_for_status()
        app.worker.run_all()
    expected = {'state="succeeded"': 2.0, 'state="failed"': 1.0, 'state="pending"': 1.0}
    assert expected == counts(app.http.get("/metrics").text, "modelkin_webhook_deliveries")
    app.worker.age_events()
    waiting = {'state="pending"': 1.0}
    assert waiting == counts(app.http.get("/metrics").text, "modelkin_webhook_deliveries")


@pytest.mark.slow
def test_a_service_counts_the_work_of_workers(backend: Backend, hub: Hub, tmp_path: Path) -> None:
    """Deliveries, polls and syncs that another process carried out are in its metrics."""
    shared = "--egress-allow=127.0.0.1", f"--encryption-keys={'x' * 32}"
    server = Server(tmp_path, "--embedded-worker=off", *shared, backend=backend).start()
    stores = f"--database-url={server.database_url}", f"--blob-url=file://{server.blobs}"
    worker = Process(tmp_path / "worker.log", "workers", *stores, *shared)
    hub.push("acme/a", {"model.safetensors": safetensors(random_tensors(1))})
    with receiving() as receiver, httpx.Client(base_url=server.url, timeout=30) as http:
        source = {"kind": "huggingface", "space": "kin", "url": hub.url, "secret": "s"}
        owners = {"filters": {"owners": ["acme"]}, "poll_seconds": None}
        made = http.post("/v1/sources", json={**source, **owners})
        http.post(f"/v1/sources/{made.json()['id']}/poll").raise_for_status()
        body = {"url": f"{receiver.url}/ok", "events": ["support.stored"]}
        subscribed = http.post("/v1/subscriptions", json=body).json()
        http.post(f"/v1/subscriptions/{subscribed['id']}/ping").raise_for_status()
        done = {f'kind="{kind}",state="succeeded"': 1.0 for kind in ("poll", "ingest")}
        end = time.monotonic() + 120
        while True:
            scraped = http.get("/metrics").text
            sent = counts(scraped, "modelkin_webhook_deliveries")
            jobs = counts(scraped, "modelkin_jobs")
            if done.items() <= jobs.items() and sent == {'state="succeeded"': 2.0}:
                break
            assert time.monotonic() < end, (sent, jobs, worker.log.read_text())
            time.sleep(0.2)
    assert (0, 0) == (worker.stop(), server.stop())


def value(app: AppHarness, metric: str) -> float:
    """The value of a line of /metrics."""
    [line] = [line for line in said(app) if line.startswith(f"{metric} ")]
    return float(line.rpartition(" ")[2])


def test_fingerprints_and_their_index_are_measured(app: AppHarness) -> None:
    """What is stored and due is that of the database; the index follows at its next question."""
    stored = StoredFingerprints(app.services, app.tenant)
    sizes = [stored.put(f"m{n}", made_fingerprint(n)).record.size for n in range(3)]
    assert 3 == value(app, "modelkin_fingerprints") == value(app, "modelkin_anatomies_due")
    assert sum(sizes) == value(app, "modelkin_fingerprint_bytes")
    assert 0 == value(app, "modelkin_finding_index_fingerprints")
    app.http.get("/v1/fingerprints/m0/relatives").raise_for_status()
    assert 3 == value(app, "modelkin_finding_index_fingerprints")
    assert 1 == value(app, 'modelkin_finding_questions_total{outcome="nothing"}')
    assert 0 < value(app, "modelkin_finding_index_segments")
    assert 0 < value(app, "modelkin_finding_index_bytes")
    stored.delete("m1")
    assert 1 == value(app, "modelkin_finding_index_changes_behind")
    app.http.get("/v1/fingerprints/m0/relatives").raise_for_status()
    assert 0 == value(app, "modelkin_finding_index_changes_behind")
    assert 2 == value(app, "modelkin_finding_index_fingerprints")
