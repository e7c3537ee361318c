"""Tensors that threads read side by side, with one count of the values that they have taken."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Final, Generic, NamedTuple, TypeVar

from modelkin.errors import InvalidParameter

__all__ = ["Counting", "Job", "beside", "check_threads", "processors", "run_jobs"]

T = TypeVar("T")

Counting = Callable[[int, int], None]
"""A function of the values read so far, and of all."""
RunTask = Callable[[object, Callable[[], None]], None]
"""A function of a tensor, and of a task that reads it."""

_COUNTED_EVERY: Final = 0.1
"""Seconds between two calls of the caller's function."""


class Job(NamedTuple, Generic[T]):
    """A tensor to read.

    Attributes:
        size: how many values it has.
        read: reads it whole. It calls its argument with the values that it has taken since it
            called before, and ends by what that raises. Values that it needs not take count at its
            end.
    """

    size: int
    read: Callable[[Callable[[int], None]], T]


class _Stopped(Exception):
    """Another thread, or the caller, has ended the reading."""


def run_jobs(jobs: Sequence[Job[T]], threads: int, count: Counting | None = None) -> list[T]:
    """Run each job whole in one of some threads, and return their results in the order of the jobs.

    Args:
        jobs: any number.
        threads: 1 or more.
        count: is called ten times a second, by the thread of the caller; what it raises ends all.
    """
    return _Reading(jobs, count).run(threads)


@contextmanager
def beside(threads: int) -> Iterator[RunTask]:
    """Threads that run tasks of tensors; the block ends when all have run.

    No more tasks wait than there are threads: the pass is a few tensors ahead at most, so that
    their bytes are still at hand.

    Args:
        threads: 1 or more.

    Yields:
        What has a thread run a task, after all earlier ones of the same tensor. It raises what an
        earlier task has raised; so does the end of the block.
    """
    running = deque[tuple[object, Future[None]]]()

    def run(tensor: object, task: Callable[[], None]) -> None:
        while len(running) >= threads or any(each is tensor for each, _ in running):
            running.popleft()[1].result()
        running.append((tensor, pool.submit(task)))

    with ThreadPoolExecutor(threads, "lines") as pool:
        try:
            yield run
            while running:
                running.popleft()[1].result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def check_threads(threads: int | None) -> None:
    """Refuse a number of threads below 1.

    Raises:
        InvalidParameter: it is.
    """
    if threads is not None and threads < 1:
        raise InvalidParameter(f"threads must be 1 or more, not {threads}", field="threads")


def processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Reading(Generic[T]):
    def __init__(self, jobs: Sequence[Job[T]], count: Counting | None) -> None:
        self._jobs, self._count = jobs, count
        self._ended, self._lock = threading.Event(), threading.Lock()
        self._done, self._all = 0, sum(job.size for job in jobs)

    def run(self, threads: int) -> list[T]:
        with ThreadPoolExecutor(threads, "tensors") as pool:
            # The largest first: none is left to one thread at the end.
            order = sorted(range(len(self._jobs)), key=lambda at: -self._jobs[at].size)
            try:  # an interruption may come while jobs are handed over, too
                futures = {at: pool.submit(self._run, self._jobs[at]) for at in order}
                left = set(futures.values())
                while left:
                    done, left = wait(left, _COUNTED_EVERY, FIRST_EXCEPTION)
                    for future in done:
                        future.result()
                    if self._count is not None:
                        self._count(self._done, self._all)
            except BaseException:
                self._ended.set()
                pool.shutdown(cancel_futures=True)
                raise
        return [futures[at].result() for at in range(len(futures))]

    def _run(self, job: Job[T]) -> T:
        taken = 0

        def took(values: int) -> None:
            nonlocal taken
            taken += values
            self._took(values)

        result = job.read(took)
        self._took(job.size - taken)
        return result

    def _took(self, values: int) -> None:
        if self._ended.is_set():
            raise _Stopped
        with self._lock:
            self._done += values
