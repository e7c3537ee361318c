"""Interleaved races: several ways to one result, timed in one process, round by round.

A machine that others use is fast in one minute and slow in the next. So the contenders run A B C
A B C, and a ratio is the median of the ratios *within* the rounds, where both had the same machine.
The module ``report`` decides whether a figure meets its target.
"""

from __future__ import annotations

import ctypes
import gc
import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from modelkin.checkpoints.tensors import StoredTensor
from modelkin.core.indices import IndexArray
from modelkin.core.kernels.choice import kernels

__all__ = [
    "Contender",
    "Race",
    "Spread",
    "extra_memory",
    "fastest_read",
    "kept_memory",
    "nanoseconds_a_value",
    "race",
    "read_through",
    "use_kernels",
]

SHORTEST = 0.01
"""Shortest sample in seconds: a faster contender is called several times in a row."""

Call = Callable[[], Any]
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to compute the result.

    Attributes:
        name: in the tables.
        run: the whole computation, with everything that its user would have to do.
        prepare: called before every sample, untimed.
        rounds: it takes part in the first so many rounds only, and is not warmed up: for those
            that take many seconds. None: in all rounds.
    """

    name: str
    run: Call
    prepare: Call | None = None
    rounds: int | None = None


@dataclass(frozen=True, slots=True)
class Spread:
    """The median, the least and the most of the rounds."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        """The spread of at least one sample."""
        return cls(statistics.median(samples), min(samples), max(samples))

    def times(self, factor: float) -> Spread:
        """The spread in another unit."""
        return Spread(self.median * factor, self.least * factor, self.most * factor)


@dataclass(frozen=True, slots=True)
class Race:
    """The seconds of every contender in each of its rounds."""

    samples: dict[str, list[float]]

    def seconds(self, name: str) -> Spread:
        """Seconds of one call."""
        return Spread.of(self.samples[name])

    def ratio(self, slower: str, faster: str) -> Spread:
        """How many times longer ``slower`` took, round by round, in common rounds."""
        pairs = zip(self.samples[slower], self.samples[faster], strict=False)
        return Spread.of([a / b for a, b in pairs])

    def fastest(self, names: Sequence[str]) -> str:
        """The contender with the least median."""
        return min(names, key=lambda name: self.seconds(name).median)


def race(contenders: Sequence[Contender], rounds: int, clock: Clock = time.perf_counter) -> Race:
    """Run the contenders in turn, ``rounds`` times, after one call of each to warm up.

    With ``time.thread_time`` for a clock, what other processes take does not count.
    """
    _settle_malloc()
    repeats = {each.name: 1 if each.rounds else _repeats(each, clock) for each in contenders}
    samples: dict[str, list[float]] = {each.name: [] for each in contenders}
    for number in range(rounds):
        for each in contenders:
            if each.rounds is None or number < each.rounds:
                samples[each.name].append(_sample(each, repeats[each.name], clock))
    return Race(samples)


def _settle_malloc() -> None:
    """Give every contender the allocator of a process that has run for a while.

    A young glibc returns each temporary array to the kernel and faults it in again. That slows
    numpy code by blocks several times over, and depends on the order of subjects. glibc learns
    to keep arrays of the size of the largest that was freed, up to 32 MiB, so one is freed here.
    """
    np.empty(31 << 20, np.uint8)


def _repeats(contender: Contender, clock: Clock) -> int:
    _sample(contender, 1, clock)
    return math.ceil(SHORTEST / max(_sample(contender, 1, clock), 1e-7))


def _sample(contender: Contender, repeats: int, clock: Clock) -> float:
    if contender.prepare:
        contender.prepare()
    collecting = gc.isenabled()
    gc.disable()
    try:
        begin = clock()
        for _ in range(repeats):
            contender.run()
        return (clock() - begin) / repeats
    finally:
        if collecting:
            gc.enable()


def use_kernels(which: str) -> None:
    """Switch the domain to the ``fast`` or the ``reference`` kernels."""
    os.environ["MODELKIN_KERNELS"] = which
    kernels.cache_clear()
    kernels().warm()


def fastest_read(array: npt.NDArray[np.float32] | IndexArray) -> list[Contender]:
    """The candidates for "one read of the array", the physical limit of a method that reads it all.

    Use :meth:`Race.fastest` of their names; the fastest one depends on the machine.
    """
    bits = array.view(np.uint32)
    return [
        Contender("one read, compiled", lambda: _read(bits)),
        Contender("one read, np.max", lambda: array.max()),
        Contender("one read, np.sum", lambda: array.sum()),
    ]


@numba.njit
def _read(bits: Any) -> Any:
    seen = np.uint32(0)
    for i in range(bits.size):
        seen = np.uint32(seen | bits[i])
    return seen


def read_through(tensor: StoredTensor) -> None:
    """Compute all values of a tensor, stretch by stretch."""
    for _ in tensor.stretches():
        pass


def nanoseconds_a_value(tensor: StoredTensor, rounds: int) -> float:
    """The processor time of a value of a tensor, the median of some passes over it."""
    taken = []
    for _ in range(rounds):
        begin = time.thread_time()
        read_through(tensor)
        taken.append(time.thread_time() - begin)
    return statistics.median(taken) / tensor.size * 1e9


def extra_memory(run: Call) -> int | None:
    """The largest growth of the process in bytes during ``run``, its result included.

    It counts the kernel's resident pages, so numpy, torch and compiled code count alike.

    Returns:
        None without Linux's /proc and glibc's malloc.
    """
    try:
        gc.collect()
        # Memory that malloc kept would be used again without any growth.
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak, see proc(5)
        before = _resident("VmRSS")
        run()
        return max(0, _resident("VmHWM") - before)
    except (OSError, AttributeError):
        return None


def kept_memory(run: Call) -> tuple[float, int | None]:
    """The seconds of ``run``, and the growth of the process in bytes at its end.

    Freed memory is returned first; otherwise it would be used again without any growth.
    None without Linux's /proc and glibc's malloc.
    """
    before = _settled()
    begin = time.perf_counter()
    run()
    seconds = time.perf_counter() - begin
    after = _settled()
    return seconds, None if before is None or after is None else max(0, after - before)


def _settled() -> int | None:
    """Resident bytes after returning freed memory; None without Linux's /proc."""
    try:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        return _resident("VmRSS")
    except (OSError, AttributeError):
        return None


def _resident(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")
