"""The file of a segment: written once, then only read, through a map.

A header names what is in it. The blocks of the entries follow, and behind them the tables of the
members. The tables have one checksum, which is compared when the file is opened. Each block has a
sum of its own, compared before the block is first believed: to read all of a large file at once
takes a minute. A file that somebody writes to later is not believed from then on. Both sums depend
on the file's name, so a foreign file, or a block in another's place, does not match. What is not
believed is built again from the database.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from app.fingerprints.finding.merging import Merged
from app.fingerprints.finding.records import Damaged
from app.fingerprints.finding.segments import (
    BLOCK,
    BLOCK_ENTRIES,
    LINES,
    MEMBER,
    Segment,
    blocks_of,
)
from app.infra import fail_points
from app.infra.storage.guarded_maps import GuardedMap

__all__ = ["open_segment", "write_segment"]

Table = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]

_MAGIC: Final = 0x3130_474E_4946_4B4D  # "MKFING01"
_HEADER: Final = np.dtype(
    [
        ("magic", "<u8"),
        ("seed", "<u8"),
        ("entries", "<i8"),
        ("members", "<i8"),
        ("lines", "<i8"),
        ("removed", "<i8"),
        ("tables", "<u8"),
        ("sum", "<u8"),
    ]
)
_PAGE: Final = 4096
_MIXED: Final = np.uint64(0x9E37_79B9_7F4A_7C15)
_LARGE: Final = 64 << 20
"""Bytes of a file that gives the memory of what was read back. It stays in the kernel's, and costs
a fault when it is read again."""


def write_segment(path: Path, found: Merged) -> int:
    """Write a file and sync it; return how many entries it has.

    Raises:
        OSError: it cannot be written; what there is of it is deleted.
    """
    try:
        with path.open("xb", buffering=0) as file:
            file.write(bytes(_PAGE))
            seed = _seed(path)
            entries, directory = _write_blocks(file.fileno(), seed, found)
            checksum = 0
            for table in _tables(found, directory):
                data = table.view(np.uint8).data  # no copy of it
                checksum = zlib.crc32(data, checksum)
                _write_all(file.fileno(), data)
            header = np.zeros(1, _HEADER)
            header[0] = (
                *(_MAGIC, seed, entries, found.members.size, found.lines),
                *(found.removed.size, checksum, 0),
            )
            header["sum"] = zlib.crc32(header.tobytes())
            os.pwrite(file.fileno(), header.tobytes(), 0)
            with fail_points.around("fsync"):
                os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return entries


def open_segment(path: Path) -> Segment:
    """Open a file.

    Raises:
        Damaged: it is not what was written, or is gone.
        OSError: it cannot be read or mapped.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise Damaged(f"{path.name} is gone") from error
    try:
        return _open(path, descriptor)
    finally:
        os.close(descriptor)


