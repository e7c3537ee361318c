"""A wall clock that jumps takes no job from its worker, and loses nothing that was acknowledged."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.app.tenancy.auth.test_keys import new_key
from tests.faults.clock import Clock
from tests.support.backends import PostgresBackend
from tests.support.faults.ledger import WRITERS, check, make_space
from tests.support.fixtures import Figure
from tests.support.jobs.deployment import Deployment
from tests.support.repetitions import repetitions
from tests.support.servers.postgres import Postgres
from tests.support.servers.server_process import Server
from tests.support.write_log import WriteLog, finish, start_writers, wait_for_writes

SEED = 1906
SHIM = "tests.faults.clock"
HOUR, DAY = 3600.0, 86400.0


def jumps(seed: int) -> Iterator[float]:
    """Offsets from seconds to days, ahead and behind."""
    random = np.random.default_rng(seed)
    while True:
        yield float(random.choice([-1, 1]) * random.choice([5.0, HOUR, 3 * DAY]))


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    """A clock that is right."""
    return Clock(tmp_path / "clock")


def test_leases_read_no_clock(
    postgres: Postgres, tmp_path: Path, clock: Clock, figure: Figure
) -> None:
    """While the clock of the worker with the job jumps, the other one leaves it the job; and once
    it is killed, the other one takes over within a minute, though its own clock is days behind.
    """
    deployment = Deployment(tmp_path, PostgresBackend(postgres))
    module = "tests.support.jobs.worker_main"
    workers = [deployment.worker(*clock.flags(module), module=SHIM) for _ in range(2)]
    for worker in workers:
        worker.says("takes jobs", "standing by")
    clock.jump(HOUR)
    many = repetitions(100, few=6)
    jobs = [deployment.enqueue("count", steps=6, pause=0.1) for _ in range(max(2, many // 3))]
    for offset in itertools.islice(jumps(SEED), many):
        clock.jump(offset)
        time.sleep(0.3)
    done = [deployment.ended(job) for job in jobs]
    assert {("succeeded", 1)} == {(job.state, job.attempts) for job in done}
    assert [1] * len(jobs) == [deployment.effects(job) for job in jobs]
    clock.jump(HOUR)
    end = deployment.ended(deployment.enqueue("count", steps=1, pause=0.0)).finished_at
    assert end is not None
    assert (end - datetime.now(UTC)).total_seconds() > HOUR / 2  # the workers are under the clock
    assert "died" not in deployment.logs()
    long = deployment.enqueue("count", steps=30, pause=0.1)
    held = deployment.running(long)
    next(worker for worker in workers if f"-{worker.pid}-" in str(held.worker)).kill()
    clock.jump(-3 * DAY)
    deployment.until(long, lambda now: now.attempts == 2)  # which waits for a minute at most
    assert ("succeeded", 1) == (deployment.ended(long).state, deployment.effects(long))
    deployment.close()
    figure(f"{many} jumps under {len(jobs)} jobs, 0 taken over, seed {SEED}")


@pytest.mark.slow
def test_a_key_expires_by_the_clock_alone(tmp_path: Path, clock: Clock) -> None:
    """A jump beyond its end ends it, at once, and one back lets it be valid as it was."""
    server = Server(tmp_path, "--auth=required", *clock.flags("app"), module=SHIM).start()
    key = new_key(server, "--valid-for=1h")
    with httpx.Client(base_url=server.url, trust_env=False) as http:
        http.headers["Authorization"] = f"Bearer {key}"
        statuses = []
        for offset in (0.0, 2 * HOUR, 0.0, -3 * DAY):
            clock.jump(offset)
            statuses.append(http.get("/v1/spaces").status_code)
    assert [200, 401, 200, 200] == statuses
    assert 0 == server.stop()


@pytest.mark.slow
def test_jumps_under_load_lose_nothing(tmp_path: Path, clock: Clock, figure: Figure) -> None:
    """A clean-up that is days ahead, and then days behind, deletes no file that a row names."""
    flags = "--blob-grace-seconds=60", "--maintenance-interval-seconds=0.1"
    server = Server(tmp_path, *flags, *clock.flags("app"), module=SHIM).start()
    make_space(server)
    write_logs = [WriteLog() for _ in range(WRITERS)]
    writers = start_writers(server.url, "s", write_logs, SEED)
    many = repetitions(300, few=8)
    for offset in itertools.islice(jumps(SEED), many):
        clock.jump(offset)
        wait_for_writes(write_logs, more=8)
    assert [] == finish(writers)
    check(server, "s", write_logs)
    assert 0 == server.stop()
    writes = sum(log.writes for log in write_logs)
    figure(f"{many} jumps of up to 3 days, {writes:,} writes acknowledged, 0 lost, seed {SEED}")
