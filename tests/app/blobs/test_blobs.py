"""Blobs in a folder: durable before they have their names, all or none."""

from __future__ import annotations

import errno
import os
import resource
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from app.infra.errors import StorageFull, Unavailable
from app.infra.storage.file_blobs import FileBlobs
from tests.support.blob_files import blob_files

CONTENTS = [bytes([i]) * (i + 1) for i in range(40)]


@pytest.fixture
def blobs(tmp_path: Path) -> FileBlobs:
    """An empty folder of one realm."""
    store = FileBlobs(tmp_path, "realm")
    store.prepare()
    return store


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file of this process grows beyond so many bytes: writing more fails, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_many_are_stored_under_keys_of_their_own(blobs: FileBlobs) -> None:
    """Each key has its content, and the sweep lists just these."""
    keys = blobs.put_many("7", CONTENTS)
    assert CONTENTS == [bytes(blobs.open(key)) for key in keys]
    assert sorted(keys) == sorted(blobs.keys())
    assert len(set(keys)) == len(CONTENTS)
    assert [] == blobs.put_many("7", [])


def test_no_blob_has_its_name_before_it_is_synced(
    blobs: FileBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All files are synced, then named, then their folder is synced."""
    log: list[tuple[str, str]] = []
    sync, rename = os.fsync, os.rename

    def logged_sync(descriptor: int) -> None:
        sync(descriptor)
        log.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))

    def logged_rename(old: Any, new: Any) -> None:
        log.append(("rename", str(old)))
        rename(old, new)

    blobs.put_many("7", CONTENTS)  # its folders exist
    monkeypatch.setattr(os, "fsync", logged_sync)
    monkeypatch.setattr(os, "rename", logged_rename)
    keys = blobs.put_many("7", CONTENTS)
    parts = {str(blobs.root / f"{key}.part") for key in keys}
    named = [place for place, (what, _) in enumerate(log) if what == "rename"]
    assert parts == {path for what, path in log[: named[0]] if what == "sync"} & parts
    assert parts == {log[place][1] for place in named}
    assert log[-1] == ("sync", str((blobs.root / keys[0]).parent))


def test_where_one_finds_no_room_none_is_left(blobs: FileBlobs) -> None:
    """A file that cannot be written takes the others of its call with it, and nothing else."""
    [kept] = blobs.put_many("7", [b"kept"])
    with largest_file(1 << 16), pytest.raises(StorageFull, match="could not be written"):
        blobs.put_many("7", [*CONTENTS, b"x" * (1 << 17)])
    assert {kept} == {path.relative_to(blobs.root).as_posix() for path in blob_files(blobs.root)}


def test_what_cannot_be_replaced_stays(blobs: FileBlobs) -> None:
    """Without its lineage a store forgets what it noted about orphans."""
    blobs.set_lineage("first")
    with largest_file(0), pytest.raises(Unavailable, match="could not be written"):
        blobs.set_lineage("second")
    assert "first" == blobs.lineage()


def test_a_deleted_prefix_is_made_again(blobs: FileBlobs) -> None:
    """A space that is deleted while its supports are written costs no put of its successor."""
    blobs.put_many("7", CONTENTS)
    blobs.delete_folder("realm/7/")
    assert CONTENTS == [bytes(blobs.open(key)) for key in blobs.put_many("7", CONTENTS)]


@pytest.mark.parametrize("root", ["gone", "empty"])
def test_a_folder_that_went_away_is_not_made_again(blobs: FileBlobs, root: str) -> None:
    """What is written beneath a disk that is not mounted any more would be hidden later."""
    key = blobs.put("7", b"kept")
    away = blobs.root.rename(blobs.root.with_name("away"))
    if root == "empty":  # the empty folder that the disk was mounted over
        blobs.root.mkdir()
    for write in (
        lambda: blobs.put("7", b"new"),
        lambda: blobs.put_many("7", CONTENTS),
        lambda: blobs.write(key, b"new"),
        lambda: blobs.set_lineage("new"),
        lambda: blobs.claim_store_id("new"),
    ):
        with pytest.raises(Unavailable, match="the folder of supports is gone"):
            write()
    assert [] == [*blobs.root.rglob("*")]
    if root == "empty":
        blobs.root.rmdir()
    assert not blobs.root.exists()
    away.rename(blobs.root)
    assert b"kept" == bytes(blobs.open(key))
    assert [key] == list(blobs.keys())


def test_a_folder_that_goes_away_during_a_put_is_not_made_again(
    blobs: FileBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it was there when the put began."""
    is_dir = Path.is_dir

    def gone_afterwards(path: Path) -> bool:
        there = is_dir(path)
        blobs.root.rename(blobs.root.with_name("away"))
        return there

    with monkeypatch.context() as patch:
        patch.setattr(Path, "is_dir", gone_afterwards)
        with pytest.raises(Unavailable):
            blobs.put("7", b"new")
    assert not blobs.root.exists()


@pytest.mark.parametrize("others", [None, "theirs"])
def test_a_store_gets_an_id_without_hard_links(
    blobs: FileBlobs, monkeypatch: pytest.MonkeyPatch, others: str | None
) -> None:
    """Some file systems of other machines have none; the first id stays all the same."""
    place = blobs.root / "realm" / ".store"
    if others is not None:
        place.write_text(others)

    def refused(*_: Any) -> None:
        raise PermissionError(errno.EPERM, "no links")

    monkeypatch.setattr(os, "link", refused)
    assert (others or "mine") == blobs.claim_store_id("mine") == place.read_text()
    assert [place] == [*place.parent.iterdir()]


def test_a_blob_is_compared_without_a_copy(blobs: FileBlobs) -> None:
    """It may be a gigabyte."""
    data = bytes(8 << 20)
    key = blobs.put("7", data)
    tracemalloc.start()
    try:
        assert blobs.holds(key, data)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
