"""Folders, caches and buckets that lie: an answer is right, says `degraded`, or is a 503.

A lie changes what is stored behind a running service. Each is told to a service that has verified
all supports before, and to one that has verified none.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import obstore
import obstore.store
import pytest

from app.infra.storage import verified_files
from app.infra.storage.blob_objects import FRONT_BYTES, decode_front
from app.infra.storage.object_blobs import ObjectBlobs
from app.settings import Settings
from tests.support.app.harness import open_app
from tests.support.app.honesty import Answers, Stand, require_honest

HTML: Final = b"<!DOCTYPE html><title>Sign in</title>" * 20


class Blobs:
    """The blobs of a folder or a bucket, as one who may write there sees them.

    Args:
        keys: their keys, by the names of their models.
    """

    def __init__(self, keys: dict[str, str]) -> None:
        self.keys = keys

    def read(self, name: str) -> bytes:
        """The bytes of a model's blob."""
        raise NotImplementedError

    def write(self, name: str, data: bytes) -> None:
        """Replace the bytes of a model's blob."""
        raise NotImplementedError

    def delete(self, name: str) -> None:
        """Delete the blob of a model."""
        raise NotImplementedError

    def keep(self) -> dict[str, bytes]:
        """All that is stored, to write it again."""
        return {name: self.read(name) for name in self.keys}


class Files(Blobs):
    """Blobs in a folder."""

    def __init__(self, keys: dict[str, str], folder: Path) -> None:
        super().__init__(keys)
        self.folder = folder

    def read(self, name: str) -> bytes:
        return (self.folder / self.keys[name]).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        (self.folder / self.keys[name]).write_bytes(data)

    def delete(self, name: str) -> None:
        (self.folder / self.keys[name]).unlink()


class Objects(Blobs):
    """Blobs in a bucket."""

    def __init__(self, keys: dict[str, str], store: obstore.store.MemoryStore) -> None:
        super().__init__(keys)
        self.store = store

    def read(self, name: str) -> bytes:
        return bytes(obstore.get(self.store, self.keys[name]).bytes())

    def write(self, name: str, data: bytes) -> None:
        obstore.put(self.store, self.keys[name], data)

    def delete(self, name: str) -> None:
        obstore.delete(self.store, self.keys[name])


Lie = Callable[[Blobs], None]


def change(blobs: Blobs, data: Callable[[bytes], bytes]) -> None:
    """Change the bytes of `a` and `b`."""
    for name in "ab":
        blobs.write(name, data(blobs.read(name)))


def exchange(blobs: Blobs, a: str = "b", b: str = "c") -> None:
    """Let two blobs of equal K change places."""
    ours, theirs = blobs.read(a), blobs.read(b)
    blobs.write(a, theirs)
    blobs.write(b, ours)


def exchange_all(blobs: Blobs) -> None:
    """Leave no blob in its place."""
    exchange(blobs, "a", "d")
    exchange(blobs)


def one_for_all(blobs: Blobs) -> None:
    """Serve the blob of `a` for every key."""
    for name in blobs.keys:
        blobs.write(name, blobs.read("a"))


def delete_all(blobs: Blobs) -> None:
    """Delete the blobs of all models."""
    for name in blobs.keys:
        blobs.delete(name)


def flip_two(data: bytes) -> bytes:
    """Move an index of a bitmap: K bits are set as before."""
    at = next(i for i in range(len(data) - 400, len(data)) if data[i] & 3 in {1, 2})
    return data[:at] + bytes([data[at] ^ 3]) + data[at + 1 :]