def _open(path: Path, descriptor: int) -> Segment:
    size = os.fstat(descriptor).st_size
    data = os.pread(descriptor, _HEADER.itemsize, 0)
    if len(data) < _HEADER.itemsize:
        raise Damaged(f"{path.name} was cut")
    header = np.frombuffer(data, _HEADER).copy()
    given = int(header["sum"][0])
    header["sum"] = 0
    seed = _seed(path)
    if (
        int(header["magic"][0]) != _MAGIC
        or zlib.crc32(header.tobytes()) != given
        or int(header["seed"][0]) != seed
    ):
        raise Damaged(f"{path.name} has another header")
    numbers = {name: int(header[name][0]) for name in ("entries", "members", "lines", "removed")}
    entries = numbers["entries"]
    count = -(-entries // BLOCK_ENTRIES)
    begin = _PAGE + count * BLOCK.itemsize
    kinds: list[tuple[np.dtype[Any], int]] = [
        *((MEMBER, numbers["members"]), (LINES, numbers["lines"])),
        *((np.dtype("<u4"), numbers["members"]), (np.dtype("<i8"), numbers["removed"])),
        (np.dtype("<u8"), count),
    ]
    ends = np.cumsum([begin, *(kind.itemsize * number for kind, number in kinds)])
    if size != int(ends[-1]):
        raise Damaged(f"{path.name} has {size} bytes in the place of {ends[-1]}")
    if _checksum(descriptor, begin, size) != int(header["tables"][0]):
        raise Damaged(f"{path.name} has other tables than were written")
    mapped = GuardedMap(descriptor, size)
    mapped.read_at_random()
    members, lines, by_id, removed, directory = (
        np.frombuffer(mapped.view, kind, number, int(end))
        for (kind, number), end in zip(kinds, ends[:-1], strict=True)
    )
    blocks = np.frombuffer(mapped.view, BLOCK, count, _PAGE)
    check = _Check(path, os.fstat(descriptor), mapped, blocks, seed)
    return Segment(
        entries,
        blocks,
        directory.copy(),
        members,
        lines,
        by_id,
        removed,
        verify=check,
        expect=check.read_ahead,
        give_back=mapped.give_back if size > _LARGE else None,
    )


class _Check:
    """Compares the blocks of a file with their sums, each once while nobody writes to the file.

    Raises:
        Damaged: a block is not what was written.
    """

    def __init__(
        self, path: Path, status: os.stat_result, mapped: GuardedMap, blocks: Table, seed: int
    ) -> None:
        self._path = path
        self._status = status
        self._mapped = mapped
        self._blocks = blocks
        self._seed = seed
        self._known = np.zeros(blocks.size, np.bool_)

    def __call__(self, places: Ints) -> None:
        self._require_unchanged()
        new = np.unique(places[~self._known[places]])
        for place in new.tolist() if new.size > 1 else ():  # all at once, where the disk has them
            self.read_ahead(place, place + 1)
        for begin in range(0, new.size, 1024):
            some = new[begin : begin + 1024]
            blocks = self._blocks[some]
            right = (blocks["place"] == some) & (blocks["sum"] == _sums(blocks, self._seed))
            if not right.all():
                raise Damaged(f"{self._path.name} has other entries than were written")
            self._known[some] = True
        if self._mapped.lost:
            raise Damaged(f"{self._path.name} was cut")

    def _require_unchanged(self) -> None:
        try:
            now, then = os.stat(self._path), self._status
        except OSError:  # it is deleted once another process has merged it, and stays mapped here
            return
        if now.st_ino == then.st_ino and (now.st_size, now.st_mtime_ns) != (
            then.st_size,
            then.st_mtime_ns,
        ):
            raise Damaged(f"{self._path.name} was written to")

    def read_ahead(self, first: int, last: int) -> None:
        """Have the blocks from one place to another be read soon."""
        self._mapped.read_ahead(_PAGE + first * BLOCK.itemsize, _PAGE + last * BLOCK.itemsize)


def _write_blocks(descriptor: int, seed: int, found: Merged) -> tuple[int, npt.NDArray[np.uint64]]:
    """Write the entries in full blocks but the last; return their number and the directory."""
    keys, ordinals = np.empty(0, np.uint64), np.empty(0, np.uint32)
    entries, written, directory = 0, 0, [np.empty(0, np.uint64)]

    def write(blocks: Table) -> None:
        nonlocal written
        blocks["place"] = np.arange(written, written + blocks.size)
        blocks["sum"] = _sums(blocks, seed)
        _write_all(descriptor, blocks.view(np.uint8).data)
        directory.append(blocks["keys"][:, 0].copy())
        written += blocks.size

    for some, numbers in found.parts:
        entries += some.size
        keys, ordinals = np.concatenate([keys, some]), np.concatenate([ordinals, numbers])
        full = keys.size // BLOCK_ENTRIES * BLOCK_ENTRIES
        write(blocks_of(keys[:full], ordinals[:full]))
        keys, ordinals = keys[full:], ordinals[full:]
    write(blocks_of(keys, ordinals))
    return entries, np.concatenate(directory)


def _tables(found: Merged, directory: npt.NDArray[np.uint64]) -> Iterable[Table]:
    yield found.members
    yield from found.parts_of_lines
    yield np.argsort(found.members["id"], kind="stable").astype("<u4")
    yield found.removed.astype("<i8")
    yield directory.astype("<u8")


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _checksum(descriptor: int, begin: int, end: int) -> int:
    checksum = 0
    while begin < end:
        data = os.pread(descriptor, min(1 << 22, end - begin), begin)
        if not data:
            return -1
        checksum, begin = zlib.crc32(data, checksum), begin + len(data)
    return checksum


def _seed(path: Path) -> int:
    """A number of the file's name and its folder's, which are the tenant and a random word."""
    return zlib.crc32(f"{path.parent.name}/{path.name}".encode())


def _sums(blocks: Table, seed: int) -> npt.NDArray[np.uint64]:
    """The sums of blocks. A word that changes alone always changes the sum: weights are odd."""
    keys = (blocks["keys"] * _WEIGHTS[0]).sum(axis=1, dtype=np.uint64)
    ordinals = (blocks["ordinals"] * _WEIGHTS[1]).sum(axis=1, dtype=np.uint64)
    mixed: npt.NDArray[np.uint64] = keys + ordinals + (blocks["place"] + np.uint64(seed)) * _MIXED
    return mixed ^ (mixed >> np.uint64(29))


_WEIGHTS: Final = np.random.default_rng(0).integers(
    0, 1 << 63, (2, BLOCK_ENTRIES), np.uint64
) * np.uint64(2) + np.uint64(1)
