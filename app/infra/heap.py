"""The heap of the C library: few arenas, and free memory that goes back to the system.

glibc gives threads separate arenas, up to eight a core. An arena keeps freed memory for its own
threads alone, also blocks of up to 32 MiB once one such block was freed. A service of forty threads
then takes more and more memory, while its use stays the same. On other systems nothing here has an
effect.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, Final

__all__ = ["give_back", "limit_heap"]

_OPTIONS: Final = {
    -8: 2,  # M_ARENA_MAX
    -3: 1 << 20,  # M_MMAP_THRESHOLD: blocks of so many bytes go back to the system when freed
    -1: 4 << 20,  # M_TRIM_THRESHOLD: free bytes at the end of an arena that may stay there
}
"""Options of ``mallopt`` by their numbers in ``malloc.h``."""
_VARIABLES: Final = "MALLOC_", "GLIBC_TUNABLES"
"""The prefixes of variables by which operators set such options; their values stay."""


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


def _glibc() -> Any:
    """The C library of this process if it is glibc; else None."""
    try:
        library = ctypes.CDLL(None)
    except (OSError, TypeError):
        return None
    return library if hasattr(library, "gnu_get_libc_version") else None
