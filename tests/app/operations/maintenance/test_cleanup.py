"""The clean-up of a service: it drops indexes of deleted spaces and prunes removals.

No index or bucket store that follows the space may go wrong meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import numpy as np
import numpy.typing as npt
import pytest
from sqlalchemy import func, select

from app.infra.db.database import Database
from app.infra.db.tables.catalog import ModelRow, TombstoneRow
from app.infra.errors import Unavailable
from app.infra.storage.file_blobs import FileBlobs
from app.models.catalog.repositories.model_writes import (
    Content,
    NewModel,
    delete_model,
    insert_models,
    update_contents,
)
from app.models.catalog.repositories.models import get_model
from app.models.index.buckets.service import BucketService
from app.models.index.change_feed import ChangeFeed
from app.models.index.registry import IndexRegistry
from app.models.index.space_index import ChangedModels
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories.spaces import (
    advance,
    delete_space,
    find_space_by_id,
    insert_space,
    lock_space,
)
from app.models.spaces.terms import SpaceTerms
from app.operations.maintenance.blob_cleanup import BlobCleanup
from app.operations.maintenance.cleanup import Cleanup
from app.tenancy.auth.tenants import ensure_tenant
from modelkin.core.sketching.banding import band_keys, default_banding
from modelkin.types.spaces import SignatureSpec
from tests.support.declared_problems import checked
from tests.support.http_space import Space, family
from tests.support.memory_buckets import MemoryBuckets
from tests.support.servers.server_process import Server

H = 16
SPEC = SignatureSpec("affine32", H, 1)
INDEX_MEMORY_BYTES = 1 << 30


class Written:
    """A space in a database, changed as a service would change it.

    Args:
        database: of this version.
        name: of the space.
    """

    def __init__(self, database: Database, name: str = "s") -> None:
        self.database = database
        with database.writing() as session:
            tenant = ensure_tenant(session, "t")
            made = insert_space(
                session, tenant, name, SpaceTerms(100, None, SPEC, default_banding(SPEC.num_perm))
            )
        assert made is not None
        self.id = made.id

    def space(self) -> SpaceRecord:
        """Its present state."""
        with self.database.reading() as session:
            found = find_space_by_id(session, self.id)
        assert found is not None
        return found

    def put(self, *names: str, value: int = 0) -> None:
        """Insert new models, all of whose minhashes are ``value``."""
        new = [NewModel(name, content(value)) for name in names]
        with self.database.writing() as session:
            space = lock_space(session, self.space())
            version = advance(session, space, by=len(new), signatures=len(new))
            insert_models(session, space, new, version=version - len(new) + 1)

    def replace(self, name: str, value: int) -> None:
        """Give the model another signature."""
        with self.database.writing() as session:
            space = lock_space(session, self.space())
            model = get_model(session, space, name)
            update_contents(session, [(model, content(value), advance(session, space))])

    def remove(self, *names: str) -> None:
        """Remove the models."""
        with self.database.writing() as session:
            space = lock_space(session, self.space())
            for name in names:
                model = get_model(session, space, name)
                delete_model(session, model, version=advance(session, space, signatures=-1))

    def removals(self) -> int:
        """The number of tombstones."""
        with self.database.reading() as session:
            count = select(func.count()).select_from(TombstoneRow)
            return session.scalars(count.where(TombstoneRow.space_id == self.id)).one()


def content(value: int) -> Content:
    """A signature of equal minhashes: two models share all of their buckets or none."""
    return Content("signature", 5, None, None, values(value).astype("<u4").tobytes())


def values(value: int) -> npt.NDArray[np.uint32]:
    """The minhashes of ``content(value)``."""
    return np.full(H, value, np.uint32)


class Follower:
    """An index that follows a space at irregular intervals."""

    def __init__(self, written: Written) -> None:
        self.written = written
        self.registry = IndexRegistry(INDEX_MEMORY_BYTES)
        self.began_at: list[int] = []

    def check(self) -> None:
        """The index holds exactly the models that the same transaction sees."""
        with self.written.database.reading() as session:
            space = find_space_by_id(session, self.written.id)
            assert space is not None
            snapshot = self.registry.snapshot_at(space.id, SPEC, space.version, self._feed(session))
            rows = session.execute(select(ModelRow.id, ModelRow.version)).all()
        assert sorted(snapshot.ids[snapshot.alive].tolist()) == sorted(row.id for row in rows)

    def _feed(self, session: object) -> ChangeFeed:
        begun = self.began_at

        class Seen(ChangeFeed):
            def changed_since(self, since: int) -> Iterator[ChangedModels]:
                begun.append(since)
                yield from super().changed_since(since)

        return Seen(session, self.written.id)  # type: ignore[arg-type]


@pytest.fixture
def written(database: Database) -> Written:
    """An empty space on each database."""
    return Written(database)


def cleanup_of(database: Database, indexes: IndexRegistry | None = None) -> Cleanup:
    """A clean-up that keeps 10 removals of each space, or as many as it has models."""
    return Cleanup(database, indexes or IndexRegistry(INDEX_MEMORY_BYTES), every=60, kept=10)


def test_removals_that_no_index_needs_are_pruned(written: Written) -> None:
    """Of far more removals than the space has models, the newest ten stay."""
    written.put(*(f"m{i}" for i in range(30)))
    written.remove(*(f"m{i}" for i in range(25)))
    cleanup_of(written.database).run_once()
    assert (10, 30 + 15) == (written.removals(), written.space().compacted_version)


def test_as_many_removals_stay_as_there_are_models(written: Written) -> None:
    """An index that is closer than a rebuild would be worth still follows."""
    written.put(*(f"m{i}" for i in range(40)))
    written.remove(*(f"m{i}" for i in range(17)))
    cleanup_of(written.database).run_once()
    assert (17, 0) == (written.removals(), written.space().compacted_version)


def test_only_an_index_behind_the_pruning_is_rebuilt(written: Written) -> None:
    """An index that missed pruned removals starts at 0; one that read them continues."""
    written.put(*(f"m{i}" for i in range(40)))
    asleep, awake = Follower(written), Follower(written)
    asleep.check()
    written.remove(*(f"m{i}" for i in range(35)))
    awake.check()
    cleanup_of(written.database).run_once()
    assert written.space().compacted_version == 65
    written.remove("m39")
    asleep.check()
    awake.check()
    assert ([0, 0], [0, 75]) == (asleep.began_at, awake.began_at)


def test_pruning_in_pieces_ends_where_it_should(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same removals stay, however few one batch deletes."""
    monkeypatch.setattr("app.operations.maintenance.cleanup._BATCH_SIZE", 4)
    written.put(*(f"m{i}" for i in range(30)))
    written.remove(*(f"m{i}" for i in range(30)))
    cleanup_of(written.database).run_once()
    assert (10, 50) == (written.removals(), written.space().compacted_version)


