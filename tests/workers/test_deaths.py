"""Workers, services and databases die under their jobs: each job ends once, elsewhere."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.support.backends import SQLITE, PostgresBackend
from tests.support.declared_problems import checked
from tests.support.jobs.deployment import LEASE_S, Deployment
from tests.support.jobs.records import error_of
from tests.support.servers.postgres import Postgres, postgres_server


@pytest.mark.long
@pytest.mark.slow
def test_kill_9_of_workers_at_any_moment(deployment: Deployment) -> None:
    """The worker that holds a job dies, and then the other one, at a random moment: all jobs
    succeed, each has its effect once, and one that is done over says why until it has succeeded.
    """
    workers = [deployment.worker(), deployment.worker()]
    for worker in workers:
        worker.says("takes jobs", "standing by")
    jobs = [deployment.enqueue("count", steps=8, pause=0.1) for _ in range(5)]
    held = deployment.running(jobs[0])
    holder = next(worker for worker in workers if f"-{worker.pid}-" in str(held.worker))
    holder.kill()
    died = time.monotonic()
    again = deployment.until(jobs[0], lambda now: now.attempts == 2)
    assert time.monotonic() - died < 5 * LEASE_S + 5
    assert ("running", "worker_lost") == (again.state, error_of(again)["code"])
    detail = error_of(again)["detail"]
    assert "its worker died" in detail
    assert str(held.worker) not in detail  # its name has that of the machine
    assert f"worker {held.worker} died" in deployment.logs()
    heir = deployment.worker()
    time.sleep(np.random.default_rng().uniform(0.0, 1.0))
    next(worker for worker in workers if worker is not holder).kill()
    done = [deployment.ended(job) for job in jobs]
    assert {("succeeded", None)} == {(job.state, job.error) for job in done}
    assert [1] * 5 == [deployment.effects(job) for job in jobs]
    for job, begun in zip(done, map(deployment.begun, jobs), strict=True):
        # A worker may die after it has taken a job and before the job begins: that attempt counts.
        assert begun == sorted({*begun} & {*range(1, job.attempts + 1)})
        assert begun[-1] == job.attempts
    heir.says("takes jobs", "standing by")  # the jobs may have ended before it came
    assert 0 == heir.stop()
    assert "Traceback" not in deployment.logs()


def test_a_worker_that_stops_puts_its_jobs_back(postgres: Postgres, tmp_path: Path) -> None:
    """After SIGTERM it exits 0 at once; the next one does the job over, and no attempt was lost."""
    deployment = Deployment(tmp_path, PostgresBackend(postgres))
    job = deployment.enqueue("count", steps=10, pause=0.1)
    worker = deployment.worker()
    deployment.running(job)
    assert 0 == worker.stop()
    back = deployment.show(job)
    assert ("queued", 0, None) == (back.state, back.attempts, back.worker)
    deployment.worker()
    done = deployment.ended(job)
    assert ("succeeded", 1, 1) == (done.state, done.attempts, deployment.effects(job))
    deployment.close()


@pytest.mark.slow
def test_jobs_are_done_whatever_is_left_of_an_older_queue(tmp_path: Path) -> None:
    """A worker dies, and the next one finds a file of DBOS: it says in one line that it can go,
    leaves it alone, and carries all jobs out.
    """
    deployment = Deployment(tmp_path, SQLITE)
    jobs = [deployment.enqueue("count", steps=10, pause=0.1) for _ in range(4)]
    worker = deployment.worker()
    deployment.running(jobs[0])
    worker.kill()
    old = deployment.folder / "m.jobs.db"
    old.write_bytes(b"of DBOS")
    line = deployment.worker().says("DBOS")
    assert f"all jobs are kept: the file {old} can go" in line
    assert (1, b"of DBOS") == (deployment.logs().count("DBOS"), old.read_bytes())
    assert {"succeeded"} == {deployment.ended(job).state for job in jobs}
    assert [1] * 4 == [deployment.effects(job) for job in jobs]
    deployment.close()


@pytest.mark.long
def test_a_worker_taken_for_dead_does_no_harm(postgres: Postgres, tmp_path: Path) -> None:
    """Stopped for longer than its lease it loses its job; awake again, it leaves the job alone and
    goes on under another name.
    """
    deployment = Deployment(tmp_path, PostgresBackend(postgres))
    job = deployment.enqueue("count", steps=20, pause=0.1)
    first = deployment.worker()
    held = deployment.running(job)
    first.pause()
    second = deployment.worker()
    again = deployment.until(job, lambda now: now.attempts == 2)
    assert held.worker != again.worker
    first.wake().says("was taken over by another worker")
    done = deployment.ended(job)
    assert ("succeeded", again.worker, 1) == (done.state, done.worker, deployment.effects(job))
    second.kill()
    last = deployment.ended(deployment.enqueue("count", steps=1, pause=0.0))
    assert "succeeded" == last.state
    assert last.worker not in {held.worker, again.worker}
    assert 0 == first.stop()
    deployment.close()


@pytest.mark.slow
def test_a_worker_does_not_wait_for_a_job_that_does_not_hear(tmp_path: Path) -> None:
    """After SIGTERM it is gone in a few seconds, exit code 0, and the job is there to be taken."""
    deployment = Deployment(tmp_path, SQLITE)
    job = deployment.enqueue("deaf", pause=40.0)
    worker = deployment.worker()
    deployment.until(job, lambda now: now.state == "running")
    began = time.monotonic()
    assert 0 == worker.stop()
    assert time.monotonic() - began < 20
    assert "running" == deployment.show(job).state
    deployment.close()


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[tuple[Postgres, Deployment]]:
    """A Postgres server to be killed, with a database."""
    with postgres_server() as server:
        deployment = Deployment(tmp_path, PostgresBackend(server))
        yield server, deployment
        deployment.close()


@pytest.mark.postgres
def test_a_database_that_restarts_under_a_job(mortal: tuple[Postgres, Deployment]) -> None:
    """A job that runs meanwhile ends as if nothing had been, one that needs the database in that
    moment is started again; and no worker was taken for dead. A worker that is stopped while the
    database is unavailable exits.
    """
    server, deployment = mortal
    long = deployment.enqueue("watch")
    short = deployment.enqueue("count", steps=10, pause=0.1)
    worker = deployment.worker("--database-timeout-seconds=1")
    deployment.running(long)
    deployment.running(short)
    server.kill()
    time.sleep(LEASE_S + 1)
    server.restart()
    again = deployment.until(short, lambda now: now.error or now.finished)
    assert not again.finished
    assert "unavailable" == error_of(again)["code"]
    assert "the next attempt is in 1 s" in error_of(again)["detail"]
    assert ("succeeded", 1, [1, 2]) == (
        deployment.ended(short).state,
        deployment.effects(short),
        deployment.begun(short),
    )
    (deployment.folder / long.id).touch()
    assert ("succeeded", [1]) == (deployment.ended(long).state, deployment.begun(long))
    assert "silent" not in deployment.logs()
    server.kill()
    began = time.monotonic()
    assert 0 == worker.stop()
    assert time.monotonic() - began < 25
    server.restart()


@pytest.mark.slow
def test_one_of_several_processes_works(tmp_path: Path) -> None:
    """Of the processes of a service on SQLite one takes jobs; when it is killed, another one does,
    at once. None registers before there is a job, and no stream of events keeps them from ending.
    """
    deployment = Deployment(tmp_path, SQLITE)
    service = deployment.service("--processes=2")
    url = service.address()
    assert "takes jobs" not in deployment.logs()
    with checked(httpx.Client(base_url=url, trust_env=False)) as http:
        http.post("/v1/spaces", json={"name": "s", "num_parameters": 100})
        asked = http.post("/v1/spaces/s/jobs", json={"kind": "rebuild_buckets"}).json()
        job = deployment.enqueue("count", steps=20, pause=0.1)
        held = deployment.running(job)
        assert 1 == len(re.findall("takes jobs", deployment.logs()))
        assert held.worker is not None
        os.kill(int(held.worker.split("-")[-2]), signal.SIGKILL)
        done = deployment.ended(job)
        assert ("succeeded", 2, 1) == (done.state, done.attempts, deployment.effects(job))
        assert "succeeded" == http.get(f"/v1/jobs/{asked['id']}").json()["state"]
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        waiting = deployment.enqueue("count", steps=0, pause=0.0, not_before=tomorrow)
        with http.stream("GET", f"/v1/jobs/{waiting.id}/events") as stream:
            lines = stream.iter_lines()
            assert next(line for line in lines if line.startswith("data"))
            began = time.monotonic()
            service.terminate()
            assert [] == [line for line in lines if line.startswith("data")]
            assert time.monotonic() - began < 12  # requests under way may take 20
    assert 0 == service.wait()
    deployment.close()
