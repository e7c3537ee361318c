"""Measure banding with and without a stop-list, if most indices are common to all models.

The figures are recall, models touched, and time.

Recall is measured on real importances of scikit-learn's digits, time on a larger synthetic
federation like those. The buckets are those of the service on SQLite.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from app.index.buckets.batching import split_into_steps
from app.index.buckets.sql import SqlBuckets
from app.infra.db.database import Database
from app.infra.db.migrations import migrate
from benchmarks.harness import Contender, Race, race
from benchmarks.report import Findings, Row, Table, duration, range_of
from modelkin import Banding, Support, select_support
from modelkin.core.packed import PackedSupport, matrix
from modelkin.core.similarity.common_indices import common_indices
from modelkin.core.sketching.banding import band_keys, remove_stop_list

LIBRARIES = ("numpy", "numba", "sqlalchemy", "torch", "scikit-learn")

H = 256
BANDINGS = (Banding(64, 4), Banding(85, 3), Banding(64, 2), Banding(128, 2))
JUDGED = Banding(64, 2)
NEAREST = 8
"""Neighbours to find among the digits' clients."""
SPLITS = ((0.1, 0), (0.1, 1), (0.1, 2), (0.3, 0), (0.3, 1), (0.3, 2))
"""Concentration and seed of the Dirichlet splits; the smaller, the fewer digits a client has."""
CLIENTS = 2_500
KIN = 10
"""Clients in a group of kin."""
M, K = 40_000, 3_000
QUERIES = 64
LIMIT = 50_000
"""Most entries of buckets that the service reads for a query."""

Rows = npt.NDArray[np.bool_]
Figures = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Federation:
    """Clients of one space.

    Attributes:
        supports: of all clients.
        kin: which client has to find which, shape ``(n, n)``.
    """

    supports: Sequence[Support]
    kin: Rows


def run(quick: bool) -> Findings:
    """Measure real clients first, then many."""
    real = [_digits(alpha, seed, quick) for alpha, seed in (SPLITS[:1] if quick else SPLITS)]
    made = _made(120 if quick else CLIENTS)
    shares, found = zip(*(_compared(federation) for federation in real), strict=True)
    share, large = _compared(made)
    times = _raced(made, quick)
    title = (
        f"Digits, {len(real)} splits of {len(real[0].supports)} clients, M = "
        f"{real[0].supports[0].num_parameters:,}, the {NEAREST} nearest of each: "
        f"{np.mean(shares):.0%} of the indices of a support are in the stop-list"
    )
    larger = (
        f"{len(made.supports):,} clients, M = {M:,}, K = {K:,}, {KIN - 1} kin each: {share:.0%} of "
        f"the indices of a support are in the stop-list"
    )
    mean = {place: np.mean([each[place] for each in found], axis=0) for place in found[0]}
    return Findings(
        [*_judged("digits", mean), *_judged("made", large), _time(times)],
        [_table(title, mean, None), _table(larger, large, times)],
    )


# --- federations ----------------------------------------------------------------------------------


def _digits(alpha: float, seed: int, quick: bool) -> Federation:
    """Importances at the weights that every client received, before any training."""
    from demo.data import load_split
    from demo.training import common_model, importance

    clients = 12 if quick else 40
    split, model = load_split(clients, alpha, seed), common_model(seed)
    supports = [
        select_support(importance(model, split, client), coverage=0.8) for client in range(clients)
    ]
    similarity = matrix([PackedSupport.pack(support) for support in supports])
    np.fill_diagonal(similarity, -1)
    least = np.sort(similarity, axis=1)[:, -NEAREST]
    return Federation(supports, similarity >= least[:, None])


