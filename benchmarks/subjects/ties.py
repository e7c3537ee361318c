"""Measure families whose members are about equally near: fine-tunes of one base.

Their S to each other lie within a few thousandths, which no estimate can order. The nearest by the
scan are compared with those of ``method=exact``, in a space of unrelated models beside them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from app.container import Container
from app.infra.db.database import Database
from app.models.catalog.batches import BatchEntry
from app.models.catalog.reader import ModelReader
from app.models.spaces.records import SpaceRecord
from app.search.service import SearchService
from benchmarks.report import Findings, Row, Table, duration
from benchmarks.retrieval.planted_models import BACKGROUNDS, Members, bits
from benchmarks.stored_space import stored
from modelkin import Support
from modelkin.types.search import Neighbors

LIBRARIES = ("numpy", "numba", "sqlalchemy")

M, QUICK_M = 1_000_064, 100_032
"""Multiples of 64, with more coordinates than a sketch has."""
FAMILIES, QUICK_FAMILIES = (250, 2_500), (30,)
UNRELATED, QUICK_UNRELATED = 1_000, 40
KEPT = 230 / 256
"""The share of the base's indices that a fine-tune keeps."""
QUERIES, QUICK_QUERIES = 25, 3
K = 10


@dataclass(frozen=True, slots=True)
class _Tied:
    """A query in a family: both answers and their seconds."""

    scan: Neighbors
    exact: Neighbors
    seconds: float
    exact_seconds: float

    @property
    def found(self) -> float:
        """The share of the exact answer that the scan found."""
        ours, theirs = ({item.model for item in each.items} for each in (self.scan, self.exact))
        return len(ours & theirs) / len(theirs)

    @property
    def spread(self) -> float:
        """How far apart the S of the exact answer lie."""
        return self.exact.items[0].similarity - self.exact.items[-1].similarity


def run(quick: bool) -> Findings:
    """Ask for the neighbours of some members of each family, by both methods."""
    m = QUICK_M if quick else M
    rows, facts = list[Row](), list[list[str]]()
    for size in QUICK_FAMILIES if quick else FAMILIES:
        unrelated = QUICK_UNRELATED if quick else UNRELATED
        with stored(_entries(m, size, unrelated), m) as (services, space):
            ask = partial(_asked, services, space)
            members = range(0, size, max(1, size // (QUICK_QUERIES if quick else QUERIES)))
            tied = [ask(f"tune/{number}") for number in members]
        rows += _rows(size, tied)
        facts.append(_facts(size, tied))
    columns = ["family", "S of the ten nearest span", "a query", "by `exact`", "left out", "slack"]
    return Findings(rows, [Table(f"Families, M = {m:,}, medians", columns, facts)])


def _entries(m: int, size: int, unrelated: int) -> Iterator[BatchEntry]:
    members, rng = Members(BACKGROUNDS[0], m // 64), np.random.default_rng(3)
    base = members.unrelated(1)[0]
    for number in range(size):
        kept = bits(rng, KEPT, base.size)
        new = bits(rng, 3 / 256, base.size)
        yield BatchEntry(f"tune/{number}", _support((base & kept) | (~base & new), m))
    for number in range(unrelated):
        yield BatchEntry(f"other/{number}", _support(members.unrelated(1)[0], m))


def _support(words: np.ndarray[tuple[int], np.dtype[np.uint64]], m: int) -> Support:
    flags = np.unpackbits(words.view(np.uint8), bitorder="little")
    return Support.from_indices(np.flatnonzero(flags), m)


def _asked(services: Container, space: SpaceRecord, name: str) -> _Tied:
    answers, took = list[Neighbors](), list[float]()
    for method in ("scan", "exact"):
        begin = time.perf_counter()
        with services[Database].reading() as session:
            subject = services[ModelReader].stored_subject(session, space, name)
            search = services[SearchService]
            answers.append(search.neighbors(session, space, subject, k=K, method=method))
        took.append(time.perf_counter() - begin)
    return _Tied(answers[0], answers[1], took[0], took[1])


def _rows(size: int, tied: list[_Tied]) -> list[Row]:
    what = f"a family of {size:,}, S of the nearest within {max(t.spread for t in tied):.4f}"
    found = float(np.mean([each.found for each in tied]))
    silent = sum(each.found < 1 and not each.scan.ties_left_out for each in tied)
    return [
        Row(
            f"{what}: found of what exact finds, or left out and said",
            f"{found:.3f}",
            f"{silent} of {len(tied)} answers miss one and do not say so",
            "",
            "≥ 0.95, or said",
            found >= 0.95 or not silent,
        )
    ]


def _facts(size: int, tied: list[_Tied]) -> list[str]:
    def median(values: Iterator[float]) -> float:
        return float(np.median(list(values)))

    return [
        f"{size:,}",
        f"{median(each.spread for each in tied):.4f}",
        duration(median(each.seconds for each in tied)),
        duration(median(each.exact_seconds for each in tied)),
        f"{median(float(each.scan.ties_left_out) for each in tied):,.0f}",
        f"{median(each.scan.similarity_slack for each in tied):.4f}",
    ]
