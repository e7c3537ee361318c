"""The heap of the C library: few arenas, and free memory that goes back to the system.

glibc gives threads arenas of their own, up to eight a core. Each keeps what was freed in it, for
its own threads alone, and so do blocks of up to 32 MiB once one such block was freed. A service of
forty threads then takes more and more memory, while what it uses stays the same. On other systems
nothing here has an effect.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

__all__ = ["give_back", "give_back_code", "limit_heap"]

_OPTIONS: Final = {
    -8: 2,  # M_ARENA_MAX
    -3: 1 << 20,  # M_MMAP_THRESHOLD: blocks of so many bytes go back to the system when freed
    -1: 4 << 20,  # M_TRIM_THRESHOLD: free bytes at the end of an arena that may stay there
}
"""Options of ``mallopt`` by their numbers in ``malloc.h``."""
_MAPPINGS = Path("/proc/self/smaps")
_DONT_NEED: Final = 4
"""``MADV_DONTNEED`` in ``sys/mman.h``."""
_VARIABLES: Final = "MALLOC_", "GLIBC_TUNABLES"
"""How the variables begin by which operators set such options; what they set stays."""


def limit_heap() -> bool:
    """Have all threads share few arenas, and give large blocks back; whether that was possible.

    Call it before the threads start: arenas that there are stay.
    """
    library = _glibc()
    if library is None or any(name.startswith(_VARIABLES) for name in os.environ):
        return False
    return all(library.mallopt(option, value) for option, value in _OPTIONS.items())


def give_back() -> bool:
    """Give the free pages of all arenas back to the system; whether there were any."""
    library = _glibc()
    return library is not None and bool(library.malloc_trim(0))


def give_back_code(library: str) -> int:
    """Give the pages of a library back that were only read; the bytes given back.

    For one that was needed to start: llvmlite holds 40 MB once it has loaded the kernels. A page
    that is needed again is read again, mostly from the system's cache of files.

    Args:
        library: a part of the name of its file.
    """
    libc = _glibc()
    if libc is None:
        return 0
    given = 0
    for begin, end, resident in _unchanged(library):
        address, size = ctypes.c_void_p(begin), ctypes.c_size_t(end - begin)
        if libc.madvise(address, size, _DONT_NEED) == 0:
            given += resident
    return given


def _unchanged(library: str) -> Iterator[tuple[int, int, int]]:
    """Begin, end and resident bytes of a file's mappings that were never written to."""
    found: dict[str, int] = {}
    span, wanted = (0, 0), False
    for line in _lines(_MAPPINGS):
        first, *rest = line.split()
        if not first.endswith(":"):
            begin, _, end = first.partition("-")
            span, wanted = (int(begin, 16), int(end, 16)), library in line and "w" not in rest[0]
            found = {}
            continue
        if wanted and rest[-1] == "kB":
            found[first] = int(rest[0]) << 10
        if wanted and first == "VmFlags:" and not found["Private_Dirty:"] + found["Shared_Dirty:"]:
            yield *span, found["Rss:"]


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []


def _glibc() -> Any:
    """The C library of this process if it is glibc; else None."""
    try:
        library = ctypes.CDLL(None)
    except (OSError, TypeError):
        return None
    return library if hasattr(library, "gnu_get_libc_version") else None
