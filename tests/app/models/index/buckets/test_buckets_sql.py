"""The SQL store keeps the contract on SQLite and on Postgres, and survives their failures."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from sqlalchemy import func, select, text
from sqlalchemy.orm import DeclarativeBase

from app.infra.db.database import Database
from app.infra.db.migrations import migrate
from app.infra.db.tables.index import BucketBuildRow, BucketEntryRow, BucketModelRow
from app.infra.errors import BackendUnavailable
from app.models.index.buckets.protocol import Buckets
from app.models.index.buckets.sql import SqlBuckets
from tests.app.models.index.buckets.contract import CAP, BucketsContract
from tests.app.models.index.buckets.machine import BucketsMachine
from tests.app.models.index.buckets.oracle import (
    EPOCH,
    expected,
    ids_in,
    keys,
    plain,
    spread,
    state,
)
from tests.support.servers import forkserver

TABLES: tuple[type[DeclarativeBase], ...] = (BucketBuildRow, BucketModelRow, BucketEntryRow)


class TestSqlite(BucketsContract):
    @pytest.fixture
    def buckets(self, sqlite: Database) -> Buckets:
        """The store in the shared file."""
        return SqlBuckets(sqlite, cap=CAP)


class TestPostgres(BucketsContract):
    @pytest.fixture
    def buckets(self, postgres_database: Database) -> Buckets:
        """The store in the shared database."""
        return SqlBuckets(postgres_database, cap=CAP)


@pytest.fixture(
    params=["sqlite", pytest.param("postgres_database", marks=pytest.mark.postgres)],
)
def database(request: pytest.FixtureRequest) -> Database:
    """Each of the two, without any bucket."""
    shared: Database = request.getfixturevalue(request.param)
    buckets = SqlBuckets(shared)
    with shared.writing() as session:
        session.execute(text("UPDATE bucket_builds SET space_id = NULL"))
    while buckets.sweep():
        pass
    return shared


def rows(database: Database) -> list[int]:
    """How many rows the three tables hold."""
    with database.reading() as session:
        return [session.scalar(select(func.count()).select_from(t)) or 0 for t in TABLES]


@pytest.mark.slow
def test_any_history_is_followed(database: Database) -> None:
    """After any events in any order, the store answers as a dict would."""
    kept = SqlBuckets(database, cap=3)

    class Machine(BucketsMachine):
        buckets = kept
        cap = 3

    wanted = settings(max_examples=10, stateful_step_count=15)
    run_state_machine_as_test(Machine, settings=wanted)


def test_sweeping_frees_every_row(database: Database) -> None:
    """A dropped space is swept in pieces to nothing, and the others keep all of theirs."""
    buckets = SqlBuckets(database)
    for space in (1, 2):
        buckets.apply(space, EPOCH, 0, 5, [(i, keys(1, i)) for i in range(2, 7)], [])
    assert [2, 10, 20] == rows(database)
    buckets.drop(1)
    assert [2, 2, 1, 0] == [buckets.sweep(2) for _ in range(4)]
    assert [1, 5, 10] == rows(database)


def test_a_model_that_goes_leaves_no_row(database: Database) -> None:
    """Replacements and removals free the old rows."""
    buckets = SqlBuckets(database)
    buckets.apply(1, EPOCH, 0, 2, [(7, keys(1, 2, 3)), (8, keys(1))], [])
    buckets.apply(1, EPOCH, 2, 4, [(7, keys(4))], [8])
    assert [1, 1, 1] == rows(database)


def follow(url: str, worker: int) -> int:
    """Follow the same history in another process; return how many steps it applied."""
    database = Database(url, timeout=20)
    buckets = SqlBuckets(database)
    won = 0
    for since in range(0, 60, 10):
        step = [(i, spread(i)) for i in range(since + 1, since + 11)]
        won += buckets.apply(1, EPOCH, since, since + 10, step, [])
    database.close()
    return won


@pytest.mark.slow
def test_processes_take_every_step_once(database: Database) -> None:
    """Two processes that apply the same history reach the same end as one."""
    url = database.url.render_as_string(hide_password=False)
    with ProcessPoolExecutor(2, forkserver.CONTEXT) as pool:
        won = list(pool.map(follow, [url, url], range(2)))
    buckets = SqlBuckets(database)
    assert (6, state(60)) == (sum(won), buckets.state(1))
    assert [1, 60, 480] == rows(database)


def test_a_locked_file_is_a_missing_accelerator(tmp_path: Path) -> None:
    """A step that does not get the write lock in time fails and changes nothing."""
    database = Database(f"sqlite:///{tmp_path}/m.db", timeout=0.05)
    migrate(database)
    buckets = SqlBuckets(database)
    with database.writing() as session:
        session.execute(text("UPDATE spaces SET version = 1"))
        with pytest.raises(BackendUnavailable, match="holds a lock"):
            buckets.apply(1, EPOCH, 0, 1, [(7, keys(1))], [])
    assert (None, []) == (buckets.state(1), ids_in(buckets, 1, 1))
    database.close()


def test_few_and_many_entries_are_answered_alike(database: Database) -> None:
    """Around the number of entries that are read uncounted, answers equal those of the dict."""
    buckets = SqlBuckets(database, cap=150)
    models = {i: [i % 20, 100 + i % 7, 1000 + i] for i in range(1, 1001)}
    feed = [(i, keys(*own)) for i, own in models.items()]
    assert buckets.apply(1, EPOCH, 0, 1, feed, [])
    for first in (7, 14, 20):
        asked = [*range(first), *range(100, 107), *range(1001, 2001)]
        for limit in (10, 1999, 2000, 2001, 5000):
            found = plain(buckets.candidates(1, keys(*asked), limit))
            assert expected(models, asked, cap=150, limit=limit) == found
