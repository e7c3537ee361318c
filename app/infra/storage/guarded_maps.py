"""Guarded maps: mapped files that others may cut.

The kernel sends SIGBUS to a thread that reads a page which its file does not have any more, and
that ends the process. Here a handler puts zeros in the place of these pages, so that the thread
reads on, and notes it. What was computed meanwhile counts only if the content has a checksum of its
own, or within :func:`intact_maps`. A SIGBUS elsewhere ends the process as before. Only 64-bit Linux
has the guard.

The signal comes from the very instruction that reads the page. So the handler may be Python code,
as in any call of a C function that calls back. If it fails, the instruction faults again, and it is
called again. ``docs/decisions/0014-guarded-maps.md`` has the alternatives.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import signal
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np

from app.infra.errors import Unavailable

__all__ = ["GuardedMap", "intact_maps"]

_SA_SIGINFO: Final = 4
_SA_NODEFER: Final = 0x40000000
"""A page that is lost inside the handler is mended, too."""
_ADDRESS_OFFSET: Final = 16
"""The place of the address in what a handler learns of a signal, on 64-bit Linux."""
_MAP_FIXED: Final = 16
_FAILED: Final = ctypes.c_void_p(-1).value
_Handler: Final = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


@dataclass(slots=True)
class _Region:
    """The addresses of a map, and whether pages of it were lost."""

    start: int
    end: int
    lost: bool = False


class GuardedMap:
    """The first bytes of an open file, read-only.

    Args:
        descriptor: the file, which may be closed afterwards.
        size: how many bytes to map; the file has as many now.

    Attributes:
        view: the bytes, which stay mapped for as long as anything refers to them.

    Raises:
        OSError: the file cannot be mapped.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        try:
            mapped = mmap.mmap(descriptor, size, prot=mmap.PROT_READ)
        except ValueError as error:  # it was cut since its size was read
            raise OSError(errno.ESTALE, "the file was cut") from error
        self.view = memoryview(mapped)
        pages = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        start = int(np.frombuffer(mapped, np.uint8).ctypes.data)
        self._mapped = mapped
        self._region = _Region(start, start + pages)
        if (guard := _guard()) is not None:
            guard.stand()
            guard.regions[id(self._region)] = self._region
            weakref.finalize(mapped, guard.regions.pop, id(self._region))

    @property
    def lost(self) -> bool:
        """Whether pages were read that the file had lost, so that they are zeros for good."""
        return self._region.lost

    def read_at_random(self) -> None:
        """Advise the kernel not to read ahead."""
        self._mapped.madvise(mmap.MADV_RANDOM)

    def read_ahead(self, begin: int, end: int) -> None:
        """Advise the kernel to read a range of bytes now."""
        begin -= begin % mmap.PAGESIZE
        self._mapped.madvise(mmap.MADV_WILLNEED, begin, end - begin)

    def give_back(self) -> None:
        """Give the memory of pages back; each is mapped again when it is read."""
        self._mapped.madvise(mmap.MADV_DONTNEED)


@contextmanager
def intact_maps() -> Iterator[None]:
    """Require that no map of this process loses pages while the block runs.

    Raises:
        Unavailable: a map did, so that zeros may have been counted.
    """
    guard = _guard()
    if guard is not None:
        guard.stand()
    before = 0 if guard is None else guard.losses
    yield
    if guard is not None and guard.losses != before:
        raise Unavailable("a stored file was cut while it was read: try again")


class _Action(ctypes.Structure):
    """The C library's ``struct sigaction``, which is alike in glibc and musl."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ulong * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class _Guard:
    """The handler of SIGBUS, for the whole process.

    Attributes:
        regions: the mapped regions by their ids. One whose map has just ended may still be here,
            beside the next one at its addresses.
        losses: how many regions have lost pages since the process began.
    """

    def __init__(self) -> None:
        self.regions: dict[int, _Region] = {}
        self.losses = 0
        self._libc = ctypes.CDLL(None)
        self._libc.mmap.restype = ctypes.c_void_p
        self._libc.mmap.argtypes = (
            *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int),
            ctypes.c_long,
        )
        self._handler: Any = _Handler(self._mend)
        address = ctypes.cast(self._handler, ctypes.c_void_p).value
        self._action = _Action(handler=address, flags=_SA_SIGINFO | _SA_NODEFER)
        self._before = _Action()
        self._libc.sigaction(signal.SIGBUS, None, ctypes.byref(self._before))

    def stand(self) -> None:
        """Be the handler again: others may have set theirs since, as ``faulthandler`` does."""
        self._libc.sigaction(signal.SIGBUS, ctypes.byref(self._action), None)

    def _mend(self, _signal: int, info: int, _context: int) -> None:
        """Put zeros in the place of lost pages; else leave the signal to the handler before."""
        address = ctypes.c_void_p.from_address(info + _ADDRESS_OFFSET).value or 0
        # A copy, which no collection of garbage changes: it ends maps, and the loop would fail.
        regions = [r for r in self.regions.copy().values() if r.start <= address < r.end]
        for region in regions:
            region.lost = True
            self.losses += 1
        if not (regions and self._fill(address, min(region.end for region in regions))):
            self._libc.sigaction(signal.SIGBUS, ctypes.byref(self._before), None)
            signal.raise_signal(signal.SIGBUS)  # for after this handler: no read repeats a sent one

    def _fill(self, address: int, end: int) -> bool:
        """Map zeros from the page of an address on: what follows it is lost as well."""
        page = address - address % mmap.PAGESIZE
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED
        found = self._libc.mmap(page, end - page, mmap.PROT_READ, flags, -1, 0)
        return bool(found != _FAILED)


@cache
def _guard() -> _Guard | None:
    """The guard of this process, from its first map on."""
    if sys.platform != "linux" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    return _Guard()
