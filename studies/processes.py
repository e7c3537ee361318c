"""Work that several processes share, in spawned ones, so that none inherits threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import TypeVar

__all__ = ["shared"]

_Task = TypeVar("_Task")


def shared(make: Callable[[_Task], str], tasks: Sequence[_Task], processes: int) -> Iterator[str]:
    """A line for each task when it is made; tasks that nobody has begun are dropped on an error.

    Args:
        make: of a module, since each process imports it.
        tasks: in the order in which they begin.
        processes: how many at most.
    """
    if not tasks:
        return
    with ProcessPoolExecutor(min(processes, len(tasks)), get_context("spawn")) as pool:
        making = [pool.submit(make, task) for task in tasks]
        try:
            for done in as_completed(making):
                yield done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
