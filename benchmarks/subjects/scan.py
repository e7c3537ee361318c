"""Measure scans that need not read every byte, beside one that does.

Among millions of models the service reads half of the columns first; that is measured as it is.
The other way reads half of every byte first, in planes of bits, and then whole bytes of the models
that agree in most halves. It is not part of modelkin: this shows why.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from app.models.index.cascade import scan_size
from app.models.index.columns import ByteColumns
from app.models.index.rows import OrderedRows
from app.models.index.space_index import Snapshot
from benchmarks.harness import Contender, race, use_kernels
from benchmarks.report import Findings, Row, Table, duration, range_of
from benchmarks.retrieval.planted_models import (
    BACKGROUNDS,
    NEAR,
    Background,
    H,
    Kin,
    drawn_some,
    plant,
    simulated,
)
from modelkin.core.kernels import fast
from modelkin.core.kernels.loops import compile_loop, popcount, prefetch, read_only

LIBRARIES = ("numpy", "numba")

Words = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int16]
Rows = npt.NDArray[np.int64]

N, QUICK_N = 500_000, 600
QUERIES, QUICK_QUERIES = 60, 3
ROUNDS, QUICK_ROUNDS = 15, 2
_CHUNK = 100_000
SHARES = (8, 16)
"""One in so many models is compared whole."""
STRATA = (0, 1, 3, 9)
LARGE_N, QUICK_LARGE_N = 4_000_000, 2_000
LARGE = Background("mixed", 0.0952, popular=0.23, least=0.4)
COLUMNS = "half of the columns first"
ALL = "all bytes"


@dataclass(frozen=True, slots=True)
class Halves:
    """Bytes cut into planes of bits: four low ones in an array, four high ones in another.

    Attributes:
        low, high: shape ``(n, H / 16)``; four words of 64 values each, bit by bit.
    """

    low: Words
    high: Words

    @classmethod
    def of(cls, octets: npt.NDArray[np.uint8]) -> Halves:
        """The planes of rows of H bytes, some rows at a time."""
        low, high = (np.empty((len(octets), H // 16), np.uint64) for _ in range(2))
        for begin in range(0, len(octets), 4096):
            some = octets[begin : begin + 4096].reshape(-1, H // 64, 64)
            for plane in range(8):
                packed = np.packbits(some >> plane & 1, axis=2, bitorder="little")
                words = packed.view(np.uint64)[:, :, 0]
                (low if plane < 4 else high)[begin : begin + len(some), plane % 4 :: 4] = words
        return cls(low, high)

    def best(self, query: Halves, count: int, share: int) -> Rows:
        """The rows that share most bytes with a query, among those that share most halves."""
        halves = np.empty(len(self.low), np.int16)
        _count_halves(read_only(self.low.ravel()), read_only(query.low[0]), H, halves)
        most = max(len(halves) // share, 4 * count)
        near = fast.best(halves, H, most)
        counts = np.empty(near.size, np.int16)
        ours = read_only(query.low[0]), read_only(query.high[0])
        planes = read_only(self.low.ravel()), read_only(self.high.ravel())
        _count_whole(*planes, *ours, near, H, counts)
        found: Rows = near[fast.best(counts, H, count)]
        return found


def run(quick: bool) -> Findings:
    """Race both scans on every background."""
    use_kernels("fast")
    sizes = QUICK_N, QUICK_QUERIES, QUICK_ROUNDS
    n, queries, rounds = sizes if quick else (N, QUERIES, ROUNDS)
    rows, facts = list[Row](), list[list[str]]()
    for background in BACKGROUNDS:
        some, more = _measured(background, simulated(background, n, queries), rounds)
        rows += some
        facts += more
    rows += _column_rows(QUICK_LARGE_N if quick else LARGE_N, queries)
    columns = ["background, scan", "recall of the ten nearest", "by S, four strata"]
    return Findings(rows, [Table(f"Candidates that a scan proposes, n = {n:,}", columns, facts)])


def _column_rows(n: int, queries: int) -> list[Row]:
    """The service's scan, with and without the first half of the columns, by turns."""
    snapshot, asked, near = _halved(n, queries)
    count, whole, some = scan_size(n, NEAR), list[float](), list[float]()
    shares, found = list[float](), list[float]()
    for query in range(-2, queries):
        values = asked[max(0, query)]
        begin = time.perf_counter()
        snapshot.scan(values).best(count)
        middle = time.perf_counter()
        scan = snapshot.scan(values, nearest=NEAR)
        best = scan.best(count)
        end = time.perf_counter()
        if query >= 0:
            whole.append(middle - begin)
            some.append(end - middle)
            shares.append(scan.ids.size / n)
            found.append(float(np.isin(near[query], best.ids).mean()))
    ratio = np.array(some) / np.array(whole)
    what = f"n = {n:,}, kin at S ≥ 0.4: {COLUMNS}"
    times = duration(float(np.median(some))), f"{ALL}: {duration(float(np.median(whole)))}"
    spread = f"{np.median(ratio):.2f}× ({ratio.min():.2f}–{ratio.max():.2f})"
    recall = f"{float(np.mean(found)):.4f}"
    read = f"{float(np.median(shares)):.1%} of the models are read whole"
    return [
        Row(what, *times, spread),
        Row(f"{what}: recall of the ten nearest", recall, read, ""),
    ]


