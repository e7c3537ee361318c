"""Faults in the log: one line each, once a second for one cause, and nothing for clients."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from app.hubs.ingestion.files.downloads import DownloadDir
from app.infra.errors import QuotaExceeded, StorageFull, TooMuch, Unavailable
from app.infra.fault_log import FaultLog
from app.infra.http import problems
from app.infra.storage.redis import RedisServer

REASON = "connection to server at 10.0.0.7, port 5432 failed:\nno user 'kin' in /etc/pg"


def test_a_cause_is_logged_once_a_second(caplog: pytest.LogCaptureFixture) -> None:
    """The line that comes next says how many were left out; other causes are not held back."""
    now = [0.0]
    faults = FaultLog(lambda: now[0])
    for moment in (0.0, 0.1, 0.9, 1.5, 1.6):
        now[0] = moment
        faults.note(Unavailable("the database cannot serve this now", reason=REASON))
    faults.note(StorageFull("the database has no room left"))
    first, second, third = (record.getMessage() for record in caplog.records)
    assert first == f"Unavailable: the database cannot serve this now: {' '.join(REASON.split())}"
    assert second.endswith("(and 2 more since the last such line)")
    assert third == "StorageFull: the database has no room left"


def test_a_503_is_a_line_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """A hundred requests that meet one fault are a line; the answers name no host, user or path."""
    app = FastAPI()
    problems.install(app)

    @app.get("/")
    def fail() -> None:
        raise Unavailable("a test that cannot serve now", reason=REASON)

    with caplog.at_level(logging.ERROR), TestClient(app) as client:
        answers = [client.get("/") for _ in range(100)]
    assert {503} == {answer.status_code for answer in answers}
    assert not any(word in answers[0].text for word in ("10.0.0.7", "5432", "'kin'", "/etc"))
    records = [each for each in caplog.records if each.name.startswith("app.infra.fault_log")]
    assert 1 <= len(records) <= 10  # seconds, on a busy machine
    assert all(record.exc_info is None for record in records)
    assert all("\n" not in record.getMessage() for record in records)


def test_what_a_tenant_asks_for_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    """A tenant that writes on at its quota, each time with other figures, fills no log."""
    app = FastAPI()
    problems.install(app)

    @app.get("/quota/{used}")
    def beyond(used: int) -> None:
        raise QuotaExceeded(f"{used} of 100 bytes are used")

    @app.get("/long")
    def long() -> None:
        raise TooMuch("ask for less")

    with caplog.at_level(logging.WARNING), TestClient(app) as client:
        assert {507} == {client.get(f"/quota/{used}").status_code for used in range(100, 110)}
        assert 503 == client.get("/long").status_code
    assert [] == [each.name for each in caplog.records if each.name.startswith("app.")]


def test_stores_name_no_address_and_no_path(tmp_path: Path) -> None:
    """What clients and errors of jobs are shown has no host, port or folder; the reason has."""
    redis = RedisServer("redis://user:hidden@127.0.0.1:1/0", timeout=0.2, pause=0.0)
    with pytest.raises(Unavailable) as away:
        redis.ping()
    assert "Redis cannot be reached" == str(away.value)
    assert "127.0.0.1:1" in away.value.reason
    assert "hidden" not in away.value.reason
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable) as full:
        DownloadDir(tmp_path / "file").folder("a")
    assert str(tmp_path) not in str(full.value)
    assert str(tmp_path) in full.value.reason
