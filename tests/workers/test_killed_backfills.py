"""Workers divide a backfill of fingerprints; one that dies loses nothing."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

from app.hubs.backfill import FingerprintBackfill
from app.hubs.records import FingerprintCounts
from app.hubs.service import SourceService
from app.settings import Settings
from tests.support.app.harness import KEY, open_app
from tests.support.backends import PostgresBackend
from tests.support.jobs.deployment import LEASE_S, TIMEOUT_S, Process
from tests.support.models.checkpoints import random_tensors, safetensors
from tests.support.servers.fake_huggingface import Handler, Hub
from tests.support.servers.postgres import Postgres
from tests.support.servers.waiting import wait_for

MODELS = 6


def test_kill_9_in_the_middle_of_a_backfill(hub: Hub, postgres: Postgres, tmp_path: Path) -> None:
    """Two others read all models: each file is sent once, but for the one whose worker died."""
    for number in range(MODELS):
        tensors = random_tensors(number, {"a.weight": (80, 70)})
        hub.push(f"org/m{number}", {"model.safetensors": safetensors(tensors)})
    sent, lock = Counter[str](), threading.Lock()
    held, ended = threading.Event(), threading.Event()

    def note(request: Handler) -> bool:
        with lock:
            sent[request.path.partition("?")[0]] += 1
            first = not held.is_set()
            held.set()
        if first:
            ended.wait(TIMEOUT_S)  # its worker is killed meanwhile
        return False

    with open_app(tmp_path, PostgresBackend(postgres)) as app:
        source = app.hubs.follow(hub.url, fingerprints=False, backfill_per_hour=None)
        for name in hub.repos:
            assert "succeeded" == app.hubs.sync_model(source, name).state
        changed = app.http.patch(f"/v1/sources/{source.id}", json={"fingerprints": True})
        assert 200 == changed.status_code
        assert MODELS == app.services[FingerprintBackfill].due()
        hub.on_cdn = note
        settings = app.services[Settings]

        def worker(name: str) -> Process:
            return Process(
                tmp_path / f"{name}.log",
                "workers",
                f"--database-url={settings.database_url}",
                f"--blob-url={settings.blob_url}",
                f"--job-lease-seconds={LEASE_S:g}",
                "--job-concurrency=4",
                "--egress-allow=127.0.0.1",
                MODELKIN_ENCRYPTION_KEYS=KEY,
            )

        def counts() -> FingerprintCounts:
            with app.database.reading() as session:
                found = app.services[SourceService].fingerprint_counts(session, [source])
            return found[source.id]

        first = worker("first")
        assert held.wait(TIMEOUT_S)
        others = [worker("second"), worker("third")]
        first.kill()
        wait_for(lambda: not counts().waiting)
        ended.set()
        assert [0, 0] == [each.stop() for each in others]
        assert FingerprintCounts(read=MODELS) == counts()
        assert {1: MODELS - 1, 2: 1} == Counter(sent.values())
