"""One contract for every store of blobs: memory, files, objects, and the cache over each."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import obstore.store
import pytest

from app.infra.errors import Unavailable
from app.infra.storage import object_blobs
from app.infra.storage.blobs import BlobStore
from app.infra.storage.cached_blobs import CachedBlobs
from app.infra.storage.file_blobs import FileBlobs
from app.infra.storage.object_blobs import ObjectBlobs
from app.infra.storage.object_store import open_store
from tests.support.servers.s3_server import S3

pytestmark = pytest.mark.smoke

LARGE = bytes(range(256)) * 300  # is mapped
CONTENTS = [b"x", b"", LARGE, b"y" * 1000]
Make = Callable[[Path], BlobStore]


def files(folder: Path) -> BlobStore:
    return FileBlobs(folder / "files", "realm")


def memory(_: Path) -> BlobStore:
    return ObjectBlobs(obstore.store.MemoryStore(), "realm")


@pytest.fixture
def objects(s3: S3, monkeypatch: pytest.MonkeyPatch) -> Make:
    """An S3, with a bucket of this test's own."""
    for name, value in s3.variables().items():
        monkeypatch.setenv(name, value)
    url = s3.bucket()
    return lambda _: ObjectBlobs(open_store(url), "realm")


IN_OBJECTS = [
    pytest.param(kind, marks=pytest.mark.objects) for kind in ("objects", "cached objects")
]


@pytest.fixture(params=["files", "memory", "cached files", *IN_OBJECTS])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BlobStore]:
    """An empty store of each kind."""
    kind = request.param.removeprefix("cached ")
    make = {"files": files, "memory": memory}.get(kind) or request.getfixturevalue("objects")
    store = make(tmp_path)
    if request.param != kind:
        store = CachedBlobs(store, tmp_path / "cache")
    store.prepare()
    with closing(store):
        yield store


def test_what_is_put_is_read(blobs: BlobStore) -> None:
    """Each content is under a key of its own, and has its size; the sweep lists just these."""
    keys = blobs.put_many("7", CONTENTS)
    assert CONTENTS == [bytes(blobs.open(key)) for key in keys]
    assert CONTENTS == [bytes(blobs.read(key)) for key in keys]
    assert [len(data) for data in CONTENTS] == [blobs.size(key) for key in keys]
    assert sorted(keys) == sorted(blobs.keys())
    assert [] == list(blobs.keys(older_than=3600))
    assert [] == blobs.put_many("7", [])
    assert set() == blobs.fetch(keys, 10)


def test_a_key_without_a_blob_says_so(blobs: BlobStore) -> None:
    """There being none is an answer of the store, and no fault of it."""
    key = f"{blobs.put('7', b'a')[:-2]}zz"
    for ask in (blobs.open, blobs.read):
        with pytest.raises(KeyError):
            ask(key)
    assert blobs.size(key) is None
    assert not blobs.holds(key, b"a")
    blobs.delete(key)
    blobs.delete_many([key])


def test_the_same_bytes_are_recognised(blobs: BlobStore) -> None:
    """A put of what is there need not write it again."""
    key = blobs.put("7", LARGE)
    assert blobs.holds(key, LARGE)
    assert not blobs.holds(key, LARGE[:-1])
    assert not blobs.holds(key, LARGE[:-1] + b"!")


def test_a_blob_of_a_backup_keeps_its_key(blobs: BlobStore) -> None:
    """Rows of a restored database name it."""
    key = "realm/7/ab/" + "ab" * 16
    blobs.write(key, LARGE)
    assert LARGE == bytes(blobs.open(key))


def test_what_is_deleted_is_gone(blobs: BlobStore) -> None:
    """One blob, some, or all of a space and no other's."""
    keys = blobs.put_many("7", CONTENTS)
    other = blobs.put("77", b"of another space")
    blobs.delete(keys[0])
    blobs.delete_many(keys[1:3])
    assert {keys[3], other} == set(blobs.keys())
    blobs.delete_folder("realm/7/")
    assert [other] == list(blobs.keys())
    with pytest.raises(KeyError):
        blobs.open(keys[3])


