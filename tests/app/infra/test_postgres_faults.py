"""Postgres goes away under the service: bounded waits, a 503, and nothing acknowledged lost."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx
import numpy as np
import psycopg
import pytest
from sqlalchemy import text

from app.infra.db import engines
from app.infra.db.database import Database
from app.infra.errors import Unavailable
from tests.support.backends import PostgresBackend
from tests.support.declared_problems import checked
from tests.support.faults.ledger import WRITERS, check, make_space
from tests.support.http_space import Space, assert_problem, random_support
from tests.support.jobs.deployment import Deployment
from tests.support.servers.postgres import Postgres, postgres_server
from tests.support.servers.server_process import Server
from tests.support.servers.waiting import wait_for
from tests.support.write_log import K, M, WriteLog, finish, start_writers, wait_for_writes

pytestmark = pytest.mark.postgres

SUPPORT = random_support(np.random.default_rng(5), M, K)


@pytest.fixture(scope="module")
def mortal() -> Iterator[Postgres]:
    """A Postgres server to be killed, which every test leaves running."""
    with postgres_server() as server:
        yield server


@pytest.fixture
def service(mortal: Postgres, tmp_path: Path) -> Iterator[Server]:
    """A service on it that waits for a lock, or for a connection, no longer than a second."""
    running = Server(tmp_path, "--database-timeout-seconds=1", backend=PostgresBackend(mortal))
    yield running.start()
    running.kill()


@pytest.mark.long
def test_kill_9_of_Postgres_under_load_loses_nothing_acknowledged(
    mortal: Postgres, service: Server
) -> None:
    """After each of three kills the service, which never stopped, answers what it acknowledged."""
    space = make_space(service)
    write_logs = [WriteLog() for _ in range(WRITERS)]
    random = np.random.default_rng(2027)
    for seed in range(3):
        writers = start_writers(service.url, space, write_logs, seed, through_faults=True)
        wait_for_writes(write_logs, more=10)
        time.sleep(random.uniform(0.0, 1.0))
        mortal.kill()
        refused = finish(writers)
        assert all(": 503 " in refusal for refusal in refused)
        mortal.restart()
        check(service, space, write_logs)


def test_while_Postgres_is_gone_every_answer_is_a_503(mortal: Postgres, service: Server) -> None:
    """Reads and writes say when to try again, the process stays alive, and all is well after."""
    with checked(httpx.Client(base_url=service.url, timeout=10, trust_env=False)) as http:
        space = Space(http, M)
        space.put("a", SUPPORT)
        mortal.kill()
        url = f"/v1/spaces/{space.name}"
        gone = [
            http.get("/readyz"),
            http.get(url),
            http.get(f"{url}/neighbors?model=a"),
            http.put(f"{url}/supports/b", json={"indices": [1, 5]}),
            http.delete(f"{url}/models/a"),
        ]
        for answer in gone:
            detail = assert_problem(answer, 503, "unavailable")
            assert "the database cannot serve this now" == detail  # no host, port, user or path
            assert int(answer.headers["Retry-After"]) > 0
        assert 200 == http.get("/livez").status_code
        mortal.restart()
        assert SUPPORT.digest == space.model("a")["digest"]
        assert 201 == http.put(f"{url}/supports/b", json={"indices": [1, 5]}).status_code
        assert 200 == http.get("/readyz").status_code


def test_a_frozen_Postgres_holds_up_nobody_for_long(mortal: Postgres, service: Server) -> None:
    """It neither answers nor fails: more requests than there are turns are 503 all the same, each
    in bounded time, and once it goes on, so does all.
    """
    with checked(httpx.Client(base_url=service.url, timeout=20, trust_env=False)) as http:
        space = Space(http, M)
        space.put("a", SUPPORT)
        paths = ["/readyz", *[f"/v1/spaces/{space.name}"] * 24]
        with ThreadPoolExecutor(len(paths)) as threads:
            assert {200} == {answer.status_code for answer in threads.map(http.get, paths)}
            with mortal.frozen():
                for answer in threads.map(http.get, paths):
                    assert_problem(answer, 503, "unavailable")
                    assert int(answer.headers["Retry-After"]) > 0
        assert SUPPORT.digest == space.model("a")["digest"]
        assert 200 == http.get("/readyz").status_code


def test_a_service_starts_once_Postgres_is_back(mortal: Postgres, service: Server) -> None:
    """Without its database a service says so in one line and ends; the next start finds all."""
    make_space(service)
    mortal.kill()
    service.kill()
    service.launch()
    assert 1 == service.wait()
    assert "cannot connect" in service.log.read_text()
    assert "Traceback" not in service.log.read_text()
    mortal.restart()
    assert 200 == httpx.get(f"{service.start().url}/v1/spaces/s").status_code


def test_a_lock_that_nobody_lets_go_of_is_a_503(mortal: Postgres, service: Server) -> None:
    """Behind a foreign transaction a writer waits its second, readers do not, and then both go."""
    with checked(httpx.Client(base_url=service.url, timeout=10, trust_env=False)) as http:
        space = Space(http, M)
        space.put("a", SUPPORT)
        put = f"/v1/spaces/{space.name}/supports/b"
        database = service.database_url.split("@/")[1].split("?")[0]
        with psycopg.connect(host=str(mortal.data), user="postgres", dbname=database) as foreign:
            foreign.execute("SELECT * FROM spaces FOR UPDATE")
            answer = http.put(put, json={"indices": [1, 5]})
            assert "lock" in assert_problem(answer, 503, "unavailable")
            assert SUPPORT.digest == space.model("a")["digest"]
        assert 201 == http.put(put, json={"indices": [1, 5]}).status_code


def test_connections_that_the_server_ended_are_replaced(mortal: Postgres, service: Server) -> None:
    """After every connection was terminated from outside, requests are answered, not refused."""
    with checked(httpx.Client(base_url=service.url, timeout=10, trust_env=False)) as http:
        space = Space(http, M)
        space.put("a", SUPPORT)
        everyone = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'"
        ended = f"SELECT pg_terminate_backend(pid) FROM ({everyone} AND pid <> pg_backend_pid()) x"
        assert [(True,)] == list(set(mortal.execute(ended)))
        wait_for(lambda: 1 == len(mortal.execute(everyone)))
        assert {200} == {http.get(f"/v1/spaces/{space.name}").status_code for _ in range(5)}
        space.put("b", SUPPORT)


def test_nothing_is_read_outside_a_transaction(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one cannot begin: the session says so, and its next statement begins another one."""
    url = PostgresBackend(postgres).migrated_url(tmp_path)
    with closing(Database(url, timeout=5)) as database, database.reading() as session:
        with monkeypatch.context() as patch:
            patch.setattr(engines, "visible", ended)
            with pytest.raises(psycopg.errors.AdminShutdown):
                session.connection()
        shown = session.connection().scalar(text("SELECT current_setting('modelkin.tenant')"))
        assert "" == shown  # and not none of the tenants, as outside of one


