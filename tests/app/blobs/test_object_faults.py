"""An object store behind a network: nothing acknowledged is lost, nothing read is wrong."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import httpx
import obstore
import pytest

from app.blob_stores import open_objects
from app.infra.errors import Unavailable
from app.infra.storage import object_blobs, object_store
from app.infra.storage.blobs import DamagedBlob
from app.infra.storage.cached_blobs import CachedBlobs
from app.infra.storage.object_blobs import ObjectBlobs
from app.infra.storage.object_store import open_store
from tests.support.repetitions import repetitions
from tests.support.servers.s3_proxy import FAULTS, Fault, S3Proxy, s3_proxy
from tests.support.servers.s3_server import S3

DATA = bytes(range(256)) * 400


@pytest.fixture
def proxy(s3: S3, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Proxy]:
    """A proxy that the stores of a test go through."""
    with s3_proxy(s3.url) as running:
        for name, value in s3.variables(running.url).items():
            monkeypatch.setenv(name, value)
        yield running


@pytest.fixture
def objects(s3: S3, proxy: S3Proxy) -> ObjectBlobs:
    """An empty bucket behind the proxy, which is asked again at once after it failed."""
    assert proxy.url
    return ObjectBlobs(open_store(s3.bucket()), "realm", pause=0.0)


@pytest.fixture
def cached(objects: ObjectBlobs, tmp_path: Path) -> Iterator[CachedBlobs]:
    """The same with the cache of a machine."""
    with closing(CachedBlobs(objects, tmp_path / "cache")) as blobs:
        blobs.prepare()
        yield blobs


@pytest.mark.parametrize("fault", ["slow down", "reset", "lost", "twice", "slow"])
def test_a_put_that_meets_a_fault_once_is_stored_once(
    objects: ObjectBlobs, proxy: S3Proxy, fault: Fault
) -> None:
    """Its key is taken by what it wrote itself; that is success."""
    faults: list[Fault] = [fault]
    proxy.fault = lambda method, _: faults.pop() if faults and method == "PUT" else ""
    key = objects.put("7", DATA)
    assert not faults
    proxy.fail("")
    assert [key] == list(objects.keys())
    assert DATA == objects.open(key)


def test_a_key_of_another_blob_is_refused(objects: ObjectBlobs) -> None:
    """Nothing is ever overwritten."""
    key = objects.put("7", DATA)
    with pytest.raises(Unavailable):
        objects.write(key, b"another")
    assert DATA == objects.open(key)


def test_a_store_that_is_away_has_lost_nothing(objects: ObjectBlobs, proxy: S3Proxy) -> None:
    """*Cannot say* is never *has none*, nor *is damaged*."""
    key = objects.put("7", DATA)
    for fault in FAULTS[:2]:
        proxy.fail(fault)
        for ask in (objects.open, objects.size, objects.head, lambda k: objects.holds(k, DATA)):
            with pytest.raises(Unavailable, match="object store failed"):
                ask(key)
        with pytest.raises(Unavailable):
            objects.store_id()
    proxy.fail("")
    assert objects.holds(key, DATA)


@pytest.mark.usefixtures("proxy")
@pytest.mark.parametrize("damage", [b"", b"MK", bytes(9000)], ids=len)
def test_a_damaged_object_is_no_outage(s3: S3, damage: bytes) -> None:
    """Its front is refused as damaged, an empty one too; the store is asked on at once."""
    store = open_store(s3.bucket())
    blobs = ObjectBlobs(store, "realm", pause=60.0)
    damaged, whole = (blobs.put("7", DATA) for _ in range(2))
    obstore.put(store, damaged, damage)
    for ask in (blobs.open, blobs.size, blobs.head):
        with pytest.raises(DamagedBlob):
            ask(damaged)
        assert DATA == blobs.open(whole)
    assert not blobs.holds(damaged, DATA)
    assert {damaged: b"", whole: b""} == blobs.heads([damaged, whole], 9)


def test_a_store_that_failed_is_left_alone_for_a_while(s3: S3, proxy: S3Proxy) -> None:
    """The first caller waits; the others are refused at once, until one succeeds again."""
    objects = ObjectBlobs(open_store(s3.bucket()), "realm", pause=0.3)
    key = objects.put("7", DATA)
    proxy.fail("reset")
    with pytest.raises(Unavailable):
        objects.open(key)
    asked = proxy.asked.total()
    proxy.fail("")
    with pytest.raises(Unavailable, match="does not answer"):
        objects.open(key)
    assert asked == proxy.asked.total()
    time.sleep(0.3)
    assert DATA == objects.open(key)


def test_a_silent_store_is_waited_for_in_bounded_time(
    s3: S3, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For 5 seconds, once; for 30 where an object takes long to send."""
    assert (5.0, 30.0) == (object_store.SILENT_S, object_store.PATIENT_S)
    assert 2 << 20 == object_blobs.LARGE_BYTES
    url = s3.bucket()
    ready = open_objects(url, "realm")
    key = ready.put("7", b"small")
    for module, limit, value in (
        (object_store, "SILENT_S", 0.2),
        (object_store, "PATIENT_S", 10.0),
        (object_store, "RETRY_S", 0.2),
        (object_blobs, "RETRY_S", 0.2),
        (object_blobs, "LARGE_BYTES", len(DATA)),
    ):
        monkeypatch.setattr(module, limit, value)
    objects = ObjectBlobs(open_store(url), "realm", open_store(url, patient=True), pause=0.0)
    proxy.asked.clear()
    with proxy.silent():
        for ask in (
            lambda: objects.put("7", b"another"),
            lambda: objects.open(key),
            lambda: objects.delete_many([key]),
        ):
            began = time.monotonic()
            with pytest.raises(Unavailable, match="object store failed"):
                ask()
            assert 0.2 <= time.monotonic() - began < 8
        assert {"PUT": 1, "GET": 1, "POST": 1} == proxy.asked
    proxy.delay = 0.5  # as where much is sent
    large = open_objects(url, "realm").put("7", DATA)
    proxy.delay = 0.0
    assert DATA == ready.open(large)


