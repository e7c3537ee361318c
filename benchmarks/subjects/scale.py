"""Measure up to ten million models on one node: load, memory, query, and recall.

The models sent signatures, which are written straight into the database. The index is the
service's own and loads from there; a query is the service's, without HTTP. The index sits in the
memory of this process.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from app.infra.db.database import Database
from app.models.catalog.reader import Subject
from app.models.index.registry import IndexRegistry
from app.models.index.warmup import IndexWarmup
from app.models.spaces.service import SpaceService
from app.search.service import SearchService
from app.tenancy.auth.records import Tenant
from benchmarks.harness import kept_memory, use_kernels
from benchmarks.plots import Curve, draw_curves
from benchmarks.report import Findings, Row, Table, duration
from benchmarks.retrieval.planted_models import NEAR, Background
from benchmarks.retrieval.signature_store import SPACE, Stored, stored_signatures

LIBRARIES = ("numpy", "numba", "sqlalchemy")

PLOT = Path(__file__).parents[2] / "docs" / "benchmarks" / "scale.svg"

SIZES, QUICK_SIZES = (100_000, 1_000_000, 10_000_000), (500, 1_000)
QUERIES, QUICK_QUERIES = 100, 4
BACKGROUND = Background("mixed", 0.0952, popular=0.23, least=0.4)
"""Unrelated models at a J of .05 and more, some popular places; kin at S from .4 to .9."""
LOAD_S = {1_000_000: 5.0, 10_000_000: 60.0}
P50_S = {10_000_000: 60e-3}
MAX_BYTES = 330
MIN_RECALL = 0.99


@dataclass(frozen=True, slots=True)
class _Scaled:
    """The figures among n models: seconds, bytes a model, and the recall of each stratum."""

    n: int
    database: int
    load: float
    memory: int | None
    queries: list[float]
    recall: list[float]

    def percentile(self, share: float) -> float:
        """Seconds within which that share of the queries was answered."""
        return float(np.quantile(self.queries, share))


def run(quick: bool) -> Findings:
    """Fill, load and ask at every size, the smallest first."""
    use_kernels("fast")
    found = []
    for n in QUICK_SIZES if quick else SIZES:
        queries = QUICK_QUERIES if quick else QUERIES
        with stored_signatures(BACKGROUND, n, queries) as stored:
            found.append(_measured(stored, n))
    if not quick:
        ours = [each.percentile(0.5) for each in found]
        line = [ours[0] * each.n / found[0].n for each in found]
        sizes = [each.n for each in found]
        curves = [Curve("modelkin", sizes, ours), Curve("in proportion to n", sizes, line)]
        draw_curves(PLOT, curves, "models", "p50 of a query")
    return _findings(found)


def _measured(stored: Stored, n: int) -> _Scaled:
    services = stored.services
    warmup = IndexWarmup(services[Database], services[IndexRegistry])
    load, grown = kept_memory(lambda: warmup.run(threading.Event()))
    if services[IndexRegistry].totals()[1] != n:
        raise RuntimeError(f"{services[IndexRegistry].totals()} is not an index of {n} models")
    seconds, found = [], []
    for number in range(-3, len(stored.queries)):
        begin = time.perf_counter()
        names = _asked(stored, max(0, number))
        if number >= 0:
            seconds.append(time.perf_counter() - begin)
            found.append([name in names for name in stored.near[number]])
    recall = np.mean(found, axis=0).tolist()
    memory = None if grown is None else round(grown / n)
    return _Scaled(n, stored.nbytes, load, memory, seconds, recall)


def _asked(stored: Stored, query: int) -> set[str]:
    services = stored.services
    with services[Database].reading() as session:
        space = services[SpaceService].get(session, services[Tenant], SPACE)
        subject = Subject(None, stored.queries[query], None)
        found = services[SearchService].neighbors(session, space, subject, k=NEAR, method="scan")
    return {item.model for item in found.items}


def _findings(found: list[_Scaled]) -> Findings:
    rows = [row for each in found for row in _rows(each)]
    facts = [
        [
            f"{each.n:,}",
            f"{each.database / 2**30:.2f} GiB",
            duration(each.load),
            "" if each.memory is None else f"{each.memory}",
            f"{duration(each.percentile(0.5))} ({duration(each.percentile(0.95))})",
            ", ".join(f"{share:.2f}" for share in each.recall),
        ]
        for each in found
    ]
    columns = ["models", "database", "load", "bytes a model", "a query: p50 (p95)"]
    strata = f"recall@{NEAR} by S, 0.4 to 0.9"
    return Findings(rows, [Table("Cost against the number of models", [*columns, strata], facts)])


def _rows(each: _Scaled) -> list[Row]:
    what, p50, recall = f"n = {each.n:,}", each.percentile(0.5), float(np.mean(each.recall))
    rows = [_row(f"{what}: load from the database", duration(each.load), LOAD_S, each.n, each.load)]
    rows.append(_row(f"{what}: p50 of a query", duration(p50), P50_S, each.n, p50))
    if each.memory is not None:
        fits = each.memory <= MAX_BYTES
        target = f"≤ {MAX_BYTES}" if each.n in P50_S else ""
        bytes_row = (f"{what}: bytes of memory a model", f"{each.memory}", "", "", target)
        rows.append(Row(*bytes_row, fits if target else None))
    target = f"≥ {MIN_RECALL}" if each.n in LOAD_S else ""
    met = recall >= MIN_RECALL if target else None
    rows.append(Row(f"{what}: recall@{NEAR}, S ≥ 0.4", f"{recall:.4f}", "", "", target, met))
    return rows


def _row(what: str, ours: str, targets: dict[int, float], n: int, seconds: float) -> Row:
    if n not in targets:
        return Row(what, ours, "", "")
    return Row(what, ours, "", "", f"≤ {duration(targets[n])}", seconds <= targets[n])
