"""Measure selection of a support, by K and by coverage, beside numpy and torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from benchmarks import data
from benchmarks.harness import (
    Contender,
    Race,
    extra_memory,
    fastest_read,
    race,
    use_kernels,
)
from benchmarks.report import Findings, Row, Table, at_least, at_most, duration
from modelkin import Support, select_support

LIBRARIES = ("numpy", "numba", "torch")

FRACTION = 0.096
COVERAGE = 0.8
SIZES = (25_000_000, 110_000_000)
QUICK_SIZES = (60_000,)

FAST = "modelkin, numba"
PLAIN = "modelkin, numpy"
TOPK = "torch.topk"
ARGPARTITION = "np.argpartition"
SORT = "torch.sort + cumsum"
SLOW = {PLAIN: 3, TOPK: 3, ARGPARTITION: 3, SORT: 3}
"""Rounds of the contenders that take seconds."""

Floats = npt.NDArray[np.float32]


def run(quick: bool) -> Findings:
    """Measure both selections at each size, then other distributions at the smallest."""
    torch.set_num_threads(1)  # as everywhere in these benchmarks
    sizes, rounds = (QUICK_SIZES, 2) if quick else (SIZES, 7)
    findings = Findings([])
    for m in sizes:
        importance = data.heavy_tailed(m)
        for judge in (_by_count, _by_coverage):
            rows, table = judge(importance, rounds)
            findings.rows.extend(rows)
            findings.tables.append(table)
        del importance
    findings.tables.append(_distributions(sizes[0], rounds))
    return findings


def _by_count(importance: Floats, rounds: int) -> tuple[list[Row], Table]:
    m = importance.size
    k = int(m * FRACTION)
    ways: dict[str, Callable[[], Any]] = {
        FAST: partial(select_support, importance, k=k),
        PLAIN: partial(select_support, importance, k=k),
        "np.partition + flatnonzero": lambda: np.flatnonzero(
            importance >= np.partition(importance, m - k)[m - k]
        ),
        ARGPARTITION: lambda: np.argpartition(importance, m - k)[m - k :],
        TOPK: lambda: torch.topk(torch.from_numpy(importance), k, sorted=False).indices,
    }
    what = f"top K, M = {m:,}, K = {FRACTION:.1%}"
    result, read = _raced(importance, ways, rounds)
    memory = {name: extra_memory(_on_kernels(name, way)) for name, way in ways.items()}
    rows = [
        *_judged(what, result, read, 7, TOPK, 10),
        _memory_row(what, memory[FAST], m),
        _identical(what, ways[FAST]),
    ]
    return rows, _table(what, m, list(ways), result, read, memory)


def _by_coverage(importance: Floats, rounds: int) -> tuple[list[Row], Table]:
    m = importance.size
    ways: dict[str, Callable[[], Any]] = {
        FAST: partial(select_support, importance, coverage=COVERAGE),
        PLAIN: partial(select_support, importance, coverage=COVERAGE),
        SORT: partial(_sort_and_sum, importance),
    }
    what = f"coverage {COVERAGE:g}, M = {m:,}"
    result, read = _raced(importance, ways, rounds)
    memory = {name: extra_memory(_on_kernels(name, way)) for name, way in ways.items()}
    rows = [
        *_judged(what, result, read, 10, SORT, 40),
        _memory_row(what, memory[FAST], m),
        _identical(what, ways[FAST]),
        _rounding(what, importance),
    ]
    return rows, _table(what, m, list(ways), result, read, memory)


def _sort_and_sum(importance: Floats) -> torch.Tensor:
    values, order = torch.sort(torch.from_numpy(importance), descending=True)
    mass = values.cumsum(0, dtype=torch.float64)
    k = int(torch.searchsorted(mass, COVERAGE * mass[-1])) + 1
    return order[:k]


def _on_kernels(name: str, way: Callable[[], Any]) -> Callable[[], Any]:
    """A contender that first switches to the kernels of its name."""
    use_kernels("reference" if name == PLAIN else "fast")
    return way


def _raced(
    importance: Floats, ways: Mapping[str, Callable[[], Any]], rounds: int
) -> tuple[Race, str]:
    """The race, and the name of the fastest read in it."""
    reads = fastest_read(importance)
    contenders = [
        Contender(name, way, partial(_on_kernels, name, way), SLOW.get(name))
        for name, way in ways.items()
    ]
    result = race([*reads, *contenders], rounds)
    return result, result.fastest([each.name for each in reads])


def _judged(
    what: str, result: Race, read: str, reads: float, peer: str, faster: float
) -> list[Row]:
    ours = duration(result.seconds(FAST).median)
    limit = f"{read}: {duration(result.seconds(read).median)}"
    beside = f"{peer}: {duration(result.seconds(peer).median)}"
    return [
        at_most(f"{what}: over one read", ours, limit, result.ratio(FAST, read), reads),
        at_least(f"{what}: time", ours, beside, result.ratio(peer, FAST), faster),
    ]


def _memory_row(what: str, grown: int | None, m: int) -> Row:
    figure = f"{what}: memory, the result included"
    target = "≤ 1 byte a parameter"
    if grown is None:
        return Row(figure, "not measured on this system", "", "", target)
    return Row(figure, f"{grown / m:.2f} bytes a parameter", "", "", target, grown <= m)


def _identical(what: str, select: Callable[[], Support]) -> Row:
    supports = []
    for which in ("reference", "fast"):
        use_kernels(which)
        supports.append(select())
    same = supports[0] == supports[1]
    ours = f"{supports[1].k:,} indices, {'the same' if same else 'not the same'}"
    return Row(f"{what}: numba against numpy", ours, "", "", "bit-identical", same)


def _rounding(what: str, importance: Floats) -> Row:
    """K* by a float32 running sum over the sorted importance."""
    exact = select_support(importance, coverage=COVERAGE).k
    mass = np.cumsum(np.sort(importance)[::-1], dtype=np.float32)
    rounded = int(np.searchsorted(mass, np.float32(COVERAGE) * mass[-1])) + 1
    peer = f"float32 np.cumsum: {rounded:,}"
    return Row(f"{what}: K*", f"{exact:,}, exact", peer, f"off by {abs(rounded - exact):,}")


def _table(
    what: str,
    m: int,
    names: list[str],
    result: Race,
    read: str,
    memory: dict[str, int | None],
) -> Table:
    rows = []
    for name in [read, *names]:
        seconds = result.seconds(name)
        spread = f"{duration(seconds.least)} – {duration(seconds.most)}"
        reads = f"{result.ratio(name, read).median:.3g}×"
        grown = memory.get(name)
        taken = "" if grown is None else f"{grown / m:.2f}"
        rows.append([name, duration(seconds.median), spread, reads, taken])
    columns = ["one thread each", "median", "least – most", "of one read", "bytes a parameter"]
    return Table(f"{what[0].upper()}{what[1:]}", columns, rows)


def _distributions(m: int, rounds: int) -> Table:
    """Times of both selections on importances of other shapes, one of them half zero."""
    shapes: dict[str, Callable[[int], Floats]] = {
        "products of lognormals, as above": data.heavy_tailed,
        "the same, mostly between layers": data.layered,
        "uniform on [0, 1)": data.uniform,
        "half of them zero": data.half_zero,
        "all in one bin": data.one_bin,
    }
    rows = []
    for shape, make in shapes.items():
        importance = make(m)
        ways = {
            "K": partial(select_support, importance, k=int(m * FRACTION)),
            "coverage": partial(select_support, importance, coverage=COVERAGE),
        }
        result, read = _raced(importance, ways, rounds)
        reads = [f"{result.ratio(name, read).median:.3g}×" for name in ways]
        rows.append([shape, *reads])
    title = f"Sensitivity to the distribution, M = {m:,}, time over one read"
    return Table(title, ["importance", f"top K, {FRACTION:.1%}", f"coverage {COVERAGE:g}"], rows)
