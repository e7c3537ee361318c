"""Bytes are compared with their row once, unless their file has changed since."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

from app.infra.storage import verified_files
from app.infra.storage.blobs import BlobStore, DamagedBlob
from app.infra.storage.cached_blobs import CachedBlobs
from app.infra.storage.file_blobs import FileBlobs
from app.infra.storage.verified_files import FileDecoder

DATA = bytes(range(256)) * 100
Change = Callable[[Path], None]


def in_place(path: Path) -> None:
    """Write another byte into the file."""
    with path.open("r+b") as file:
        file.write(b"!")


def cut(path: Path) -> None:
    """Take the last byte."""
    os.truncate(path, len(DATA) - 1)


def exchange(path: Path) -> None:
    """Put another file of the same age and length in its place."""
    other, times = path.with_name("other"), path.stat()
    other.write_bytes(DATA[::-1])
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    os.rename(other, path)


def in_place_at_its_time(path: Path) -> None:
    """Write other bytes, and give the file its time back, as copies that keep times do."""
    times = path.stat()
    with path.open("r+b") as file:
        file.write(DATA[::-1])
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


CHANGES = [in_place, in_place_at_its_time, cut, exchange]


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each change be old enough, since nobody can set the time of an inode back."""
    monkeypatch.setattr(verified_files, "_SETTLED_NS", 0)


class Noting:
    """A decoder that notes whether the bytes were verified before."""

    def __init__(self) -> None:
        self.verified: list[bool] = []

    def __call__(self, data: memoryview, /, *, verified: bool) -> bytes:
        """The bytes, which are ``DATA``."""
        self.verified.append(verified)
        return bytes(FileDecoder(sha256(DATA).digest())(data, verified=verified))


def files(folder: Path) -> BlobStore:
    return FileBlobs(folder / "blobs", "realm")


def copies(folder: Path) -> BlobStore:
    return CachedBlobs(FileBlobs(folder / "elsewhere", "realm"), folder / "blobs")


@pytest.mark.parametrize("make", [files, copies])
def test_a_file_is_verified_once(
    make: Callable[[Path], BlobStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not again, once it is older than what a time of change can tell apart."""
    with closing(make(tmp_path)) as blobs:
        blobs.prepare()
        key, decode = blobs.put("7", DATA), Noting()
        assert [DATA] * 2 == [blobs.open_verified(key, decode) for _ in range(2)]
        monkeypatch.setattr(verified_files, "_SETTLED_NS", 0)
        time.sleep(0.02)
        assert [DATA] * 3 == [blobs.open_verified(key, decode) for _ in range(3)]
        assert [False, False, False, True, True] == decode.verified


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changed_is_verified_again(change: Change, tmp_path: Path) -> None:
    """A damaged one is never taken for verified, however often it is read."""
    blobs = files(tmp_path)
    blobs.prepare()
    key, decode = blobs.put("7", DATA), Noting()
    time.sleep(0.02)  # the kernel's clock of files ticks each 10 ms or sooner
    assert [DATA] * 2 == [blobs.open_verified(key, decode) for _ in range(2)]
    change(tmp_path / "blobs" / key)
    for _ in range(2):
        with pytest.raises(DamagedBlob):
            blobs.open_verified(key, decode)
    assert [False, True, False, False] == decode.verified


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("change", CHANGES)
def test_a_damaged_copy_is_fetched_again(change: Change, tmp_path: Path) -> None:
    """The store has the right bytes, and the copy has them again."""
    with closing(copies(tmp_path)) as blobs:
        blobs.prepare()
        key, decode = blobs.put("7", DATA), Noting()
        time.sleep(0.02)
        assert [DATA] * 2 == [blobs.open_verified(key, decode) for _ in range(2)]
        change(tmp_path / "blobs" / key)
        assert DATA == blobs.open_verified(key, decode)
        assert DATA == bytes(blobs.open(key))


def test_a_store_that_is_damaged_leaves_no_copy(tmp_path: Path) -> None:
    """Its bytes are refused, and asked for again the next time."""
    with closing(copies(tmp_path)) as blobs:
        blobs.prepare()
        key = blobs.put("7", DATA)
        in_place(tmp_path / "blobs" / key)
        in_place(tmp_path / "elsewhere" / key)
        with pytest.raises(DamagedBlob, match="another SHA-256"):
            blobs.open_verified(key, Noting())
        assert not (tmp_path / "blobs" / key).exists()
        (tmp_path / "elsewhere" / key).write_bytes(DATA)
        assert DATA == blobs.open_verified(key, Noting())
