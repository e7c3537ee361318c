"""The demo's output: tables on a terminal, plain lines in a pipe.

It formats results and computes none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

__all__ = ["Report", "describe_mix"]

T = TypeVar("T")

SHOWN_SHARE = 0.1
PIPED_WIDTH = 100


def describe_mix(mix: npt.NDArray[np.float64]) -> str:
    """A label distribution in few words, ``"7s 66%, 1s 29%"``: at most three digits, by share."""
    order = [int(c) for c in np.argsort(-mix, kind="stable") if mix[c] >= SHOWN_SHARE]
    return ", ".join(f"{c}s {mix[c]:.0%}" for c in order[:3])


class Report:
    """The demo's output, section by section."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        if not self._console.is_terminal:
            self._console.width = PIPED_WIDTH

    def section(self, title: str) -> None:
        self._console.print(f"\n[bold]{title}[/bold]")

    def say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, markup=False)

    def progress(self, items: Sequence[T], doing: str, done: Callable[[T], str]) -> Iterator[T]:
        """Yield the items under a progress bar; without a terminal, print every tenth."""
        if not self._console.is_terminal:
            for position, item in enumerate(items, 1):
                yield item
                if position % 10 == 0 or position == len(items):
                    self.say(f"{doing} {position}/{len(items)}, last {done(item)}")
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self._console) as bar:
            task = bar.add_task(doing, total=len(items))
            for item in items:
                yield item
                bar.advance(task)

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """A table; columns whose name ends with a space are aligned to the right."""
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for column in columns:
            table.add_column(column.rstrip(), justify="right" if column.endswith(" ") else "left")
        for row in rows:
            table.add_row(*row)
        self.say(f"\n{title}")
        self._console.print(table)
