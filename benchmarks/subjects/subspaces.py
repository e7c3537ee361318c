"""Measure data subspaces: fits beside an SVD, queries beside one product, all pairs, and bytes."""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt
import scipy.linalg

from benchmarks.harness import Contender, Race, race
from benchmarks.report import Findings, Row, Table, at_least, at_most, duration
from modelkin import Subspace, fit_subspace
from modelkin.core.subspaces.affinity import Stack, affinities, scaled_columns

LIBRARIES = ("numpy", "scipy")

FIT, QUICK_FIT = (500, 3_072), (40, 64)
QUERIES, QUICK_QUERIES = ((10_000, 64, 5), (10_000, 512, 5), (100_000, 64, 5)), ((200, 64, 5),)
PAIRS, QUICK_PAIRS = (1_000, 512, 5), (20, 64, 5)
FIT_RATIO, QUERY_RATIO, PAIRS_RATIO, BYTES_RATIO = 4.0, 1.5, 50.0, 1.01
_LOOPED = 300
"""Pairs that the loop over scipy's angles measures, scaled to all pairs."""

Floats = npt.NDArray[np.float32]


def run(quick: bool) -> Findings:
    """Race the fit, the queries and all pairs with their peers."""
    rounds = 2 if quick else 7
    rows, tables = [], []
    for measured in (
        _fit(*(QUICK_FIT if quick else FIT), rounds),
        *(_query(*size, rounds) for size in (QUICK_QUERIES if quick else QUERIES)),
        _pairs(*(QUICK_PAIRS if quick else PAIRS), rounds),
    ):
        rows += measured[0]
        tables.append(measured[1])
    return Findings([*rows, _bytes()], tables)


def _fit(samples: int, features: int, rounds: int) -> tuple[list[Row], Table]:
    x = np.random.default_rng(0).normal(size=(samples, features))
    ours, peer = "fit_subspace, 5 directions", "numpy.linalg.svd"
    result = race(
        [
            Contender(ours, partial(fit_subspace, x, whole_rank=5)),
            Contender(peer, partial(np.linalg.svd, x, full_matrices=False)),
        ],
        rounds,
    )
    what = f"fit, {samples:,} samples of {features:,} features"
    return [_row(what, result, ours, peer, FIT_RATIO)], _table(what, result)


def _query(models: int, features: int, columns: int, rounds: int) -> tuple[list[Row], Table]:
    stack, query = _stack(models, features, columns)
    (mine,), (others,) = query.values(), stack.columns.values()
    ours, peer = "S with all of them", "the product it needs (sgemm)"
    result = race(
        [
            Contender(ours, partial(stack.query, query)),
            Contender(peer, lambda: mine @ others.T),
        ],
        rounds,
    )
    what = f"query of {models:,} subspaces, {columns} columns of {features + 1}"
    row = at_most(
        what,
        duration(result.seconds(ours).median),
        f"{peer}: {duration(result.seconds(peer).median)}",
        result.ratio(ours, peer),
        QUERY_RATIO,
    )
    return [row], _table(what, result)


def _pairs(models: int, features: int, columns: int, rounds: int) -> tuple[list[Row], Table]:
    subspaces = _subspaces(models, features, columns)
    bases = [each.blocks[0].columns.T.astype(np.float64) for each in subspaces]
    ours, peer = "all pairs", f"a loop over scipy.linalg.subspace_angles, of {_LOOPED} pairs"
    rng = np.random.default_rng(1)
    chosen = rng.integers(0, models, (_LOOPED, 2)).tolist()

    def loop() -> None:
        for a, b in chosen:
            scipy.linalg.subspace_angles(bases[a], bases[b])

    result = race(
        [Contender(ours, partial(affinities, subspaces, "whole")), Contender(peer, loop)],
        min(rounds, 3),
    )
    what = f"all pairs of {models:,} subspaces, {columns} columns of {features + 1}"
    pairs = models * (models - 1) / 2
    scale = pairs / _LOOPED
    seconds = result.seconds(peer).median * scale
    times = seconds / result.seconds(ours).median
    row = Row(
        what,
        duration(result.seconds(ours).median),
        f"a loop over scipy's angles: {duration(seconds)}",
        f"{times:.3g}×",
        f"≥ {PAIRS_RATIO:g}×",
        times >= PAIRS_RATIO,
    )
    return [row], _table(what, result)


def _bytes() -> Row:
    made = fit_subspace(np.random.default_rng(0).normal(size=(900, 512)))
    size, values = len(made.to_bytes()), made.num_columns * made.dimension
    ratio = size / (2 * values)
    return Row(
        f"bytes of {made.num_columns} columns of {made.dimension}",
        f"{size:,} B",
        f"two bytes a value: {2 * values:,} B",
        f"{ratio:.4f}×",
        f"≤ {BYTES_RATIO:g}×",
        ratio <= BYTES_RATIO,
    )


def _subspaces(models: int, features: int, columns: int) -> list[Subspace]:
    rng = np.random.default_rng(0)
    return [
        fit_subspace(rng.normal(size=(40, features)), whole_rank=columns, samples_per_direction=1)
        for _ in range(models)
    ]


def _stack(models: int, features: int, columns: int) -> tuple[Stack, dict[int, Floats]]:
    """Columns of so many subspaces, drawn at once: their values do not matter here."""
    rng = np.random.default_rng(0)
    drawn = rng.standard_normal((models * columns, features + 1), np.float32)
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    owners = np.repeat(np.arange(models), columns)
    (one,) = _subspaces(1, features, columns)
    return Stack(models, {-1: drawn}, {-1: owners}), dict(scaled_columns(one, "whole"))


def _row(what: str, result: Race, ours: str, peer: str, least: float) -> Row:
    return at_least(
        what,
        duration(result.seconds(ours).median),
        f"{peer}: {duration(result.seconds(peer).median)}",
        result.ratio(peer, ours),
        least,
    )


def _table(what: str, result: Race) -> Table:
    rows = [
        [name, duration(result.seconds(name).median), duration(result.seconds(name).least)]
        for name in result.samples
    ]
    return Table(f"Times of a {what}", ["", "median", "least"], rows)
