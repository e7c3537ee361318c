"""Processes forked from a test, whose results come back by pipes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["forked"]

_FORK = multiprocessing.get_context("fork")


def forked(
    work: Callable[[Any], Any], asked: Iterable[Any], meanwhile: Callable[[], Any] = lambda: None
) -> list[Any]:
    """The results of ``work`` in a process for each argument, or the words of what it raised.

    Args:
        work: what each process does.
        asked: the arguments.
        meanwhile: what this process does at the same time.
    """
    running = []
    for argument in asked:
        mine, its = _FORK.Pipe(duplex=False)
        process = _FORK.Process(target=_report, args=(its, work, argument))
        process.start()
        its.close()
        running.append((process, mine))
    meanwhile()
    found = []
    for process, mine in running:
        found.append(mine.recv() if mine.poll(60) else "it hangs")
        process.kill()
        process.join()
    return found


def _report(pipe: Any, work: Callable[[Any], Any], argument: Any) -> None:
    try:
        pipe.send(work(argument))
    except BaseException as error:
        pipe.send(repr(error))
