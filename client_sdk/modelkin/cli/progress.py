"""The progress of a command that reads checkpoints, as a line that only a terminal shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Self

from modelkin._progress_bar import ProgressLine, is_terminal
from modelkin.core.selection.streaming import Floats

__all__ = ["Bar", "ShareLine"]


class Bar:
    """An observer of a selection's passes, see ``modelkin.checkpoints.PassObserver``.

    Args:
        label: the words before the bar.
        total: the number of parameters in a pass.
    """

    def __init__(self, label: str, total: int) -> None:
        self._label = label
        self._total = total
        self._passes = 0

    def __call__(self, chunks: Iterable[Floats]) -> Iterable[Floats]:
        """Yield the chunks of a pass, and count them."""
        self._passes += 1
        return self._count(chunks) if is_terminal() else chunks

    def _count(self, chunks: Iterable[Floats]) -> Iterator[Floats]:
        line, label, done = ProgressLine(), f"{self._label}, pass {self._passes}", 0
        try:
            for chunk in chunks:
                line.draw(label, done / self._total)
                yield chunk
                done += chunk.size
        finally:
            line.wipe()


class ShareLine:
    """The share of a task that is done, in a ``with`` block.

    Args:
        label: the words before the share.
    """

    def __init__(self, label: str) -> None:
        self._label = label
        self._line = ProgressLine()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if is_terminal():
            self._line.wipe()

    def draw(self, share: float) -> None:
        """Show the share, 0 to 1."""
        if is_terminal():
            self._line.draw(self._label, share)