def test_the_compacted_version_is_that_of_the_reader(written: Written) -> None:
    """A transaction from before the pruning still reads all removals and the old version."""
    written.put(*(f"m{i}" for i in range(30)))
    with written.database.reading() as session:
        find_space_by_id(session, written.id)
        before = ChangeFeed(session, written.id)
        assert (0, []) == (before.compacted_version, list(before.removed_since(0)))
        written.remove(*(f"m{i}" for i in range(30)))
        cleanup_of(written.database).run_once()
        assert (0, []) == (before.compacted_version, list(before.removed_since(0)))
        assert 30 == sum(changed.ids.size for changed in before.changed_since(0))
    with written.database.reading() as session:
        after = ChangeFeed(session, written.id)
        assert (50, 10) == (after.compacted_version, len(list(after.removed_since(0))))


@pytest.mark.slow
def test_indexes_and_buckets_that_sleep_are_right_afterwards(written: Written) -> None:
    """Random changes and prunings, and three indexes and the buckets that follow now and then.

    Each time they show the present space, whatever was pruned in between.
    """
    random = np.random.default_rng(5)
    followers = [Follower(written) for _ in range(3)]
    stored = MemoryBuckets()
    buckets = BucketService(written.database, stored)
    keeper = Cleanup(written.database, IndexRegistry(INDEX_MEMORY_BYTES), every=60, kept=2)
    known: dict[str, int] = {}
    epochs: set[int | None] = set()
    for step in range(160):
        name, value = f"m{random.integers(5)}", int(random.integers(4))
        chance = random.random()
        if chance < 0.2:
            keeper.run_once()
        elif name not in known:
            written.put(name, value=value)
            known[name] = value
        elif chance < 0.3:
            written.replace(name, value)
            known[name] = value
        elif chance < 0.85:
            written.remove(name)
            del known[name]
        elif chance < 0.95:
            followers[step % 3].check()
        else:
            assert_bucketed(written, buckets, stored, known)
            epochs.add(written.space().bucket_epoch)
    for follower in followers:
        follower.check()
    assert_bucketed(written, buckets, stored, known)
    buckets.close()
    assert any(follower.began_at.count(0) > 1 for follower in followers)
    assert len(epochs) > 1


