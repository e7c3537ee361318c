"""Holes in files: give the blocks of a range back to the disk, in place.

The range then reads as zeros, and the file keeps its length. Only Linux can, and most of its file
systems; elsewhere nothing happens, and the blocks stay until the file is deleted.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from typing import Any

__all__ = ["data_ranges", "punch"]

_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_UNSUPPORTED = {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


def punch(descriptor: int, start: int, end: int) -> bool:
    """Zero the bytes from ``start`` up to ``end``, and free the blocks that hold nothing else.

    A block at an edge is freed too, if the rest of it is zero.

    Returns:
        Whether this file can have holes.

    Raises:
        OSError: the file cannot be written.
    """
    if fallocate is None:
        return False
    start, end = _to_blocks(descriptor, start, end)
    if start >= end:
        return True
    if fallocate(descriptor, _KEEP_SIZE | _PUNCH_HOLE, start, end - start) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number))


def data_ranges(descriptor: int) -> Iterator[tuple[int, int]]:
    """The ranges of a file between its holes, as start and end, in order."""
    end = 0
    while True:
        try:
            start = os.lseek(descriptor, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # no more data
                return
            raise
        end = os.lseek(descriptor, start, os.SEEK_HOLE)
        yield start, end


def _to_blocks(descriptor: int, start: int, end: int) -> tuple[int, int]:
    """The range, extended over the rests of its first and last block if these are zero."""
    status = os.fstat(descriptor)
    block = max(status.st_blksize, 1)
    end = min(end, status.st_size)
    first, last = start // block * block, -(-end // block) * block
    if not any(os.pread(descriptor, start - first, first)):
        start = first
    if not any(os.pread(descriptor, last - end, end)):
        end = last
    return start, end


def _find_fallocate() -> Any:
    try:
        function = ctypes.CDLL(None, use_errno=True).fallocate
    except (OSError, AttributeError):
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    function.restype = ctypes.c_int
    return function


fallocate = _find_fallocate()
"""The system's own; None where it has none."""