def test_faults_at_random(
    cached: CachedBlobs, objects: ObjectBlobs, proxy: S3Proxy, tmp_path: Path
) -> None:
    """Each fourth request fails in some way: a put is whole or refused, a read right or refused.

    Afterwards all that was acknowledged is there, read by a machine that has none of it.
    """
    drawn = random.Random(19)
    proxy.fault = lambda *_: drawn.choice(FAULTS) if drawn.random() < 0.25 else ""
    stored: dict[str, bytes] = {}
    refused = 0
    for _ in range(repetitions(1000, 60)):
        data = drawn.randbytes(drawn.choice((10, 5_000, 200_000)))
        try:
            stored[cached.put("7", data)] = data
        except Unavailable:
            refused += 1
        key = drawn.choice(sorted(stored)) if stored else None
        if key is not None:
            (tmp_path / "cache" / key).unlink(missing_ok=True)
            with suppress(Unavailable):
                assert stored[key] == cached.open(key)
    proxy.fail("")
    assert len(stored) > refused
    with closing(CachedBlobs(objects, tmp_path / "another")) as another:
        another.prepare()
        assert set() == another.fetch(stored, 60)
        assert stored == {key: bytes(another.open(key)) for key in stored}


def test_one_download_serves_all_who_ask(
    cached: CachedBlobs, objects: ObjectBlobs, proxy: S3Proxy
) -> None:
    """A support that many requests want at once comes once, and then none asks the store."""
    key = objects.put("7", DATA)
    proxy.asked.clear()
    proxy.delay = 0.1
    barrier = threading.Barrier(16)

    def ask(_: int) -> bytes:
        barrier.wait()
        return bytes(cached.open(key))

    with ThreadPoolExecutor(16) as threads:
        assert {DATA} == set(threads.map(ask, range(16)))
    assert 1 == proxy.asked["GET"]
    assert DATA == cached.open(key)
    assert 1 == proxy.asked["GET"]


