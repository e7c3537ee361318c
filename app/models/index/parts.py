"""Parts: the rows of a large index, or many sketches, divided among the cores of this machine.

One core reads some 30 GB a second, and the index of ten million models has 2.6 GB. The loops
release the interpreter, so threads suffice. Smaller indexes are left to the thread of the request.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import TypeVar

__all__ = ["MIN_ROWS", "cores", "in_parts"]

T = TypeVar("T")

MIN_ROWS = 1 << 18
"""Rows of a part, at least: 64 MiB at 256 values, 2 ms."""
_MAX_PARTS = 8
"""The most parts: beyond them the memory of a machine is the limit, not its cores."""


def in_parts(rows: int, work: Callable[[slice], T], *, least: int = 0) -> list[T]:
    """Return the results of ``work`` for each part of ``rows`` rows, in order; at least one part.

    Args:
        rows: the number of rows to divide.
        work: a function of a part that releases the interpreter; it may not call this again.
        least: the least rows of a part; 0 for :data:`MIN_ROWS`.
    """
    count = max(1, min(cores(), _MAX_PARTS, rows // (least or MIN_ROWS)))
    ends = [rows * part // count for part in range(count + 1)]
    first, *others = (slice(begin, end) for begin, end in pairwise(ends))
    waiting = [_threads().submit(work, part) for part in others]
    return [work(first), *(each.result() for each in waiting)]


@cache
def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


@cache
def _threads() -> ThreadPoolExecutor:
    """The threads of all requests together."""
    return ThreadPoolExecutor(max(1, min(cores(), _MAX_PARTS) - 1), "index-part")