EVERYWHERE: Final[dict[str, Lie]] = {
    "exchanged": exchange,
    "all exchanged": exchange_all,
    "one for all": one_for_all,
    "an old version": lambda blobs: blobs.write("b", blobs.read("old")),
    "of another space": lambda blobs: blobs.write("b", blobs.read("foreign")),
    "lost": lambda blobs: blobs.delete("b"),
    "all lost": delete_all,
    "cut": lambda blobs: change(blobs, lambda data: data[:-1]),
    "half": lambda blobs: change(blobs, lambda data: data[: len(data) // 2]),
    "extended": lambda blobs: change(blobs, lambda data: data + b"\0"),
    "doubled": lambda blobs: change(blobs, lambda data: data * 2),
    "empty": lambda blobs: change(blobs, lambda _: b""),
    "zeros": lambda blobs: change(blobs, lambda data: bytes(len(data))),
    "a page": lambda blobs: change(blobs, lambda _: HTML),
    "a page as long": lambda blobs: change(blobs, lambda data: (HTML * 99)[: len(data)]),
    "a flipped bit": lambda blobs: change(
        blobs, lambda data: data[:-900] + bytes([data[-900] ^ 1]) + data[-899:]
    ),
    "a moved index": lambda blobs: change(blobs, flip_two),
    "one's begin, another's end": lambda blobs: blobs.write(
        "b", blobs.read("b")[:9000] + blobs.read("c")[9000:]
    ),
}


def with_rename(blobs: Blobs) -> None:
    """Let two files change places, with all that a file system notes of them."""
    assert isinstance(blobs, Files)
    a, b = (blobs.folder / blobs.keys[name] for name in "bc")
    kept = a.with_name("kept")
    os.rename(a, kept)
    os.rename(b, a)
    os.rename(kept, b)


def with_link(blobs: Blobs) -> None:
    """Give one file two names."""
    assert isinstance(blobs, Files)
    a, b = (blobs.folder / blobs.keys[name] for name in "bc")
    a.unlink()
    os.link(b, a)


def with_folder(blobs: Blobs) -> None:
    """Put a folder in the place of a file."""
    assert isinstance(blobs, Files)
    path = blobs.folder / blobs.keys["b"]
    path.unlink()
    path.mkdir()


def in_place(blobs: Blobs) -> None:
    """Exchange the bytes of two files, and give each its time back, as copies that keep times."""
    assert isinstance(blobs, Files)
    paths = [blobs.folder / blobs.keys[name] for name in "bc"]
    times = [path.stat() for path in paths]
    exchange(blobs)
    for path, before in zip(paths, times, strict=True):
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


IN_FOLDERS: Final[dict[str, Lie]] = {
    "exchanged at their times": in_place,
    "renamed": with_rename,
    "linked": with_link,
    "a folder": with_folder,
}


def start_of(blobs: Blobs, name: str) -> int:
    """The place where the data of an object begin."""
    data = blobs.read(name)
    return decode_front(blobs.keys[name], data, total=len(data))[0].start


def flip_at(place: Callable[[int], int]) -> Lie:
    """Flip a bit of an object, at a place that depends on where its data begin."""

    def lie(blobs: Blobs) -> None:
        at = place(start_of(blobs, "b"))
        data = bytearray(blobs.read("b"))
        data[at] ^= 1
        blobs.write("b", bytes(data))

    return lie


def exchange_between(begin: int, end: int) -> Lie:
    """Exchange parts of two objects."""

    def lie(blobs: Blobs) -> None:
        ours, theirs = blobs.read("b"), blobs.read("c")
        blobs.write("b", ours[:begin] + theirs[begin:end] + ours[end:])
        blobs.write("c", theirs[:begin] + ours[begin:end] + theirs[end:])

    return lie


def unbind(blobs: Blobs) -> None:
    """Make all objects those of version 0.2.0, which do not name their keys."""
    for name in blobs.keys:
        data = blobs.read(name)
        blobs.write(name, data[: FRONT_BYTES - 8] + bytes(8) + data[FRONT_BYTES:])


def exchange_old(blobs: Blobs) -> None:
    """Exchange whole objects of version 0.2.0."""
    unbind(blobs)
    exchange(blobs)


HEAD_END: Final = FRONT_BYTES + 8192
IN_BUCKETS: Final[dict[str, Lie]] = {
    "a flipped bit of the front": flip_at(lambda _: 30),
    "a flipped bit of the key": flip_at(lambda _: FRONT_BYTES - 3),
    "a flipped bit of the head": flip_at(lambda start: start - 200),
    "a flipped bit of the data": flip_at(lambda start: start + 200),
    "heads exchanged": exchange_between(FRONT_BYTES, HEAD_END),
    "fronts exchanged": exchange_between(0, FRONT_BYTES),
    "fronts and heads exchanged": exchange_between(0, HEAD_END),
    "data exchanged": exchange_between(HEAD_END, 1 << 20),
    "of 0.2.0": unbind,
    "of 0.2.0, exchanged": exchange_old,
}


@dataclass
class Told:
    """A service, its blobs, and its answers before a lie."""

    stand: Stand
    blobs: Blobs
    right: Answers
    new_machine: bool = False

    def check(self, lie: Lie, *, known: bool) -> None:
        """Tell a lie and require honest answers; and right ones again without the lie."""
        kept = self.blobs.keep()
        if self.new_machine:
            self.stand.empty_machine()
        if known:
            require_honest(self.right, self.stand.ask())
        try:
            lie(self.blobs)
            if self.new_machine:
                self.stand.empty_machine()
            require_honest(self.right, self.stand.ask())
        finally:
            self._restore(kept)
        answers = self.stand.ask()
        require_honest(self.right, answers)
        assert {200} == {answer.status_code for answer in answers.values()}

    def _restore(self, kept: dict[str, bytes]) -> None:
        for name, data in kept.items():
            if isinstance(self.blobs, Files):
                path = self.blobs.folder / self.blobs.keys[name]
                if path.is_dir():
                    path.rmdir()
                path.unlink(missing_ok=True)
                path.parent.mkdir(parents=True, exist_ok=True)
            self.blobs.write(name, data)


QUICK: Final = {
    "exchanged",
    "an old version",
    "a moved index",
    "renamed",
    "exchanged at their times",
    "heads exchanged",
    "of 0.2.0, exchanged",
}
"""Lies that are told in each run of the tests."""


def told(*lies: dict[str, Lie]) -> pytest.MarkDecorator:
    """Parametrize a test by lies."""
    params = [
        pytest.param(lie, id=name, marks=() if name in QUICK else pytest.mark.slow)
        for some in lies
        for name, lie in some.items()
    ]
    return pytest.mark.parametrize("lie", params)


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let files count as verified from the first time on, however new they are."""
    monkeypatch.setattr(verified_files, "_SETTLED_NS", 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """A service with a folder, which keeps no support open."""
    place = tmp_path_factory.mktemp("folder")
    with open_app(place, support_cache_bytes=0) as app:
        stand = Stand(app)
        yield Told(stand, Files(stand.keys, place / "blobs"), stand.ask())


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """A service with a bucket, whose machine is new whenever it is asked."""
    store = obstore.store.MemoryStore()
    with ExitStack() as open_, pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "app.blob_stores.open_objects", lambda _, token: ObjectBlobs(store, token, pause=0)
        )
        place = tmp_path_factory.mktemp("bucket")
        settings: dict[str, Any] = {"blob_url": "s3://bucket/prefix"}
        settings |= {"blob_cache_dir": place / "copies", "support_cache_bytes": 0}
        stand = Stand(open_.enter_context(open_app(place, **settings)))
        yield Told(stand, Objects(stand.keys, store), stand.ask(), new_machine=True)


@pytest.fixture
def copies(bucket: Told) -> Told:
    """The same service, and the copies of its machine."""
    stand, settings = bucket.stand, bucket.stand.app.services[Settings]
    [token] = {key.partition("/")[0] for key in stand.keys.values()}
    stand.empty_machine()
    require_honest(bucket.right, stand.ask())
    for name in ("old", "foreign"):
        path = settings.support_cache_dir / token / stand.keys[name]
        if not path.exists():  # of the other space no question asks
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(settings.support_cache_dir / token / stand.keys["d"], path)
    return Told(stand, Files(stand.keys, settings.support_cache_dir / token), bucket.right)


@pytest.mark.parametrize("known", [False, True], ids=["unknown", "verified before"])
@told(EVERYWHERE, IN_FOLDERS)
def test_a_folder_that_lies(folder: Told, lie: Lie, known: bool) -> None:
    """Of a file that is not its row's no number is called exact; restored, all is right again."""
    folder.check(lie, known=known)


@told(EVERYWHERE, IN_BUCKETS)
def test_a_bucket_that_lies(bucket: Told, lie: Lie) -> None:
    """Neither an object nor its head sways an answer unless it is its row's."""
    bucket.check(lie, known=False)


@pytest.mark.parametrize("known", [False, True], ids=["unknown", "verified before"])
@told(EVERYWHERE, IN_FOLDERS)
def test_copies_that_lie_are_fetched_again(copies: Told, lie: Lie, known: bool) -> None:
    """A bad copy of a machine costs a request of the bucket, and no answer."""
    stand = copies.stand
    if known:
        require_honest(copies.right, stand.ask())
    lie(copies.blobs)
    answers = stand.ask()
    assert {200} == {answer.status_code for answer in answers.values()}
    require_honest(copies.right, answers)
    assert not any(
        answer.json().get("degraded")
        for answer in answers.values()
        if "json" in answer.headers["Content-Type"]
    )
