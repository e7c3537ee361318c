"""Measure donors, graphs and lineages: times among ten thousand models, and the quality of mixtures
in a real federation.

Times are of the service's own code in one process, without HTTP, from the question to the answer,
exact overlaps included. Mixtures are judged by the label mixes of scikit-learn's digits, which the
service does not know.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from app.container import Container
from app.infra.db.database import Database
from app.kinship.donors.request import DonorRequest
from app.kinship.donors.service import DonorService
from app.kinship.graph import FoundGraph, GraphService
from app.kinship.lineage import LineageService
from app.models.catalog.reader import ModelReader
from app.models.spaces.records import SpaceRecord
from app.search.service import SearchService
from benchmarks.families import DENSITY, M, filled_space
from benchmarks.report import Findings, Row, Table, duration
from demo import data, training
from modelkin import Support, select_support
from modelkin.core.kinship import donors
from modelkin.core.kinship.cover import greedy_cover
from modelkin.core.kinship.membership import TargetIndices
from modelkin.core.packed import PackedSupport
from modelkin.core.similarity.matrix import matrix
from modelkin.core.similarity.rarity import index_weights, rarities

LIBRARIES = ("numpy", "numba", "sqlalchemy", "torch", "scikit-learn")

MODELS, QUICK_MODELS = 10_000, 60
QUESTIONS = 40
TARGET_MS = 30
MOST_NEIGHBORS = 1.3
"""Donors by similarity take at most so many times what neighbours take."""
GRAPH_S = 10
SPLITS = ((0.1, 0), (0.1, 1), (0.1, 2), (0.3, 0), (0.3, 1), (0.3, 2))
"""Concentration and seed of the Dirichlet splits; the smaller, the fewer digits a client has."""
CLIENTS, QUICK_CLIENTS, DONORS = 40, 9, 8

ASKS = {
    "similarity": DonorRequest("similarity"),
    "idf": DonorRequest("idf"),
    "cover": DonorRequest("cover"),
    "knn_shapley": DonorRequest("knn_shapley", label="family"),
}

Floats = npt.NDArray[np.float64]


def run(quick: bool) -> Findings:
    """Measure times among many models, then mixtures of a federation."""
    n = QUICK_MODELS if quick else MODELS
    with filled_space(n) as (services, space):
        rows, table = _times(services, space, n, 3 if quick else QUESTIONS)
    return Findings(
        rows, [table, _mixtures(SPLITS[:1], QUICK_CLIENTS) if quick else _mixtures(SPLITS, CLIENTS)]
    )


def _times(
    services: Container, space: SpaceRecord, n: int, questions: int
) -> tuple[list[Row], Table]:
    names = [f"m{i:05d}" for i in np.random.default_rng(3).choice(n, questions, replace=False)]
    what = f"n = {n:,}, M = {M:,}, K = {DENSITY:.0%}"
    rows, facts = [], []
    for method, ask in ASKS.items():
        seconds = _question_times(
            services,
            names,
            partial(_donors, services, space, ask),
        )
        median = statistics.median(seconds)
        rows.append(
            Row(
                f"donors, {what}, method={method}: p50",
                duration(median),
                "target",
                "",
                f"≤ {TARGET_MS} ms",
                median * 1000 <= TARGET_MS,
            )
        )
        facts.append([f"donors, method={method}", *_spread(seconds)])
    rows.append(_beside_neighbors(services, space, names, what))
    seconds = _question_times(
        services,
        names,
        lambda session, name: services[LineageService].lineage(session, space, name),
    )
    facts.append(["lineage", *_spread(seconds)])
    seconds = _question_times(
        services, names[:3], lambda session, _: _made(services[GraphService].graph(session, space))
    )
    rows.append(
        Row(
            f"graph of the 10 nearest, {what}",
            duration(min(seconds)),
            "target",
            "",
            f"≤ {GRAPH_S} s",
            min(seconds) <= GRAPH_S,
        )
    )
    facts.append(["graph, k = 10", *_spread(seconds)])
    return rows, Table(f"Questions in one process, {what}", ["", "p50", "p95"], facts)


def _beside_neighbors(services: Container, space: SpaceRecord, names: list[str], what: str) -> Row:
    """Donors by similarity beside neighbours of the same models, in turns.

    Each model's neighbours are asked once before, since either question opens supports for both.
    """
    ways = partial(_neighbors, services, space), partial(_donors, services, space, DonorRequest())
    seconds: tuple[list[float], list[float]] = [], []
    for place, name in enumerate(names):
        _timed(services, ways[0], name)
        for way in (0, 1) if place % 2 else (1, 0):
            seconds[way].append(_timed(services, ways[way], name))
    near, found = (statistics.median(each) for each in seconds)
    return Row(
        f"donors, {what}, method=similarity, beside neighbours: p50",
        duration(found),
        f"neighbours: {duration(near)}",
        f"{found / near:.2f}×",
        f"≤ {MOST_NEIGHBORS}×",
        found / near <= MOST_NEIGHBORS,
    )


def _neighbors(services: Container, space: SpaceRecord, session: Any, name: str) -> object:
    subject = services[ModelReader].stored_subject(session, space, name)
    return services[SearchService].neighbors(session, space, subject, k=DonorRequest().k)


def _donors(
    services: Container, space: SpaceRecord, ask: DonorRequest, session: Any, name: str
) -> object:
    subject = services[ModelReader].stored_subject(session, space, name)
    return services[DonorService].donors(session, space, subject, ask)


def _question_times(
    services: Container, names: list[str], ask: Callable[[Any, str], object]
) -> list[float]:
    """Seconds of each question, without the first one, which loads the index."""
    return [_timed(services, ask, name) for name in [names[0], *names]][1:]


def _made(graph: FoundGraph) -> int:
    """Make all nodes and edges, as they are for an answer, and count the edges."""
    pieces = (*graph.node_pieces(), *graph.edge_pieces())
    return sum(len(piece.edges) for piece in pieces)


def _timed(services: Container, ask: Callable[[Any, str], object], name: str) -> float:
    begin = time.perf_counter()
    with services[Database].reading() as session:
        ask(session, name)
    return time.perf_counter() - begin


def _spread(seconds: list[float]) -> list[str]:
    return [duration(statistics.median(seconds)), duration(float(np.quantile(seconds, 0.95)))]


# --- mixtures -----------------------------------------------------------------------------------


def _mixtures(splits: tuple[tuple[float, int], ...], clients: int) -> Table:
    """The divergence of the donors' label mixture from the target's, by ranking and weights."""
    concentrations = sorted({alpha for alpha, _ in splits})
    found: dict[str, dict[float, list[float]]] = {}
    for alpha, seed in splits:
        for name, value in _divergences(alpha, seed, clients).items():
            found.setdefault(name, {}).setdefault(alpha, []).append(value)
    rows = [
        [name, *(f"{statistics.mean(by[alpha]):.3f}" for alpha in concentrations)]
        for name, by in found.items()
    ]
    return Table(
        f"Jensen-Shannon divergence between a client's labels and the mixture of its {DONORS} "
        f"donors' (base 2, mean over {clients} clients and the splits; less is better)",
        ["donors, weights", *(f"Dirichlet {alpha}" for alpha in concentrations)],
        rows,
    )


def _divergences(alpha: float, seed: int, clients: int) -> Mapping[str, float]:
    """The mean over the clients of one split, for each ranking and weighting of donors."""
    split = data.load_split(clients, alpha, seed)
    packed = [PackedSupport.pack(support) for support in _supports(split, seed)]
    similarity = matrix(packed)
    divergences: dict[str, list[float]] = {}
    for client in range(clients):
        others = np.array([other for other in range(clients) if other != client])
        others = others[np.argsort(-similarity[client, others], kind="stable")]
        for name, (chosen, weights) in _ways(packed, similarity[client], client, others).items():
            mixture = weights @ split.mixes[chosen]
            pair = np.stack([split.mixes[client], mixture])
            divergences.setdefault(name, []).append(float(data.jensen_shannon(pair)[0, 1]))
    return {name: statistics.mean(values) for name, values in divergences.items()}


def _supports(split: data.Split, seed: int) -> list[Support]:
    """Supports at the common weights, of the agreed size."""
    model = training.common_model(seed)
    importances = [
        training.importance(model, split, client) for client in range(len(split.clients))
    ]
    agreed = int(statistics.median_low(select_support(each).k for each in importances))
    return [select_support(each, k=agreed) for each in importances]


def _ways(
    packed: list[PackedSupport],
    similarity: Floats,
    client: int,
    others: npt.NDArray[np.int64],
) -> dict[str, tuple[npt.NDArray[np.int64], Floats]]:
    """Donors and weights, the nearest of the others first."""
    deviation = float(similarity[others].std())
    probe = TargetIndices.of(packed[client])
    held = np.stack([probe.membership_bits(packed[other]) for other in others])
    rarity = np.array([r.share for r in rarities(held, index_weights(held, probe.size))])
    near, rare = others[:DONORS], others[np.argsort(-rarity, kind="stable")][:DONORS]
    steps = greedy_cover(held, probe.size, DONORS)
    cover = others[[step.row for step in steps]]
    return {
        "similarity, similarity": (near, donors.weights(similarity[near])),
        "similarity, zscore": (near, donors.zscore_weights(similarity[near], deviation)),
        "idf, zscore": (rare, donors.zscore_weights(similarity[rare], deviation)),
        "cover, zscore": (cover, donors.zscore_weights(similarity[cover], deviation)),
        "cover, score": (cover, donors.proportional([step.explained for step in steps])),
    }
