"""Blobs of a group are files as all others, and synced before they are used."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from app.errors import StorageFull
from app.infra.storage.blobs import FileBlobs


@pytest.fixture
def blobs(tmp_path: Path) -> FileBlobs:
    opened = FileBlobs(tmp_path, "realm")
    opened.prepare()
    return opened


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was synced, by its name now."""
    seen: list[str] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        fsync(descriptor)
        seen.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    monkeypatch.setattr(os, "fsync", note)
    return seen


def test_each_file_and_their_one_folder_are_synced(blobs: FileBlobs, synced: list[str]) -> None:
    """The folder last, since it names them; and nothing is synced before."""
    group = blobs.group("7")
    keys = [group.put(bytes([number]) * 100) for number in range(50)]
    synced.clear()
    group.sync()
    files = [str(blobs.root / key) for key in keys]
    assert sorted(files) == sorted(synced[:-1])
    assert [os.path.dirname(files[0])] == synced[-1:]
    assert [bytes([number]) * 100 for number in range(50)] == [bytes(blobs.open(k)) for k in keys]


def test_a_sweep_finds_them(blobs: FileBlobs) -> None:
    """After a crash no row names them, and their keys are as those of all blobs."""
    group = blobs.group("7")
    keys = {group.put(b"x"), group.put(b"y")}
    group.sync()
    assert keys == set(blobs.keys())


def test_a_new_group_needs_its_folders_synced(blobs: FileBlobs, synced: list[str]) -> None:
    """A file lasts no longer than the folder that names its folder."""
    group = blobs.group("8")
    group.put(b"x")
    assert {str(blobs.root / "realm"), str(blobs.root / "realm/8")} <= set(synced)


def test_a_deleted_prefix_is_made_again(blobs: FileBlobs) -> None:
    """As by a single put."""
    group = blobs.group("7")
    group.put(b"x")
    group.sync()
    blobs.delete_folder("realm/7/")
    key = group.put(b"y")
    group.sync()
    assert b"y" == bytes(blobs.open(key))


def test_what_cannot_be_synced_is_refused(
    blobs: FileBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk may say so only then."""
    group = blobs.group("7")
    group.put(b"x")

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageFull):
        group.sync()
