"""A line that says how far a pass over a checkpoint has come, on a terminal and nowhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator

from modelkin.core.streaming import Floats

__all__ = ["Bar"]

_WIDTH = 30
_PAUSE = 0.1
"""Seconds between two drawings."""


class Bar:
    """Watches the passes of a selection, see ``modelkin.checkpoints.Watch``.

    Args:
        label: what is read.
        total: parameters a pass.
    """

    def __init__(self, label: str, total: int) -> None:
        self._label = label
        self._total = total
        self._passes = 0
        self._drawn = 0.0

    def __call__(self, chunks: Iterable[Floats]) -> Iterable[Floats]:
        """The same chunks, counted; one call a pass."""
        self._passes += 1
        return self._counted(chunks) if sys.stderr.isatty() else chunks

    def _counted(self, chunks: Iterable[Floats]) -> Iterator[Floats]:
        done = 0
        try:
            for chunk in chunks:
                self._draw(done / self._total)
                yield chunk
                done += chunk.size
        finally:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def _draw(self, share: float) -> None:
        if time.monotonic() - self._drawn < _PAUSE:
            return
        self._drawn = time.monotonic()
        bar = ("#" * int(share * _WIDTH)).ljust(_WIDTH, ".")
        sys.stderr.write(f"\r{self._label}, pass {self._passes} [{bar}] {share:4.0%}\x1b[K")
        sys.stderr.flush()
