"""Wake-ups of a worker by other processes: the database notifies it, and no table is polled."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import text

from app.infra.db.database import Database
from app.infra.errors import Unavailable
from app.jobs.records import CHANNEL
from tests.support.backends import Backend, PostgresBackend
from tests.support.jobs.deployment import Deployment
from tests.support.servers.postgres import Postgres
from tests.support.servers.waiting import wait_for


class Follower:
    """A thread that follows the jobs of a database, as a worker does."""

    def __init__(self, database: Database) -> None:
        self.heard = 0
        self.stopping = threading.Event()
        self.lost: Unavailable | None = None
        self._database = database
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            for _ in self._database.follow(CHANNEL, self.stopping):
                self.heard += 1
        except Unavailable as error:
            self.lost = error

    def join(self) -> None:
        """Wait for its end."""
        self._thread.join()


@pytest.fixture
def follower(deployment: Deployment) -> Iterator[Follower]:
    """Follows through connections of its own."""
    with closing(Database(deployment.url, timeout=10)) as database:
        made = Follower(database)
        wait_for(lambda: made.heard)
        yield made
        made.stopping.set()
        made.join()


def has_heard(follower: Follower, before: int) -> bool:
    """Whether something has come since."""
    return follower.heard > before


def test_each_job_that_another_process_enqueues_is_heard_of(
    deployment: Deployment, follower: Follower
) -> None:
    """One after the other, once they are committed."""
    for _ in range(3):
        before = follower.heard
        deployment.enqueue("count")
        wait_for(partial(has_heard, follower, before))
    assert follower.lost is None


def test_a_follower_ends_when_it_is_to_stop(backend: Backend, tmp_path: Path) -> None:
    """It gives its connection back, and has lost none."""
    with closing(Database(backend.migrated_url(tmp_path), timeout=10)) as database:
        follower = Follower(database)
        follower.stopping.set()
        follower.join()
        assert follower.lost is None


def test_a_lost_connection_ends_a_follower(postgres: Postgres, tmp_path: Path) -> None:
    """The worker then listens again, and looks for jobs itself meanwhile."""
    url = PostgresBackend(postgres).migrated_url(tmp_path)
    with closing(Database(url, timeout=10)) as database:
        follower = Follower(database)
        wait_for(lambda: follower.heard)
        with database.writing() as session:
            session.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE "
                    "'LISTEN%' AND datname = current_database()"
                )
            )
        follower.join()
    assert "the database cannot serve this now" in str(follower.lost)
