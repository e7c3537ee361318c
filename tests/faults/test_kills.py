"""Kills of every process, in any order: nothing acknowledged is lost, and each job ends once."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import numpy as np
import pytest

from app.jobs.records import JobRecord
from tests.support.app.backups import Copies
from tests.support.backends import PostgresBackend
from tests.support.faults.ledger import WRITERS, check, make_space
from tests.support.fixtures import Figure
from tests.support.jobs.deployment import Deployment
from tests.support.repetitions import repetitions
from tests.support.servers.postgres import Postgres, postgres_server
from tests.support.servers.redis_server import RedisProcess, redis_server
from tests.support.servers.server_process import Server
from tests.support.write_log import WriteLog, finish, start_writers, wait_for_writes

SEED = 1906


class Installation:
    """A service, a worker, Postgres and Redis, each of which can be killed and comes back.

    Args:
        folder: of its files.
        postgres: its own.
        redis: its own.
    """

    def __init__(self, folder: Path, postgres: Postgres, redis: RedisProcess) -> None:
        self._postgres, self._redis = postgres, redis
        backend = PostgresBackend(postgres)
        self.deployment = Deployment(folder, backend)
        flags = f"--redis-url={redis.url}", "--database-timeout-seconds=5"
        self.service = Server(folder, *flags, backend=backend).start()
        self.copies = Copies(backend, folder, redis_url=redis.url)
        self._worker = self.deployment.worker()
        self.jobs: list[JobRecord] = []

    def kill_service(self) -> None:
        self.service.kill()
        self.service.start()

    def kill_worker(self) -> None:
        self._worker.kill()
        self._worker = self.deployment.worker()

    def kill_postgres(self) -> None:
        self._postgres.kill()
        self._postgres.restart()

    def kill_redis(self) -> None:
        self._redis.signal(signal.SIGKILL)
        self._redis.start()

    def enqueue(self) -> None:
        """Give the worker something to do."""
        self.jobs.append(self.deployment.enqueue("count", steps=3, pause=0.1))

    def ended(self, job: JobRecord) -> JobRecord:
        """Wait until the job has ended, and return it.

        A worker that starts while Postgres dies ends with an error: it is started again, as by any
        supervisor of processes.
        """

        def finished(now: JobRecord) -> bool:
            if not self._worker.lives:
                self._worker = self.deployment.worker()
            return now.finished

        return self.deployment.until(job, finished)

    def search(self) -> None:
        """Search by buckets, which are in Redis: they follow what is written."""
        params = {"model": "w0/m0", "method": "lsh"}
        found = httpx.get(f"{self.service.url}/v1/spaces/s/neighbors", params=params, timeout=30)
        assert found.status_code in {200, 404}, found.text

    def close(self) -> None:
        """Stop the processes that are its own."""
        self.service.kill()
        self.deployment.close()


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    """One that runs, with servers of its own."""
    with postgres_server() as postgres, redis_server() as redis, ExitStack() as stack:
        made = Installation(tmp_path, postgres, redis)
        stack.callback(made.close)
        yield made


@pytest.mark.postgres
@pytest.mark.redis
def test_kills_of_all_processes(installation: Installation, figure: Figure) -> None:
    """A seed chooses who dies and when. After each death all that was acknowledged is there, whole;
    at the end each job had its effect once, and buckets equal a recomputation.
    """
    random = np.random.default_rng(SEED)
    make_space(installation.service)
    write_logs = [WriteLog() for _ in range(WRITERS)]
    victims: dict[str, Callable[[], None]] = {
        "service": installation.kill_service,
        "worker": installation.kill_worker,
        "Postgres": installation.kill_postgres,
        "Redis": installation.kill_redis,
    }
    kills, dead = repetitions(1000, few=4), Counter[str]()
    while dead.total() < kills:
        for name in random.permutation(list(victims))[: kills - dead.total()]:
            installation.enqueue()
            url = installation.service.url
            writers = start_writers(url, "s", write_logs, dead.total(), through_faults=True)
            wait_for_writes(write_logs, more=6)
            installation.search()
            time.sleep(random.uniform(0.0, 0.3))
            victims[str(name)]()
            refused = finish(writers)
            assert all(": 503 " in refusal for refusal in refused), (name, refused)
            check(installation.service, "s", write_logs)
            dead[str(name)] += 1
        ended = [installation.ended(job) for job in installation.jobs]
        assert {"succeeded"} == {job.state for job in ended}
    assert [1] * len(ended) == [installation.deployment.effects(job) for job in ended]
    assert "" == installation.copies.verify()
    writes = sum(log.writes for log in write_logs)
    figure(
        f"{kills} kills ({', '.join(f'{many} of {name}' for name, many in sorted(dead.items()))}), "
        f"{writes:,} writes acknowledged, 0 lost; {len(ended)} jobs, each once; seed {SEED}"
    )
