"""Released blobs stay for a time of grace; a sweep deletes what stays an orphan, and no more."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import httpx
import numpy as np
import pytest
from sqlalchemy import update

from app.infra.db.released_blobs import release
from app.infra.db.tables.catalog import ModelRow
from app.infra.storage.file_blobs import FileBlobs
from app.models.catalog.writer import ModelWriter
from app.models.spaces.repositories.spaces import all_spaces
from app.operations.maintenance.blob_cleanup import BlobCleanup
from app.tenancy.auth.tenants import store_token
from tests.support.app.harness import AppHarness, open_app
from tests.support.backends import Backend
from tests.support.blob_files import (
    age_files,
    blob_files,
    blob_keys,
    named_keys,
    pass_time,
    released_keys,
)
from tests.support.fixtures import Start
from tests.support.http_space import Space, random_support

M, K = 10_000, 50
DAY = timedelta(days=1)
OLD_S = 7200.0
"""Older than a write under way may be."""


class Blobs:
    """A service with one space ``s``, and the clean-up of its blobs."""

    def __init__(self, app: AppHarness, folder: Path) -> None:
        self.app, self.database, self.folder = app, app.database, folder / "blobs"
        with self.database.reading() as session:
            self.realm = store_token(session)
        self.blobs = FileBlobs(self.folder, self.realm)
        self._random = np.random.default_rng(7)

    def put(self, *names: str, space: str = "s") -> None:
        """Give each of the models a new support."""
        for name in names:
            self.app.put_support(space, name, random_support(self._random, M, K))

    def clean(self, grace: timedelta = DAY) -> None:
        """Run the clean-up once."""
        BlobCleanup(self.database, self.blobs, grace.total_seconds()).run_once()

    def clean_after(self, passed: timedelta) -> None:
        """Run it when so much time has passed."""
        pass_time(self.database, passed)
        self.clean()

    def orphan(self, token: str = "ab" * 16) -> str:
        """A file that a crash has left long ago."""
        key = f"{self.realm}/1/{token[:2]}/{token}"
        path = self.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"left by a crash")
        age_files(self.folder, OLD_S)
        return key

    def files(self) -> set[str]:
        """The keys of the files on the disk."""
        return blob_keys(self.folder)


@pytest.fixture
def stored(backend: Backend, tmp_path: Path) -> Iterator[Blobs]:
    """A service whose space has no model."""
    with open_app(tmp_path, backend, keep_revisions=2) as app:
        app.create_space("s", M)
        yield Blobs(app, tmp_path)


def test_what_a_copy_of_the_database_names_stays(stored: Blobs) -> None:
    """Supports that are replaced, or whose model or space is deleted, are there until a day later,
    so a copy of the database from before finds them.
    """
    stored.app.create_space("other", M)
    stored.put("gone", "replaced", "stays")
    stored.put("in-it", space="other")
    before = named_keys(stored.database)
    stored.put("replaced", "replaced", "replaced", "replaced")
    for path in ("spaces/s/models/gone", "spaces/other"):
        assert 204 == stored.app.http.delete(f"/v1/{path}").status_code
    assert before <= stored.files()
    stored.clean_after(DAY - timedelta(minutes=1))
    assert before <= stored.files()
    stored.clean_after(timedelta(minutes=2))
    assert named_keys(stored.database) == stored.files()
    assert set() == released_keys(stored.database)


def test_a_grace_of_zero_deletes_at_the_next_clean_up(stored: Blobs) -> None:
    """Nothing of a deleted model is left then."""
    stored.put("a", "a", "b")
    stored.app.http.delete("/v1/spaces/s/models/a")
    stored.clean(timedelta(0))
    assert named_keys(stored.database) == stored.files()
    assert 1 == len(stored.files())


def test_a_change_that_fails_releases_nothing(stored: Blobs) -> None:
    """The list is written in the transaction of the change."""
    stored.put("a")
    writer, database = stored.app.services[ModelWriter], stored.database
    with database.reading() as session:
        [space] = all_spaces(session, "s")
    with suppress(ZeroDivisionError), database.writing() as session:
        writer.delete(session, space, "a")
        raise ZeroDivisionError
    assert set() == released_keys(database)


def test_a_released_blob_that_a_row_names_stays(stored: Blobs) -> None:
    """Whatever the list says, no support of a model is deleted."""
    stored.put("a")
    with stored.database.writing() as session:
        keys = [*named_keys(stored.database), f"{stored.realm}/1/"]
        release(session, 1, dict.fromkeys(keys, 1))
    stored.clean_after(2 * DAY)
    assert named_keys(stored.database) == stored.files()


def test_an_orphan_is_deleted_when_seen_again_a_day_later(stored: Blobs) -> None:
    """The first sweep only notes it. Released blobs are not orphans, and a younger file may be a
    write under way.
    """
    stored.put("a", "b")
    stored.app.http.delete("/v1/spaces/s/models/b")
    stored.clean()  # draws the first lineage
    orphan, kept = stored.orphan(), stored.files()
    stored.clean_after(DAY / 2)
    stored.clean_after(DAY / 4)
    assert kept == stored.files()
    young = stored.orphan("cd" * 16)
    (stored.folder / young).touch()
    stored.clean_after(DAY)
    assert orphan not in stored.files()
    assert named_keys(stored.database) | {young} == stored.files()


def test_an_orphan_that_is_named_meanwhile_stays(stored: Blobs) -> None:
    """A mended database may name it again."""
    stored.put("a")
    stored.clean()
    orphan = stored.orphan()
    stored.clean_after(DAY / 2)
    with stored.database.writing() as session:
        session.execute(update(ModelRow).values(blob_key=orphan))
    stored.clean_after(2 * DAY)
    assert orphan in stored.files()


def test_what_is_no_blob_of_this_database_stays(stored: Blobs) -> None:
    """Files of others in the folder are not touched."""
    stored.clean()
    stored.orphan()
    foreign = stored.folder / stored.realm / "1" / "notes.txt"
    another = stored.folder / ("0" * 32) / "1" / "ab" / ("ab" * 16)
    for path in (foreign, another):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"another's")
    age_files(stored.folder, OLD_S)
    for _ in range(3):
        stored.clean_after(DAY)
    assert [foreign.exists(), another.exists()] == [True, True]
    assert {another.relative_to(stored.folder).as_posix()} == stored.files()


def test_a_sweep_under_another_lineage_forgets_the_notes(stored: Blobs) -> None:
    """Notes of before another copy of the database swept are worth nothing."""
    stored.clean()
    orphan = stored.orphan()
    stored.clean_after(DAY / 2)
    stored.blobs.set_lineage("0" * 32)  # as the other copy does
    stored.clean_after(2 * DAY)
    stored.clean_after(DAY / 2)
    assert orphan in stored.files()
    stored.clean_after(DAY)
    assert orphan not in stored.files()


def test_one_process_sweeps_at_a_time(stored: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several whose clean-ups come together one reads the folder."""
    sweeps = []
    monkeypatch.setattr(BlobCleanup, "sweep", lambda *_: sweeps.append(1))
    threads = [threading.Thread(target=stored.clean) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [1] == sweeps


@pytest.mark.slow
@pytest.mark.parametrize("age", [0.0, OLD_S])
def test_a_start_on_an_older_copy_deletes_nothing(tmp_path: Path, age: float) -> None:
    """A service that starts on a copy of the database from before 20 of its 40 models, by mistake,
    and sweeps, leaves all 40 to the right one.
    """
    file = tmp_path / "m.db"
    with open_app(tmp_path) as app:
        app.create_space("s", M)
        stored = Blobs(app, tmp_path)
        stored.put(*(f"a{i}" for i in range(20)))
        stored.clean()
    shutil.copy(file, tmp_path / "copy.db")
    with open_app(tmp_path) as app:
        Blobs(app, tmp_path).put(*(f"b{i}" for i in range(20)))
    age_files(tmp_path / "blobs", age)
    shutil.move(file, tmp_path / "right.db")
    shutil.move(tmp_path / "copy.db", file)
    with open_app(tmp_path) as app:
        copy = Blobs(app, tmp_path)
        copy.clean_after(3 * DAY)
        copy.clean_after(DAY / 2)
    assert 40 == len(blob_files(tmp_path / "blobs"))
    shutil.move(tmp_path / "right.db", file)
    with open_app(tmp_path) as app:
        right = Blobs(app, tmp_path)
        right.clean_after(3 * DAY)
        assert {200} == {
            app.http.get(f"/v1/spaces/s/supports/{x}{i}").status_code
            for x in "ab"
            for i in range(20)
        }


@pytest.mark.slow
def test_a_live_service_cleans_up(start: Start) -> None:
    """The clean-up of a running service deletes what is released, once its grace is over."""
    server = start("--maintenance-interval-seconds=0.1", "--blob-grace-seconds=0")
    with httpx.Client(base_url=server.url, trust_env=False) as http:
        space = Space(http, M)
        space.put("a", random_support(np.random.default_rng(1), M, K))
        assert 1 == len(blob_files(server.blobs))
        http.delete(f"/v1/spaces/{space.name}")
    end = time.monotonic() + 20
    while blob_files(server.blobs):
        assert time.monotonic() < end
        time.sleep(0.02)
