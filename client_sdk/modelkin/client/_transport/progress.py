"""Uploads that tell how far they have come: the body in pieces, and who hears of them.

It never sends anything: the clients hand the pieces to httpx, which takes the next one when the
last has gone out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias

from modelkin._progress_bar import Line, is_terminal
from modelkin.errors import InvalidParameter

__all__ = ["Count", "Progress", "counting", "pieces", "pieces_async", "reporting"]

Progress: TypeAlias = Callable[[int, int], object]
"""Called with the bytes sent and the bytes in all."""

Count: TypeAlias = Callable[[int, int | None], object]
"""Called with the items done and the items in all, None where that is not known."""

_PIECE: Final = 1 << 16
"""Bytes between two reports: often enough on a slow line, without cost on a fast one."""


def pieces(content: bytes, report: Progress) -> Iterator[bytes]:
    """A body piece by piece; ``report`` hears of 0 first, then of each piece that was taken."""
    report(0, len(content))
    for start in range(0, len(content), _PIECE):
        piece = content[start : start + _PIECE]
        yield piece
        report(start + len(piece), len(content))


async def pieces_async(content: bytes, report: Progress) -> AsyncIterator[bytes]:
    """:func:`pieces` for an asynchronous client."""
    for piece in pieces(content, report):
        yield piece


@contextmanager
def reporting(progress: Progress | bool, label: str) -> Iterator[Progress | None]:
    """What an upload shall report to, for as long as it lasts.

    Args:
        progress: a function; or True for a bar on a terminal, and nothing where there is none.
        label: what the bar calls the upload.

    Raises:
        InvalidParameter: ``progress`` is neither.
    """
    if not isinstance(progress, bool):
        if not callable(progress):
            raise InvalidParameter(
                f"progress must be True, False or a function of the bytes sent and the bytes in "
                f"all, not {type(progress).__name__}",
                field="progress",
            )
        yield progress
    elif progress and is_terminal():
        line = Line()
        try:
            yield lambda sent, total: line.draw(label, sent / total, f" of {total / 1e6:,.1f} MB")
        finally:
            line.wipe()
    else:
        yield None


@contextmanager
def counting(progress: Count | bool, label: str) -> Iterator[Count | None]:
    """What an upload of many items shall report to, for as long as it lasts.

    Args:
        progress: a function; or True for a line on a terminal, and nothing where there is none.
        label: what the line calls the upload.

    Raises:
        InvalidParameter: ``progress`` is neither.
    """
    if not isinstance(progress, bool):
        if not callable(progress):
            raise InvalidParameter(
                f"progress must be True, False or a function of the items done and the items in "
                f"all, not {type(progress).__name__}",
                field="progress",
            )
        yield progress
    elif progress and is_terminal():
        line = Line()
        try:
            yield lambda done, total: line.draw(
                label, done / total if total else None, f" {done:,} models"
            )
        finally:
            line.wipe()
    else:
        yield None