def test_a_server_that_ends_a_first_transaction_is_named(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that cannot be reached, and not by a traceback."""
    url = PostgresBackend(postgres).migrated_url(tmp_path)
    monkeypatch.setattr(engines, "visible", ended)
    with pytest.raises(Unavailable, match=r"cannot connect to .*: the server ends"):
        Database(url, timeout=5)


def ended() -> str:
    """As a server does that shuts down."""
    raise psycopg.errors.AdminShutdown("the server ends")


@pytest.mark.long
def test_the_log_has_a_line_when_Postgres_goes_and_one_when_it_is_back(
    mortal: Postgres, tmp_path: Path
) -> None:
    """Of a service and of two workers at work, each: no line besides, no traceback, host or path;
    the jobs go on.
    """
    deployment = Deployment(tmp_path, PostgresBackend(mortal))
    with closing(deployment):
        workers = [deployment.worker(), deployment.worker()]
        service = deployment.service("--embedded-worker=off")
        jobs = [deployment.enqueue("count", steps=40, pause=0.1) for _ in range(6)]
        with httpx.Client(base_url=service.address(), timeout=20, trust_env=False) as http:
            for job in jobs[:4]:
                deployment.running(job)
            mortal.kill()
            for process in (*workers, service):
                wait_for(lambda: http.get("/v1/spaces").status_code == 503)
                process.says("the database is away")
            again = time.monotonic() + 3  # three tries of each loop
            while time.monotonic() < again:
                assert 503 == http.get("/v1/spaces").status_code
            mortal.restart()
            wait_for(lambda: http.get("/v1/spaces").status_code == 200)
        for process in (*workers, service):
            process.says("the database is back")
        assert {"succeeded"} == {deployment.ended(job).state for job in jobs}
        for process in (*workers, service):
            lines = process.log.read_text().splitlines()
            about = [
                at for at, line in enumerate(lines) if "database" in line and "store:" not in line
            ]
            assert ["away", "back"] == [re.findall("is (away|back)", lines[at])[0] for at in about]
            assert "check` says why" in lines[about[0]]
            after = "\n".join(lines[about[0] :])
            for secret in ("Traceback", str(mortal.data), "PGSQL", "psycopg"):
                assert secret not in after


def test_a_reader_from_before_an_outage_begins_no_second_one(
    mortal: Postgres, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A long job may use the connection that it has lost only once Postgres is back: no more lines
    than those two.
    """

    def is_away() -> bool:
        try:
            database.check()
        except Unavailable:
            return True
        return False

    def uses_again() -> None:
        with database.reading() as held:
            held.execute(text("SELECT 1"))
            mortal.kill()
            wait_for(is_away)
            mortal.restart()
            wait_for(lambda: not is_away() and "is back" in caplog.text)
            held.execute(text("SELECT 1"))

    with closing(Database(PostgresBackend(mortal).migrated_url(tmp_path), timeout=5)) as database:
        with pytest.raises(Unavailable):
            uses_again()
        assert not is_away()
    assert ["away", "back"] == re.findall("the database is (away|back)", caplog.text)