def _made(clients: int) -> Federation:
    """Clients in groups of kin.

    60% of a support comes from indices that 55% to 65% of all clients hold, 26% from indices that
    a quarter hold, and the rest is its own. A client holds an index if their normal variable is
    small. Most of that variable is common to its group, and more so for common indices, as with
    digits.
    """
    rng = np.random.default_rng(1)
    pool, rarer = K, round(0.26 * K / 0.25)
    held = np.concatenate([rng.uniform(0.55, 0.65, pool), np.full(rarer, 0.25)])
    bound = np.array([NormalDist().inv_cdf(share) for share in held])
    supports = []
    for _ in range(clients // KIN):
        near = rng.uniform()
        alike = np.where(np.arange(pool + rarer) < pool, 0.97 + 0.029 * near, 0.6 + 0.35 * near)
        ours = np.sqrt(alike) * rng.standard_normal(pool + rarer)
        for _ in range(KIN):
            mine = ours + np.sqrt(1 - alike) * rng.standard_normal(pool + rarer)
            own = rng.choice(M - pool - rarer, round(0.14 * K), replace=False) + pool + rarer
            indices = np.concatenate([np.flatnonzero(mine < bound), np.sort(own)])
            supports.append(Support.from_indices(indices, M))
    group = np.arange(len(supports)) // KIN
    kin = group[:, None] == group
    np.fill_diagonal(kin, False)
    return Federation(supports, kin)


# --- what is found --------------------------------------------------------------------------------


def _stop_list(supports: Sequence[Support]) -> npt.NDArray[np.unsignedinteger]:
    packed = [PackedSupport.pack(support) for support in supports[:1_000]]
    return common_indices(packed, -(-len(packed) // 2))


def _left(federation: Federation) -> list[Support]:
    """The supports without the stop-list."""
    common = _stop_list(federation.supports)
    return [
        Support(remove_stop_list(support.indices, common), support.num_parameters)
        for support in federation.supports
    ]


def _values(supports: Sequence[Support]) -> npt.NDArray[np.uint32]:
    return np.stack([support.signature(H).values for support in supports]).astype(np.uint32)


def _compared(federation: Federation) -> tuple[float, dict[tuple[Banding, bool], Figures]]:
    """The share of the indices that are common; and for each banding, without and with the
    stop-list, the recall of kin, the share of the models that a query touches, and J of kin and
    of others.
    """
    left = _left(federation)
    share = 1 - sum(s.k for s in left) / sum(s.k for s in federation.supports)
    found = {}
    for listed, supports in ((False, federation.supports), (True, left)):
        values = _values(supports)
        near = _jaccard(supports, federation.kin)
        for banding in BANDINGS:
            touched = _touched(values, banding)
            others = len(values) * (len(values) - 1)
            figures = (touched[federation.kin].mean(), touched.sum() / others, *near)
            found[banding, listed] = np.array(figures)
    return share, found


def _jaccard(supports: Sequence[Support], kin: Rows) -> tuple[float, float]:
    """J of kin and of others, on average; over the first 1,000 models."""
    some = slice(0, 1_000)
    similarity = matrix([PackedSupport.pack(support) for support in supports[some]])
    jaccard = similarity / (2 - similarity)
    others = ~kin[some, some]
    np.fill_diagonal(others, False)
    return float(jaccard[kin[some, some]].mean()), float(jaccard[others].mean())


def _touched(values: npt.NDArray[np.uint32], banding: Banding) -> Rows:
    """Which models share a bucket, shape ``(n, n)``, without the diagonal."""
    keys = band_keys(values, banding)
    touched = np.zeros((len(keys), len(keys)), np.bool_)
    for band in keys.T:
        order = np.argsort(band, kind="stable")
        for members in np.split(order, np.flatnonzero(np.diff(band[order]) != 0) + 1):
            if members.size > 1:
                touched[np.ix_(members, members)] = True
    np.fill_diagonal(touched, False)
    return touched


# --- how long it takes ----------------------------------------------------------------------------


def _raced(federation: Federation, quick: bool) -> Race:
    """A query of the buckets of each banding, in SQLite as the service keeps them."""
    with _database() as database:
        contenders: list[Contender] = []
        for listed, supports in ((False, federation.supports), (True, _left(federation))):
            values = _values(supports)
            for banding in BANDINGS:
                space = len(contenders) + 1
                contenders.append(
                    _contender(SqlBuckets(database), space, values, banding, _name(banding, listed))
                )
        return race(contenders, 2 if quick else 7)


def _contender(
    buckets: SqlBuckets,
    space: int,
    values: npt.NDArray[np.uint32],
    banding: Banding,
    name: str,
) -> Contender:
    keys = band_keys(values, banding)
    changes = ((number, number, b"") for number in range(1, len(keys) + 1))
    for step in split_into_steps(changes, 0, len(keys), max_step_size=buckets.max_step_size):
        upserts = [(number, keys[number - 1]) for number, _ in step.upserts]
        assert buckets.apply(space, 1, step.since, step.until, upserts, ())
    asked = cycle(np.random.default_rng(2).choice(len(keys), QUERIES))
    return Contender(name, lambda: buckets.candidates(space, keys[next(asked)], LIMIT))


@contextmanager
def _database() -> Iterator[Database]:
    with tempfile.TemporaryDirectory() as folder:
        database = Database(f"sqlite:///{Path(folder) / 'm.db'}", timeout=10)
        try:
            migrate(database)
            yield database
        finally:
            database.close()


def _name(banding: Banding, listed: bool) -> str:
    return f"{banding.bands} x {banding.rows}{', stop-list' if listed else ''}"


# --- what is written ------------------------------------------------------------------------------


def _judged(which: str, found: dict[tuple[Banding, bool], Figures]) -> list[Row]:
    before, after = found[JUDGED, False], found[JUDGED, True]
    name = f"{_name(JUDGED, True)}, {which}"
    return [
        Row(
            f"{name}: kin found",
            f"{after[0]:.1%}",
            f"without: {before[0]:.1%}",
            "",
            "≥ 94%",
            bool(after[0] >= 0.94),
        ),
        Row(
            f"{name}: models touched",
            f"{after[1]:.1%}",
            f"without: {before[1]:.1%}",
            f"{after[1] / before[1]:.2f}×",
            "≤ 56%",
            bool(after[1] <= 0.56),
        ),
    ]


def _time(times: Race) -> Row:
    with_list, without_list = _name(JUDGED, True), _name(JUDGED, False)
    return Row(
        f"{with_list}, made: a query of the buckets",
        duration(times.seconds(with_list).median),
        f"without: {duration(times.seconds(without_list).median)}",
        range_of(times.ratio(without_list, with_list)),
    )


def _table(title: str, found: dict[tuple[Banding, bool], Figures], times: Race | None) -> Table:
    columns = ["banding", "kin found", "models touched", "J of kin", "J of others"]
    rows = []
    for (banding, listed), (recall, touched, near, far) in found.items():
        name = _name(banding, listed)
        row = [name, f"{recall:.1%}", f"{touched:.1%}", f"{near:.2f}", f"{far:.2f}"]
        rows.append([*row, duration(times.seconds(name).median)] if times else row)
    return Table(title, [*columns, "a query"] if times else columns, rows)
