"""Measure what the judge of chance costs: clusterings with it, beside those without.

Both are jobs from the request to the commit, in one process on SQLite. The same models are in two
spaces, whose jobs are made in turn: one with a layout, so that chance in each tensor is known, and
one without, where nothing is judged.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from app.kinship.clustering.request import ClusteringRequest
from benchmarks.families import filled_space, layout_of
from benchmarks.harness import Contender, Race, race
from benchmarks.report import Findings, Row, duration, range_of
from benchmarks.subjects.clusterings import Place, Stopwatch

LIBRARIES = ("numpy", "numba", "scipy", "igraph")

TENSORS = 300
"""As many as a transformer of 25 layers has."""
SIZES = {"agglomerative": (1_000, 7), "hdbscan": (1_000, 7), "leiden": (10_000, 3)}
"""Of each algorithm the number of models and of rounds."""
QUICK_SIZE = 60, 2
WITH, WITHOUT = "judged", "not judged"


def run(quick: bool) -> Findings:
    """Measure clusterings by three algorithms."""
    rows: list[Row] = []
    for algorithm, size in SIZES.items():
        n, rounds = QUICK_SIZE if quick else size
        with filled_space(n, layout_of(TENSORS)) as judged, filled_space(n) as plain:
            first, second = (Place(*each, np.zeros(n, np.int64)) for each in (judged, plain))
            measured = _measured(first, second, ClusteringRequest(algorithm), rounds)
        ours, peer = (duration(measured.seconds(name).median) for name in (WITH, WITHOUT))
        ratio = range_of(measured.ratio(WITH, WITHOUT))
        figure = f"clusters judged by chance, {TENSORS} tensors: {algorithm}, n = {n:,}"
        rows.append(Row(figure, ours, f"{WITHOUT}: {peer}", ratio))
    return Findings(rows)


def _measured(judged: Place, plain: Place, asked: ClusteringRequest, rounds: int) -> Race:
    """Race the jobs of two spaces; the clusters have to be the same."""
    found = [place.make(asked, Stopwatch()) for place in (judged, plain)]
    if not np.array_equal(found[0][1], found[1][1]):
        raise AssertionError("the judge has taken clusters of kin apart")
    if "no layout" not in (found[1][0].note or "") or "no layout" in (found[0][0].note or ""):
        raise AssertionError("chance is not where it should be")
    contenders = [
        Contender(name, partial(place.make, asked, Stopwatch()))
        for name, place in ((WITH, judged), (WITHOUT, plain))
    ]
    return race(contenders, rounds)
