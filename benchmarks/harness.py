"""Interleaved races: several ways to one result, timed in one process, round by round.

A machine that others use is fast in one minute and slow in the next. So the contenders run A B C
A B C, and a ratio is the median of the ratios *within* the rounds, where both had the same machine.
It never decides whether a figure is good: that is ``report``'s.
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

from modelkin.core.indices import IndexArray
from modelkin.core.kernels.choice import kernels

__all__ = [
    "Contender",
    "Race",
    "Spread",
    "extra_memory",
    "fastest_read",
    "kept_memory",
    "race",
    "use_kernels",
]

SHORTEST = 0.01
"""Seconds that a sample lasts at least: what is faster is called several times in a row."""

Call = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to the result.

    Attributes:
        name: as the tables show it.
        run: the whole way, with everything that its user would have to do.
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
    """What was measured: the median, the least and the most of the rounds."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        """The spread of at least one sample."""
        return cls(statistics.median(samples), min(samples), max(samples))

    def times(self, factor: float) -> Spread:
        """The same in another unit."""
        return Spread(self.median * factor, self.least * factor, self.most * factor)


@dataclass(frozen=True, slots=True)
class Race:
    """The seconds of every contender in every round that it took part in."""

    samples: dict[str, list[float]]

    def seconds(self, name: str) -> Spread:
        """How long one call took."""
        return Spread.of(self.samples[name])

    def ratio(self, slower: str, faster: str) -> Spread:
        """How many times longer ``slower`` took, pair by pair in the rounds that both ran in."""
        pairs = zip(self.samples[slower], self.samples[faster], strict=False)
        return Spread.of([a / b for a, b in pairs])

    def fastest(self, names: Sequence[str]) -> str:
        """The one with the least median."""
        return min(names, key=lambda name: self.seconds(name).median)


def race(contenders: Sequence[Contender], rounds: int) -> Race:
    """Runs the contenders in turn, ``rounds`` times, after one call of each to warm up."""
    _settle_malloc()
    repeats = {each.name: 1 if each.rounds else _repeats(each) for each in contenders}
    samples: dict[str, list[float]] = {each.name: [] for each in contenders}
    for number in range(rounds):
        for each in contenders:
            if each.rounds is None or number < each.rounds:
                samples[each.name].append(_sample(each, repeats[each.name]))
    return Race(samples)


def _settle_malloc() -> None:
    """Gives every contender the allocator of a process that has been at work for a while.

    A young glibc returns each temporary array to the kernel and faults it in again, which slows
    whatever numpy does by blocks several times over, in an order of subjects more than in another.
    It learns to keep arrays of the size of the largest that was freed, up to 32 MiB: so one is.
    """
    np.empty(31 << 20, np.uint8)


def _repeats(contender: Contender) -> int:
    _sample(contender, 1)
    return math.ceil(SHORTEST / max(_sample(contender, 1), 1e-7))


def _sample(contender: Contender, repeats: int) -> float:
    if contender.prepare:
        contender.prepare()
    collecting = gc.isenabled()
    gc.disable()
    try:
        begin = time.perf_counter()
        for _ in range(repeats):
            contender.run()
        return (time.perf_counter() - begin) / repeats
    finally:
        if collecting:
            gc.enable()


def use_kernels(which: str) -> None:
    """Makes the domain run on the ``fast`` or the ``reference`` kernels from here on."""
    os.environ["MODELKIN_KERNELS"] = which
    kernels.cache_clear()
    kernels().warm()


def fastest_read(array: npt.NDArray[np.float32] | IndexArray) -> list[Contender]:
    """The candidates for "one read of the array", the physical limit of whatever has to see it all.

    Take :meth:`Race.fastest` of their names: which one is the fastest depends on the machine.
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


def extra_memory(run: Call) -> int | None:
    """Bytes by which the process grows at most while ``run`` runs, its result included.

    As the kernel counts resident pages, so it sees numpy's, torch's and the compiled code's alike.

    Returns:
        None where the kernel does not tell (it is Linux's /proc and glibc's malloc that do).
    """
    try:
        gc.collect()
        # What malloc kept for later would be taken again without the process growing.
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # forgets the peak, see proc(5)
        before = _resident("VmRSS")
        run()
        return max(0, _resident("VmHWM") - before)
    except (OSError, AttributeError):
        return None


def kept_memory(run: Call) -> tuple[float, int | None]:
    """The seconds that ``run`` takes, and by how many bytes the process has grown in the end.

    Memory that was freed before and not given back would be taken again without the process
    growing, and so is given back first. None where the kernel does not tell.
    """
    before = _settled()
    begin = time.perf_counter()
    run()
    seconds = time.perf_counter() - begin
    after = _settled()
    return seconds, None if before is None or after is None else max(0, after - before)


def _settled() -> int | None:
    """Resident bytes, once everything freed is given back; None where the kernel does not tell."""
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
