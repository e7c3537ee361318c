"""Uploads that tell how far they have come: the body in pieces, and a bar for terminals.

It never sends anything: the clients hand the pieces to httpx, which takes the next one when the
last has gone out.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias

from modelkin.errors import InvalidParameter

__all__ = ["Progress", "pieces", "pieces_async", "reporting"]

Progress: TypeAlias = Callable[[int, int], object]
"""Called with the bytes sent and the bytes in all."""

_PIECE: Final = 1 << 16
"""Bytes between two reports: often enough on a slow line, without cost on a fast one."""

_WIDTH: Final = 30
_PAUSE: Final = 0.1
"""Seconds between two drawings."""


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
    elif progress and sys.stderr.isatty():
        bar = _Bar(label)
        try:
            yield bar
        finally:
            bar.wipe()
    else:
        yield None


class _Bar:
    """One line of standard error, drawn over itself and wiped in the end."""

    def __init__(self, label: str) -> None:
        room = shutil.get_terminal_size().columns - _WIDTH - len(" [] 100% of 1,000.0 MB ")
        self._label = label if len(label) <= room else f"{label[: max(room - 1, 0)]}…"
        self._drawn = -_PAUSE

    def __call__(self, sent: int, total: int) -> None:
        now = time.monotonic()
        if now - self._drawn < _PAUSE and 0 < sent < total:
            return
        self._drawn = now
        share = sent / total
        bar = ("#" * int(share * _WIDTH)).ljust(_WIDTH, ".")
        sys.stderr.write(f"\r{self._label} [{bar}] {share:4.0%} of {total / 1e6:,.1f} MB\x1b[K")
        sys.stderr.flush()

    def wipe(self) -> None:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