def _halved(n: int, queries: int) -> tuple[Snapshot, npt.NDArray[np.uint32], Rows]:
    """An index of n models, in halves whatever n is, the queries, and the rows of their kin."""
    asked = drawn_some(LARGE, queries, 1, LARGE.popular)
    near = np.random.default_rng(1).permutation(n)[: queries * NEAR].reshape(queries, NEAR)
    columns = ByteColumns(tuple(np.empty((n, H // 2), np.uint8) for _ in range(2)))
    for begin in range(0, n, _CHUNK):
        seed = begin // _CHUNK + 2
        values = drawn_some(LARGE, min(_CHUNK, n - begin), seed)
        plant(LARGE, values, asked, near - begin, np.random.default_rng(seed))
        columns.write(begin, values)
    ids, none = np.arange(n), np.empty(0, np.int64)
    ordered = OrderedRows(ids, ids.astype(np.int32), n)
    alive = np.ones(n, np.bool_)
    return Snapshot(1, columns, ids, np.zeros(n, np.int64), alive, none, ordered), asked, near


def _measured(background: Background, kin: Kin, rounds: int) -> tuple[list[Row], list[list[str]]]:
    octets = kin.values.astype(np.uint8)
    halves, asked = Halves.of(octets), kin.queries.astype(np.uint8)
    parts = [Halves.of(asked[query : query + 1]) for query in range(len(asked))]
    count = scan_size(len(octets), 10)

    def whole(query: int) -> Rows:
        return fast.best(fast.match_counts(octets, asked[query]), H, count)

    def halved(share: int, query: int) -> Rows:
        return halves.best(parts[query], count, share)

    ways: dict[str, Any] = {ALL: whole}
    ways |= {f"halves, then one in {share}": partial(halved, share) for share in SHARES}
    facts = []
    for name, way in ways.items():
        found = np.stack([np.isin(kin.near[q], way(q)) for q in range(len(asked))])
        strata = ", ".join(f"{each:.3f}" for each in found.mean(axis=0)[list(STRATA)])
        facts.append([f"{background.name}, {name}", f"{found.mean():.4f}", strata])
    times = race([Contender(name, partial(way, 0)) for name, way in ways.items()], rounds)
    rows = [
        Row(
            f"n = {len(octets):,}, {background.name}: {name}",
            duration(times.seconds(name).median),
            f"{ALL}: {duration(times.seconds(ALL).median)}",
            range_of(times.ratio(name, ALL)),
        )
        for name in list(ways)[1:]
    ]
    return rows, facts


@compile_loop
def _count_halves(flat: Any, query: Any, h: int, counts: Any) -> None:
    w = np.uint64(query.size)
    one, two, three = np.uint64(1), np.uint64(2), np.uint64(3)
    for row in range(counts.size):
        first, other = np.uint64(row) * w, np.uint64(0)
        for begin in range(0, query.size, 4):
            j = np.uint64(begin)
            at = first + j
            low = (flat[at] ^ query[j]) | (flat[at + one] ^ query[j + one])
            high = (flat[at + two] ^ query[j + two]) | (flat[at + three] ^ query[j + three])
            other += popcount(low | high)
        counts[row] = np.int16(h - np.int64(other))


@compile_loop
def _count_whole(
    low: Any, high: Any, ours: Any, ours_high: Any, near: Any, h: int, counts: Any
) -> None:
    w = np.uint64(ours.size)
    bases = np.uint64(low.ctypes.data), np.uint64(high.ctypes.data)
    for i in range(near.size):
        ahead = np.uint64(near[min(i + 16, near.size - 1)]) * w * np.uint64(8)
        for line in range(0, 8 * ours.size, 64):
            prefetch(bases[0] + ahead + np.uint64(line))
            prefetch(bases[1] + ahead + np.uint64(line))
        first, other = np.uint64(near[i]) * w, np.uint64(0)
        for begin in range(0, ours.size, 4):
            differ = np.uint64(0)
            for plane in range(4):
                j = np.uint64(begin + plane)
                differ |= (low[first + j] ^ ours[j]) | (high[first + j] ^ ours_high[j])
            other += popcount(differ)
        counts[i] = np.int16(h - np.int64(other))
