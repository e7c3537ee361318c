"""Measure comparisons: one pair of supports exactly, all pairs exactly, all pairs estimated."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.harness import Contender, Race, Spread, race, use_kernels
from benchmarks.report import Findings, Row, Table, at_least, duration, range_of
from benchmarks.retrieval.peers import installed
from benchmarks.retrieval.planted_models import BACKGROUNDS, H, bits, simulated
from modelkin import Support
from modelkin.core.kernels.choice import kernels
from modelkin.core.packed import PackedSupport, packed_shared_count
from modelkin.core.similarity.matrix import matrix
from modelkin.core.sketching.signature_matrix import estimated_matrix

LIBRARIES = ("numpy", "numba", "pyroaring", "scipy")

DENSITY = 0.08
PAIR, QUICK_PAIR = 11_000_000, 60_000
MATRIX, QUICK_MATRIX = (1_000, 1_000_000), (20, 60_000)
SIGNATURES, QUICK_SIGNATURES = 10_000, 300
ROWS = 64
"""Rows of the matrix that slow contenders compute, by all columns, scaled to all rows."""

OURS = "modelkin, bitmaps: AND + popcount"
LISTS = "modelkin, lists: sorted merge"
ROARING = "Roaring bitmaps"
INTERSECT = "np.intersect1d"
SCIPY = "scipy, sparse product"
MATRIX_OURS = "modelkin, packed.matrix"
ESTIMATED = "modelkin, estimated_matrix"

Words = npt.NDArray[np.uint64]


def run(quick: bool) -> Findings:
    """Measure the pair, then the two matrices."""
    use_kernels("fast")
    rounds = 2 if quick else 7
    parts = [
        _pair(QUICK_PAIR if quick else PAIR, rounds),
        _exact_matrix(*(QUICK_MATRIX if quick else MATRIX), min(rounds, 3)),
        _estimated_matrix(QUICK_SIGNATURES if quick else SIGNATURES, min(rounds, 5)),
    ]
    return Findings([row for rows, _ in parts for row in rows], [table for _, table in parts])


def _pair(m: int, rounds: int) -> tuple[list[Row], Table]:
    first, second = _supports(m, 2)
    a, b = (PackedSupport.pack(Support(indices, m)) for indices in (first, second))
    ways: dict[str, Callable[[], Any]] = {
        OURS: partial(packed_shared_count, a, b),
        LISTS: partial(kernels().intersect_count, first, second),
        INTERSECT: lambda: np.intersect1d(first, second, assume_unique=True).size,
    }
    if installed("pyroaring"):
        ways[ROARING] = _by_roaring(first, second)
    if installed("scipy"):
        ways[SCIPY] = _by_scipy([first, second], m)
    answers = {name: int(np.asarray(way()).ravel()[0]) for name, way in ways.items()}
    result = race([Contender(name, way) for name, way in ways.items()], rounds)
    what = f"one pair, M = {m:,}, K = {DENSITY:.0%}"
    rows = [
        Row(
            f"{what}: shared indices",
            f"{answers[OURS]:,}, the same in all {len(answers)} ways",
            "",
            "",
            "equal",
            len(set(answers.values())) == 1,
        )
    ]
    rows += [
        Row(
            f"{what}: time",
            duration(result.seconds(OURS).median),
            f"{name}: {duration(result.seconds(name).median)}",
            range_of(result.ratio(name, OURS)),
        )
        for name in ways
        if name != OURS
    ]
    return rows, _table(f"One pair, exactly, M = {m:,}, K = {DENSITY:.0%}", result, OURS)


def _exact_matrix(n: int, m: int, rounds: int) -> tuple[list[Row], Table]:
    lists = _supports(m, n)
    packed = [PackedSupport.pack(Support(indices, m)) for indices in lists]
    contenders = [Contender(MATRIX_OURS, partial(matrix, packed))]
    scales = {MATRIX_OURS: 1.0}
    some = lists[:ROWS]
    if installed("pyroaring"):
        contenders.append(Contender(ROARING, _roaring_rows(some, lists), rounds=1))
        scales[ROARING] = n / len(some) / 2  # the matrix is symmetric, so half would do
    if installed("scipy"):
        contenders.append(Contender(SCIPY, _scipy_rows(some, lists, m), rounds=1))
        scales[SCIPY] = n / len(some)
    measured = race(contenders, rounds).samples
    whole = {name: [each * scales[name] for each in measured[name]] for name in measured}
    result = Race(whole)
    what = f"exact matrix, n = {n:,}, M = {m:,}, K = {DENSITY:.0%}"
    ours = result.seconds(MATRIX_OURS)
    rows = [_within(f"{what}: time", ours, 4.0)]
    if SCIPY in whole:
        rows.append(
            at_least(
                f"{what}: time",
                duration(ours.median),
                f"{SCIPY}: {duration(result.seconds(SCIPY).median)}",
                result.ratio(SCIPY, MATRIX_OURS),
                15,
            )
        )
    title = f"All pairs of n = {n:,}, exactly (Roaring and scipy: {min(n, ROWS)} rows, scaled to n)"
    return rows, _table(title, result, MATRIX_OURS)


def _estimated_matrix(n: int, rounds: int) -> tuple[list[Row], Table]:
    values = simulated(BACKGROUNDS[0], n, 1).values
    ways: dict[str, Callable[[], Any]] = {
        ESTIMATED: partial(estimated_matrix, values),
        "numpy, row by row": _by_numpy(values),
    }
    result = race(
        [
            Contender(name, way, rounds=None if name == ESTIMATED else 1)
            for name, way in ways.items()
        ],
        rounds,
    )
    what = f"estimated matrix, n = {n:,}, h = {H}, all 32 bits"
    rows = [_within(f"{what}: time", result.seconds(ESTIMATED), 1.0)]
    return rows, _table(f"All pairs of n = {n:,} signatures, h = {H}", result, ESTIMATED)


def _supports(m: int, n: int) -> list[npt.NDArray[np.uint32]]:
    """Uniform supports of nearly equal sizes."""
    rng = np.random.default_rng(11)
    words = -(-m // 64)
    lists = []
    for _ in range(n):
        flags = np.unpackbits(bits(rng, DENSITY, words).view(np.uint8), bitorder="little")
        lists.append(np.flatnonzero(flags[:m]).astype(np.uint32))
    return lists


def _by_roaring(a: npt.NDArray[np.uint32], b: npt.NDArray[np.uint32]) -> Callable[[], int]:
    first, second = _roaring(a), _roaring(b)
    return lambda: int(first.intersection_cardinality(second))


def _roaring_rows(rows: list[Any], columns: list[Any]) -> Callable[[], Any]:
    made = [_roaring(each) for each in columns]
    return lambda: [
        [made[i].intersection_cardinality(other) for other in made] for i in range(len(rows))
    ]


def _roaring(indices: npt.NDArray[np.uint32]) -> Any:
    import pyroaring

    return pyroaring.BitMap(array("I", indices.tobytes()))


def _by_scipy(supports: list[npt.NDArray[np.uint32]], m: int) -> Callable[[], Any]:
    held = _sparse(supports, m)
    first, second = held[0], held[1].T.tocsc()
    return lambda: (first @ second).toarray()[0, 0]


def _scipy_rows(rows: list[Any], columns: list[Any], m: int) -> Callable[[], Any]:
    few, many = _sparse(rows, m), _sparse(columns, m).T.tocsr()
    return lambda: (few @ many).toarray()


def _sparse(supports: list[npt.NDArray[np.uint32]], m: int) -> Any:
    from scipy import sparse

    ends = np.cumsum([0, *(len(each) for each in supports)])
    indices = np.concatenate(supports).astype(np.int32)
    return sparse.csr_matrix((np.ones(indices.size, np.int32), indices, ends), (len(supports), m))


def _by_numpy(values: npt.NDArray[np.uint32]) -> Callable[[], Any]:
    def rows() -> Any:
        matrix = np.empty((len(values), len(values)), np.float32)
        for i, row in enumerate(values):
            jaccards = np.count_nonzero(values == row, axis=1) / H
            matrix[i] = 2 * jaccards / (1 + jaccards)
        return matrix

    return rows


def _within(figure: str, seconds: Spread, most: float) -> Row:
    spread = f"{duration(seconds.median)} ({duration(seconds.least)} – {duration(seconds.most)})"
    return Row(figure, spread, "", "", f"≤ {most:g} s", seconds.median <= most)


def _table(title: str, result: Race, ours: str) -> Table:
    rows = []
    for name in result.samples:
        seconds = result.seconds(name)
        spread = f"{duration(seconds.least)} – {duration(seconds.most)}"
        ratio = f"{result.ratio(name, ours).median:.3g}×"
        rows.append([name, duration(seconds.median), spread, ratio])
    return Table(title, ["one thread each", "median", "least – most", "of modelkin's"], rows)