def test_what_is_mapped_outlives_its_blob(blobs: BlobStore) -> None:
    """A comparison goes on with a support that is deleted meanwhile."""
    data = blobs.open(blobs.put("7", LARGE))
    blobs.delete_folder("realm/7/")
    assert LARGE == bytes(data)


def test_a_store_keeps_its_id_and_its_lineage(blobs: BlobStore) -> None:
    """The first id stays when others are drawn; the last lineage does."""
    assert blobs.store_id() is None
    assert "first" == blobs.claim_store_id("first")
    assert "first" == blobs.claim_store_id("second") == blobs.store_id()
    assert blobs.lineage() is None
    for lineage in ("a", "b"):
        blobs.set_lineage(lineage)
        assert lineage == blobs.lineage()
    assert [] == list(blobs.keys())


@pytest.mark.parametrize("make", [files, memory])
def test_stores_of_two_databases_do_not_meet(make: Make, tmp_path: Path) -> None:
    """Each lists its own blobs alone."""
    one = make(tmp_path)
    one.prepare()
    key = one.put("7", b"mine")
    if isinstance(one, FileBlobs):
        other: BlobStore = FileBlobs(one.root, "other")
        assert [] == list(other.keys())
    assert [key] == list(one.keys())


def test_a_large_object_goes_in_parts(
    objects: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 64 MiB on it is written, and from 32 MiB on read, by several requests at a time."""
    assert (64 << 20, 32 << 20) == (
        object_blobs.MULTIPART_BYTES,
        object_blobs.MANY_RANGES_BYTES,
    )
    for limit in ("MULTIPART_BYTES", "MANY_RANGES_BYTES", "PART_BYTES"):
        monkeypatch.setattr(object_blobs, limit, 5 << 20)  # the smallest part
    monkeypatch.setattr(object_blobs, "RANGE_BYTES", 1 << 20)
    blobs, data = objects(tmp_path), random.Random(1).randbytes(6 << 20)
    assert data == blobs.open(blobs.put("7", data))


def test_few_large_objects_are_read_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many are asked for: all of them are in memory."""
    monkeypatch.setattr(object_blobs, "MANY_RANGES_BYTES", 1)
    get_ranges, reading, most = obstore.get_ranges, 0, 0

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        time.sleep(0.02)
        reading -= 1
        return get_ranges(*arguments, **options)

    monkeypatch.setattr(obstore, "get_ranges", counted)
    blobs = memory(tmp_path)
    keys = blobs.put_many("7", [LARGE] * 12)
    with ThreadPoolExecutor(12) as readers:
        assert [LARGE] * 12 == list(readers.map(blobs.read, keys))
    assert 1 < most <= object_blobs.MAX_LARGE_READS == 4


def test_a_head_is_read_without_its_data(objects: Make, tmp_path: Path) -> None:
    """What precedes a blob comes by one request of its own; files have none."""
    blobs, head = objects(tmp_path), bytes(range(64))
    key = blobs.put("7", LARGE, head)
    assert head == blobs.head(key)
    assert LARGE == bytes(blobs.open(key))
    assert files(tmp_path).head(key) is None


def test_a_damaged_object_is_no_support(tmp_path: Path) -> None:
    """One that is cut, changed or foreign is named as damaged, and put again with its content."""
    store = obstore.store.MemoryStore()
    blobs = ObjectBlobs(store, "realm")
    key = blobs.put("7", LARGE, b"h" * 64)
    whole = bytes(obstore.get(store, key).bytes())
    for spoilt in (b"", whole[:-1], whole[:70], b"no blob" * 40, whole[:-1] + b"!", whole + b"!"):
        obstore.put(store, key, spoilt)
        with pytest.raises(Unavailable, match=r"could not be read: it"):
            blobs.open(key)
    for spoilt in (b"", whole[:-1], whole[:-1] + b"!"):
        obstore.put(store, key, spoilt)
        assert not blobs.holds(key, LARGE)
    obstore.put(store, key, whole[:80] + b"?" + whole[81:])
    with pytest.raises(Unavailable, match="damaged"):
        blobs.head(key)
