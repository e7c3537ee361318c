"""Progress reports of uploads: bodies in pieces, and the functions or bars that show them.

The clients hand the pieces to httpx, which takes the next one when the last has gone out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias

from modelkin._progress_bar import ProgressLine, is_terminal
from modelkin.errors import InvalidParameter
from modelkin.types.jobs import JobInfo

__all__ = [
    "Count",
    "OnProgress",
    "Progress",
    "async_pieces",
    "counting",
    "following",
    "pieces",
    "reporting",
]

Progress: TypeAlias = Callable[[int, int], object]
"""A function that is called with the bytes sent and the bytes in all."""

Count: TypeAlias = Callable[[int, int | None], object]
"""A function that is called with the items done and the items in all, None if unknown."""

OnProgress: TypeAlias = Callable[[JobInfo], object]
"""A function that is called with a job whenever its state or progress has changed."""

_PIECE_SIZE: Final = 1 << 16
"""The bytes between two reports: often enough on a slow line, without cost on a fast one."""


def pieces(content: bytes, report: Progress) -> Iterator[bytes]:
    """A body piece by piece; ``report`` is called with 0 first, then after each piece."""
    report(0, len(content))
    for start in range(0, len(content), _PIECE_SIZE):
        piece = content[start : start + _PIECE_SIZE]
        yield piece
        report(start + len(piece), len(content))


async def async_pieces(content: bytes, report: Progress) -> AsyncIterator[bytes]:
    """:func:`pieces` for an asynchronous client."""
    for piece in pieces(content, report):
        yield piece


@contextmanager
def reporting(progress: Progress | bool, label: str) -> Iterator[Progress | None]:
    """The function that an upload reports its bytes to, for its duration.

    Args:
        progress: a function; or True for a bar, which only a terminal shows.
        label: the name of the upload in the bar.

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
        line = ProgressLine()
        try:
            yield lambda sent, total: line.draw(label, sent / total, f" of {total / 1e6:,.1f} MB")
        finally:
            line.wipe()
    else:
        yield None


@contextmanager
def following(is_shown: bool, label: str, then: OnProgress | None) -> Iterator[OnProgress | None]:
    """The function that a job reports to while it is waited for.

    Args:
        is_shown: whether to draw a bar, which only a terminal shows.
        label: the name of the job in the bar.
        then: a function that is called as well.
    """
    if not (is_shown and is_terminal()):
        yield then
        return
    line = ProgressLine()

    def report(job: JobInfo) -> None:
        done = job.progress
        share = done.done / done.total if done is not None and done.total else None
        line.draw(label, share, f" {job.state if done is None else done.stage}")
        if then is not None:
            then(job)

    try:
        yield report
    finally:
        line.wipe()


@contextmanager
def counting(progress: Count | bool, label: str) -> Iterator[Count | None]:
    """The function that ``put_many`` reports its items to, for its duration.

    Args:
        progress: a function; or True for a line, which only a terminal shows.
        label: the name of the upload in the line.

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
        line = ProgressLine()
        try:
            yield lambda done, total: line.draw(
                label, done / total if total else None, f" {done:,} models"
            )
        finally:
            line.wipe()
    else:
        yield None
