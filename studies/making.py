"""The making of cells by several processes, each with a service of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import torch

from studies.catalogue import BY_NAME, TIMED
from studies.cells import Cells
from studies.hub import Hub
from studies.processes import shared
from studies.settings import Setting

__all__ = ["Task", "make", "make_all"]

Task = tuple[str, Setting]
"""The name of a study, and a setting."""

_hubs: Final[list[Hub]] = []
"""That of this process, once it has made a cell; the service ends with the process."""


def make(cells: Cells, task: Task, hub: Hub) -> str:
    """Make one cell.

    Returns:
        What it is and how long that took, in a line.
    """
    torch.set_num_threads(1)  # cells are small: threads would wait for each other
    name, setting = task
    began = time.monotonic()
    cells.made(name, setting, lambda: BY_NAME[name].figures(setting, hub))
    return f"{name} {setting.name}: {time.monotonic() - began:.0f} s"


def make_all(cells: Cells, tasks: Sequence[Task], processes: int) -> Iterator[str]:
    """Make the cells that are not there; those that take the time first, one after the other.

    Returns:
        A line for each, as of :func:`make`, when it is made.
    """
    left = [task for task in tasks if not cells.path(*task).exists()]
    work = partial(_make, cells)
    yield from shared(work, [task for task in left if task[0] in TIMED], 1)
    yield from shared(work, [task for task in left if task[0] not in TIMED], processes)


def _make(cells: Cells, task: Task) -> str:
    if not _hubs:
        _hubs.append(Hub())
    return make(cells, task, _hubs[0])
