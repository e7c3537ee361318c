"""A machine without sketches gets them by a few requests, and packs those that it has."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import obstore.store
import pytest
from sqlalchemy import delete, select, update

from app.infra.db.tables.index import SketchSegmentRow
from app.infra.errors import Unavailable
from app.infra.storage.blob_objects import FRONT_BYTES
from app.infra.storage.object_blobs import ObjectBlobs
from app.models.index.repositories import segments as segment_repository
from app.models.index.sketch_folder import SketchFolder
from app.models.spaces.repositories.spaces import all_spaces
from app.operations.maintenance.blob_cleanup import BlobCleanup, orphans
from app.operations.maintenance.sketch_segments import SketchSegments
from app.settings import Settings
from modelkin import Support
from tests.support.app.harness import AppHarness, open_app
from tests.support.backends import Backend
from tests.support.http_space import random_support

M, MODELS, PACKED = 200_000, 10, 4


class Counted(ObjectBlobs):
    """Objects in memory, and which of their requests there were."""

    def __init__(self, realm: str) -> None:
        self.store = obstore.store.MemoryStore()
        super().__init__(self.store, realm)
        self.realm = realm
        self.away: set[str] = set()
        self.head_reads: list[str] = []
        self.reads: list[str] = []

    def head(self, key: str) -> bytes | None:
        self.head_reads.append(key)
        if key in self.away:
            raise Unavailable("the object store does not answer")
        return super().head(key)

    def read(self, key: str) -> memoryview:
        self.reads.append(key)
        return super().read(key)

    def damage(self, key: str) -> None:
        """Cut an object in the middle."""
        whole = bytes(obstore.get(self.store, key).bytes())
        obstore.put(self.store, key, whole[: len(whole) // 2])


class Stored:
    """A service with ten models, whose supports are in an object store."""

    def __init__(self, app: AppHarness, blobs: Counted) -> None:
        self.app, self.blobs, self.random = app, blobs, np.random.default_rng(3)
        app.create_space("s", M)
        self.supports: dict[str, Support] = {}
        for number in range(MODELS):
            self.put(f"m{number}")

    def put(self, name: str) -> None:
        """Give a model a new support."""
        self.supports[name] = random_support(self.random, M, 20_000)
        self.app.put_support("s", name, self.supports[name])

    def segments(self, sketches: SketchFolder) -> SketchSegments:
        """What the clean-up of a machine runs."""
        return SketchSegments(self.app.database, self.blobs, sketches, models=PACKED)

    def machine(self, folder: Path) -> SketchFolder:
        """The sketches of a machine after a round of its clean-up."""
        sketches = SketchFolder(folder)
        made = self.segments(sketches)
        self.blobs.head_reads.clear()
        self.blobs.reads.clear()
        made.run_once(threading.Event())
        return sketches

    def writer(self) -> SketchFolder:
        """The same of the machine that wrote the models."""
        token = self.blobs.realm
        return self.machine(self.app.services[Settings].sketch_dir / token)

    def has_all(self, sketches: SketchFolder) -> bool:
        """Whether a machine has the sketch of every model, as its support gives it."""
        with self.app.database.reading() as session:
            [space] = all_spaces(session)
            models = segment_repository.sketched_since(session, space.id, -1, after=0, limit=99)
        file = sketches.of(space.id, M)
        heads = {file.read(model.id, model.content_id) for model in models}
        return heads == {s.sketch().words.tobytes() for s in self.supports.values()}

    def packs(self) -> list[str | None]:
        """Where packs are, by the ids of their models; None for one that is not finished."""
        with self.app.database.reading() as session:
            query = select(SketchSegmentRow.key).order_by(SketchSegmentRow.first_id)
            return [*session.scalars(query)]


@pytest.fixture
def stored(backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stored]:
    """A service that writes its supports into an object store."""
    stores: dict[str, Counted] = {}

    def objects(_url: str, token: str) -> Counted:
        return stores.setdefault(token, Counted(token))

    monkeypatch.setattr("app.blob_stores.open_objects", objects)
    settings: dict[str, Any] = {
        "blob_url": "s3://bucket/prefix",
        "blob_cache_dir": tmp_path / "fetched",
    }
    with open_app(tmp_path, backend, **settings) as app:
        yield Stored(app, *stores.values())


def test_a_new_machine_asks_once_for_many_sketches(stored: Stored, tmp_path: Path) -> None:
    """The writer packs what it has, and reads nothing; another one reads two packs and the rest."""
    assert stored.has_all(stored.writer())
    assert ([], []) == (stored.blobs.head_reads, stored.blobs.reads)
    packs = stored.packs()
    assert 2 == len(packs)
    assert stored.has_all(stored.machine(tmp_path / "new"))
    assert (packs, 2) == (stored.blobs.reads, len(stored.blobs.head_reads))
    assert stored.has_all(stored.machine(tmp_path / "new"))
    assert ([], []) == (stored.blobs.head_reads, stored.blobs.reads)
    assert packs == stored.packs()


def test_what_was_replaced_since_it_was_packed_comes_from_its_object(
    stored: Stored, tmp_path: Path
) -> None:
    """A pack never changes, and its sketch of an earlier support is not taken."""
    stored.writer()
    stored.put("m0")
    assert stored.has_all(stored.machine(tmp_path / "new"))
    assert (2, 3) == (len(stored.blobs.reads), len(stored.blobs.head_reads))


def test_sketches_that_an_outage_kept_back_come_in_the_next_round(
    stored: Stored, tmp_path: Path
) -> None:
    """Nothing has changed since; and a round that has all of them asks for none again."""
    sketches = SketchFolder(tmp_path / "new")
    segments = stored.segments(sketches)
    stored.blobs.away = set(stored.blobs.keys())
    segments.run_once(threading.Event())
    assert not stored.has_all(sketches)
    stored.blobs.away.clear()
    segments.run_once(threading.Event())
    assert stored.has_all(sketches)
    stored.blobs.head_reads.clear()
    segments.run_once(threading.Event())
    assert [] == stored.blobs.head_reads


def test_a_damaged_pack_is_made_again(stored: Stored, tmp_path: Path) -> None:
    """It holds up no other sketches."""
    stored.writer()
    [damaged, whole] = stored.packs()
    stored.blobs.damage(str(damaged))
    assert stored.has_all(stored.machine(tmp_path / "new"))
    assert [whole] == [key for key in stored.packs() if key in {damaged, whole}]


def test_a_lost_pack_is_made_again(stored: Stored, tmp_path: Path) -> None:
    """As after a restoration, which has no packs: the sketches come from objects meanwhile."""
    stored.writer()
    before = stored.packs()
    stored.blobs.delete_many([str(key) for key in before])
    assert stored.has_all(stored.machine(tmp_path / "new"))
    assert MODELS == len(stored.blobs.head_reads)
    stored.writer()
    assert 2 == len(stored.packs())
    assert not {*before} & {*stored.packs()}


def test_a_lost_pack_between_others_is_made_again(stored: Stored, tmp_path: Path) -> None:
    """It has the place of the one before, and the sketches of those that are left of it."""
    stored.writer()
    [first, last] = stored.packs()
    stored.blobs.delete_many([str(first)])
    assert stored.app.http.delete("/v1/spaces/s/models/m1").is_success
    del stored.supports["m1"]
    assert stored.has_all(stored.machine(tmp_path / "new"))
    [again, kept] = stored.packs()
    assert kept == last
    assert again not in {None, first, last}
    assert stored.has_all(stored.machine(tmp_path / "another"))
    assert ({again, kept}, 2) == ({*stored.blobs.reads}, len(stored.blobs.head_reads))


def test_what_a_backup_brought_is_read_whole_once(stored: Stored, tmp_path: Path) -> None:
    """Its objects have no heads; then there are packs, and only the rest is read whole again."""
    for key in [*stored.blobs.keys()]:
        data = bytes(stored.blobs.read(key))
        stored.blobs.delete_many([key])
        stored.blobs.write(key, data)
    assert stored.has_all(stored.machine(tmp_path / "new"))
    assert MODELS == len(stored.blobs.reads)
    packs = stored.packs()
    assert 2 == len(packs)
    assert stored.has_all(stored.machine(tmp_path / "another"))
    assert (packs, 2 + 2) == (stored.blobs.reads[:2], len(stored.blobs.reads))


def test_a_range_is_packed_by_one_process(stored: Stored, tmp_path: Path) -> None:
    """Others leave it to the one that claimed it, unless that has died an hour ago."""
    with stored.app.database.writing() as session:
        [space] = all_spaces(session)
        assert segment_repository.claim(session, space.id, 1, 4)
        assert not segment_repository.claim(session, space.id, 1, 4)
    stored.writer()
    assert [None, 1] == [stored.packs()[0], len(stored.packs()[1:])]
    with stored.app.database.writing() as session:
        session.execute(delete(SketchSegmentRow).where(SketchSegmentRow.first_id > 1))
        long_ago = datetime.now(UTC) - timedelta(hours=2)
        session.execute(update(SketchSegmentRow).values(claimed_at=long_ago))
    stored.writer()
    assert 2 == len([key for key in stored.packs() if key])


def test_packs_go_with_their_space(stored: Stored, tmp_path: Path) -> None:
    """No sweep takes them for orphans, and nothing of a deleted space stays."""
    stored.writer()
    assert MODELS + 2 == len([*stored.blobs.keys()])
    with stored.app.database.reading() as session:
        assert set() == orphans(session, [*stored.blobs.keys()])
    assert 204 == stored.app.http.delete("/v1/spaces/s").status_code
    BlobCleanup(stored.app.database, stored.blobs, 0.0).run_once()
    assert [] == [*stored.blobs.keys()]


@pytest.mark.parametrize("named", [True, False], ids=["of this version", "of 0.2.0"])
def test_packs_that_change_places_sway_nothing(stored: Stored, tmp_path: Path, named: bool) -> None:
    """A pack names its key, and each of its sketches the content that it was made from."""
    stored.writer()
    first, second = (str(key) for key in stored.packs())
    data = {key: bytes(obstore.get(stored.blobs.store, key).bytes()) for key in (first, second)}
    for key, other in ((first, second), (second, first)):
        front = data[other][:FRONT_BYTES]
        front = front if named else front[:-8] + bytes(8)
        obstore.put(stored.blobs.store, key, front + data[other][FRONT_BYTES:])
    assert stored.has_all(stored.machine(tmp_path / "another"))
