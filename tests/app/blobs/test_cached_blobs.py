"""The cache of a machine: what is mapped stays, the least used go, nothing spoilt is read."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import obstore.store
import pytest

from app.infra.storage.cached_blobs import CachedBlobs
from app.infra.storage.file_blobs import FileBlobs
from app.infra.storage.object_blobs import ObjectBlobs
from tests.app.blobs.test_blobs import largest_file
from tests.support.blob_files import blob_files

DATA = bytes(range(256)) * 400
SIZE = len(DATA) + 4
"""Of a cached file."""


@pytest.fixture
def objects() -> ObjectBlobs:
    """An empty store."""
    return ObjectBlobs(obstore.store.MemoryStore(), "realm")


def machine(objects: ObjectBlobs, folder: Path, max_bytes: int | None = None) -> CachedBlobs:
    """A machine with an empty cache."""
    blobs = CachedBlobs(objects, folder / "cache", max_bytes)
    blobs.prepare()
    return blobs


def test_the_least_recently_used_go(objects: ObjectBlobs, tmp_path: Path) -> None:
    """The folder stays below its limit; what is used stays; what went comes again."""
    blobs = machine(objects, tmp_path, 10 * SIZE)
    keys = [blobs.put("7", DATA) for _ in range(9)]
    for age, key in enumerate(keys):
        os.utime(tmp_path / "cache" / key, (1e9 - age, 1e9 - age))
    blobs.open(keys[-1])
    more = [blobs.put("7", DATA) for _ in range(4)]
    files = {path.name for path in blob_files(tmp_path / "cache")}
    assert sum(path.stat().st_size for path in blob_files(tmp_path / "cache")) <= 10 * SIZE
    assert {key.rpartition("/")[2] for key in (keys[-1], *more)} <= files
    assert DATA == blobs.open(keys[-2])


def test_what_is_mapped_stays_when_its_file_goes(objects: ObjectBlobs, tmp_path: Path) -> None:
    """Another process may evict, or another machine delete, what a comparison reads."""
    blobs = machine(objects, tmp_path)
    mapped = blobs.open(blobs.put("7", DATA))
    for path in blob_files(tmp_path / "cache"):
        path.unlink()
    assert DATA == mapped


def test_a_shared_folder_may_cut_what_a_machine_has_mapped(tmp_path: Path) -> None:
    """A mapping of the folder's own file would end the process with SIGBUS."""
    files = FileBlobs(tmp_path / "shared", "realm")
    blobs = CachedBlobs(files, tmp_path / "cache")
    blobs.prepare()
    key = files.put("7", DATA)
    mapped = blobs.open(key)
    with (tmp_path / "shared" / key).open("r+b") as file:
        file.truncate(0)
    assert DATA == mapped


def test_a_file_that_a_power_loss_spoilt_is_not_used(objects: ObjectBlobs, tmp_path: Path) -> None:
    """Files are not synced: those from before the machine's start are compared with their sum."""
    blobs = machine(objects, tmp_path)
    key = blobs.put("7", DATA)
    path = tmp_path / "cache" / key
    path.write_bytes(bytes(SIZE))
    os.utime(path, (1e9, 1e9))
    assert DATA == blobs.open(key)
    whole = path.stat().st_ino
    os.utime(path, (1e9, 1e9))
    assert DATA == blobs.open(key)
    assert whole == path.stat().st_ino


def test_without_room_supports_are_read_all_the_same(objects: ObjectBlobs, tmp_path: Path) -> None:
    """A full disk costs a download for each use, and no answer."""
    blobs = machine(objects, tmp_path)
    key = objects.put("7", DATA)
    with largest_file(1000):
        assert DATA == blobs.open(key)
        assert DATA == blobs.open(blobs.put("7", DATA))
    assert set() == blob_files(tmp_path / "cache")


def test_a_damaged_copy_goes_when_its_content_is_sent_again(
    objects: ObjectBlobs, tmp_path: Path
) -> None:
    """The store has it, so no model moves; the copy of this machine is fetched again."""
    blobs = machine(objects, tmp_path)
    key = blobs.put("7", DATA)
    path = tmp_path / "cache" / key
    path.write_bytes(b"!" + path.read_bytes()[1:])
    assert DATA != blobs.open(key)
    assert blobs.holds(key, DATA)
    assert DATA == blobs.open(key)


class Held(ObjectBlobs):
    """Objects that come when they are released."""

    def __init__(self) -> None:
        super().__init__(obstore.store.MemoryStore(), "realm")
        self.begun = threading.Semaphore(0)
        self.released = threading.Event()

    def read(self, key: str) -> memoryview:
        self.begun.release()
        assert self.released.wait(60)
        return super().read(key)


def test_what_one_gives_up_comes_for_the_others(tmp_path: Path) -> None:
    """A search whose time is over ends no download that another waits for, only its own.

    All threads are busy, so that each waits for its turn.
    """
    objects = Held()
    blobs = machine(objects, tmp_path)
    busy = objects.put_many("7", [b"%d" % i for i in range(32)])
    wanted, unwanted = objects.put_many("7", [DATA, b"unwanted"])
    with ThreadPoolExecutor(2) as searches:
        searches.submit(blobs.fetch, busy, 60)
        for _ in busy:
            assert objects.begun.acquire(timeout=60)
        patient = searches.submit(blobs.fetch, [wanted], 60)
        while wanted not in blobs.downloading:
            time.sleep(0.01)
        assert {wanted, unwanted} == blobs.fetch([wanted, unwanted], 0.01)
        assert wanted in blobs.downloading
        assert unwanted not in blobs.downloading
        objects.released.set()
        assert set() == patient.result(60)
    assert DATA == blobs.open(wanted)