def test_what_was_written_here_is_never_downloaded(cached: CachedBlobs, proxy: S3Proxy) -> None:
    """The writer's own machine has it, also while the store is away."""
    keys = cached.put_many("7", [DATA, b"b"])
    proxy.fail("reset")
    assert [DATA, b"b"] == [bytes(cached.open(key)) for key in keys]
    with pytest.raises(Unavailable):
        cached.put("7", b"c")


def test_many_come_side_by_side_within_their_time(
    cached: CachedBlobs, objects: ObjectBlobs, proxy: S3Proxy
) -> None:
    """40 requests of 0.1 s take less than one second; what is late is named, and comes later."""
    keys = objects.put_many("7", [b"%d" % i for i in range(40)])
    proxy.delay = 0.1
    began = time.monotonic()
    assert set() == cached.fetch(keys, 10)
    assert time.monotonic() - began < 2
    late = objects.put("7", b"late")
    proxy.delay = 0.5
    assert {late} == cached.fetch([*keys, late], 0.05)
    assert b"late" == bytes(cached.open(late))
    proxy.fail("reset")
    gone = f"{late[:-2]}ff"
    assert {gone} == cached.fetch([late, gone], 10)


def test_a_bucket_that_is_not_there_cannot_be_used(s3: S3, proxy: S3Proxy) -> None:
    """The start says so, and each write, rather than end with a fault of the service."""
    assert proxy.url
    objects = ObjectBlobs(open_store("s3://no-such-bucket/modelkin"), "realm", pause=0.0)
    for ask in (
        objects.prepare,
        objects.store_id,
        lambda: objects.claim_store_id("drawn"),
        lambda: objects.put("7", DATA),
        lambda: objects.put_many("7", [DATA, b"b"]),
        lambda: objects.set_lineage("drawn"),
    ):
        with pytest.raises(Unavailable, match="there is no such bucket"):
            ask()


def test_a_bucket_that_is_deleted_has_not_lost_its_supports(s3: S3, proxy: S3Proxy) -> None:
    """*There is no bucket* is never *has none*, nor an empty list, nor *all are deleted*."""
    assert proxy.url
    url = s3.bucket()
    objects = ObjectBlobs(open_store(url), "realm", pause=0.0)
    objects.prepare()
    key = objects.put("7", DATA)
    objects.delete_many([key])
    assert httpx.delete(f"{s3.url}/{url.split('/')[2]}", trust_env=False).is_success
    for ask in (
        lambda: objects.open(key),
        lambda: objects.head(key),
        lambda: objects.size(key),
        lambda: objects.holds(key, DATA),
        lambda: objects.put("7", DATA),
        lambda: objects.delete_many([key]),
        lambda: list(objects.keys()),
    ):
        with pytest.raises(Unavailable, match="there is no such bucket"):
            ask()


def test_a_start_lists_its_bucket(objects: ObjectBlobs, proxy: S3Proxy) -> None:
    """Credentials that may read and write objects, and list none, are refused at once."""
    proxy.fault = lambda _, path: "slow down" if "list-type" in path else ""
    with pytest.raises(Unavailable, match="could not be listed"):
        objects.prepare()


def test_no_failure_leaves_some_of_many(
    objects: ObjectBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the error is."""
    write = objects.write

    def broken(key: str, data: bytes, head: bytes = b"") -> None:
        write(key, data, head)
        if data == b"2":
            raise RuntimeError("a bug")

    monkeypatch.setattr(objects, "write", broken)
    with pytest.raises(RuntimeError):
        objects.put_many("7", [b"%d" % i for i in range(4)])
    assert [] == list(objects.keys())