def assert_bucketed(
    written: Written, buckets: BucketService, stored: MemoryBuckets, known: dict[str, int]
) -> None:
    """Up-to-date buckets hold each model in its own buckets, and nothing else."""
    space = written.space()
    end = time.monotonic() + 10
    while (state := stored.state(space.id)) is None or state.version < space.version:
        with written.database.reading() as session:
            buckets.candidates(session, space, values(0))
        assert time.monotonic() < end
        time.sleep(0.002)
    ids: dict[int, set[int]] = {}
    with written.database.reading() as session:
        for model_id, name in session.execute(select(ModelRow.id, ModelRow.name)):
            ids.setdefault(known[name], set()).add(model_id)
    for value in range(4):
        found = stored.candidates(space.id, band_keys(values(value), space.banding), 1000)
        assert ids.get(value, set()) == set(found.ids.tolist())


@pytest.mark.slow
def test_readers_beside_the_pruning_are_right(written: Written) -> None:
    """Three indexes are right while one thread changes the space and another prunes it.

    Each shows exactly the models that its own transaction sees.
    """
    over, failures = threading.Event(), list[BaseException]()

    def until_over(action: object) -> threading.Thread:
        def run() -> None:
            try:
                while not over.is_set():
                    action()  # type: ignore[operator]
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def change() -> None:
        names = [f"m{i}" for i in range(12)]
        written.put(*names)
        written.remove(*names)

    keeper = Cleanup(written.database, IndexRegistry(INDEX_MEMORY_BYTES), every=60, kept=3)
    threads = [until_over(action) for action in (change, keeper.run_once)]
    followers = [Follower(written) for _ in range(3)]
    try:
        end = time.monotonic() + 1.5
        late = end + 30  # on a machine that is busy with others
        while (now := time.monotonic()) < end or (
            now < late and not (failures or written.space().compacted_version)
        ):
            for pause, follower in enumerate(followers):
                follower.check()
                time.sleep(pause * 0.02)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert [] == failures
    assert written.space().compacted_version > 0


def test_the_index_of_a_space_that_another_process_deleted_goes(written: Written) -> None:
    """The next clean-up of another process drops the index of the deleted space, and no other."""
    other = Written(written.database, "other")
    indexes = IndexRegistry(INDEX_MEMORY_BYTES)
    for each in (written, other):
        each.put("a")
        with each.database.reading() as session:
            indexes.snapshot_at(each.id, SPEC, each.space().version, ChangeFeed(session, each.id))
    with written.database.writing() as session:
        delete_space(session, written.space())
    cleanup_of(written.database, indexes).run_once()
    assert [other.id] == indexes.space_ids()


def test_a_step_that_fails_stops_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The database and the supports are away: later steps run, and each cause is a line."""
    done = list[str]()

    class Away(BlobCleanup):
        def run_once(self, stopping: threading.Event | None = None) -> None:
            raise Unavailable("the supports cannot be read", reason="no such mount")

    def broken(_: threading.Event) -> None:
        raise RuntimeError("a bug")

    def away(_: threading.Event) -> None:
        raise Unavailable("the supports cannot be read", reason="no such mount")

    with closing(Database(f"sqlite:///{tmp_path}/empty.db", timeout=1)) as empty:
        Cleanup(
            empty,
            IndexRegistry(INDEX_MEMORY_BYTES),
            every=60,
            blobs=Away(empty, FileBlobs(tmp_path / "blobs", "t"), 60),
            steps={"one": broken, "two": away, "three": lambda _: done.append("three")},
        ).run_once()
    assert ["three"] == done
    lines = [(record.getMessage(), record.exc_info is None) for record in caplog.records]
    away_lines = [line for line in lines if "the supports" in line[0]]
    assert [("Unavailable: the supports cannot be read: no such mount", True)] == away_lines
    assert ("the step 'one' of the clean-up failed", False) in lines
    assert any("cannot serve this now" in line and short for line, short in lines)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[list[Server]]:
    """Two services on one database, with frequent clean-ups."""
    servers = [Server(tmp_path, "--maintenance-interval-seconds=0.2") for _ in range(2)]
    try:
        for server, name in zip(servers, "ab", strict=True):
            server.log = tmp_path / f"{name}.log"
            server.start()
        yield servers
    finally:
        for server in servers:
            server.kill()


def test_a_live_service_forgets_a_space_that_another_deleted(two: list[Server]) -> None:
    """Of two services on one database, the one that only read the space frees it as well."""
    with (
        checked(httpx.Client(base_url=two[0].url, timeout=60, trust_env=False)) as first,
        checked(httpx.Client(base_url=two[1].url, timeout=60, trust_env=False)) as second,
    ):
        space = Space(first)
        space.put_all(family(4, 10_000, 200, 3))
        second.get(space.path("neighbors"), params={"model": "m000", "method": "scan"})
        assert "modelkin_index_spaces 1.0" in second.get("/metrics").text
        first.delete(f"/v1/spaces/{space.name}")
        end = time.monotonic() + 20
        while "modelkin_index_spaces 0.0" not in second.get("/metrics").text:
            assert time.monotonic() < end
            time.sleep(0.05)
