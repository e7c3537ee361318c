"""Layouts of graphs of neighbours: repeatable, near what is near, and no part on another."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest

from modelkin.core.kinship.graph_layout import connected_parts, graph_layout, neighbor_edges
from modelkin.core.kinship.island_packing import pack_islands
from modelkin.core.similarity.distances import MatrixDistances
from modelkin.core.similarity.nearest import nearest

Floats = npt.NDArray[np.float64]


def planted(sizes: tuple[int, ...], between: float = 0.0, seed: int = 0) -> Floats:
    """Similarities of groups: about 0.6 within one, ``between`` two of them."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    same = labels[:, None] == labels
    noise = rng.random(same.shape) * 0.2
    similarity = np.where(same, 0.5 + noise, between * (1 + noise))
    similarity = np.triu(similarity, 1)
    whole: Floats = similarity + similarity.T + np.eye(labels.size)
    return whole


def laid_out(similarity: Floats, k: int = 10, seed: int = 0) -> npt.NDArray[np.float32]:
    """The places of these models."""
    n = len(similarity)
    usual = float(np.median(similarity[~np.eye(n, dtype=bool)]))
    near = nearest(MatrixDistances(similarity), min(k, n - 1))
    return graph_layout(n, *neighbor_edges(near, usual), seed)


def apart(places: npt.NDArray[np.float32]) -> Floats:
    """The distances of all pairs of places."""
    x, y = (places[:, None] - places[None]).astype(np.float64).transpose(2, 0, 1)
    far: Floats = np.hypot(x, y)
    return far


def test_the_same_seed_gives_the_same_places() -> None:
    """Bit by bit; another seed gives others."""
    similarity = planted((30, 20, 10))
    assert np.array_equal(laid_out(similarity), laid_out(similarity))
    assert not np.array_equal(laid_out(similarity), laid_out(similarity, seed=1))


@pytest.mark.parametrize("between", [0.0, 0.1, 0.3])
def test_neighbours_are_nearer_than_strangers(between: float) -> None:
    """Of every model, the mean member of its group is nearer than any mean of another group."""
    sizes = (40, 30, 20, 20)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    far = apart(laid_out(planted(sizes, between)))
    means = np.stack([far[:, labels == group].mean(axis=1) for group in range(len(sizes))], axis=1)
    assert np.array_equal(labels, means.argmin(axis=1))


def test_parts_without_an_edge_between_them_lie_apart() -> None:
    """No model of one is as near to one of another as the nearest of its own, also if alone."""
    sizes = (25, 12, 6, 2, 1, 1, 1)
    places = laid_out(planted(sizes))
    labels = np.repeat(np.arange(len(sizes)), sizes)
    far = apart(places)
    assert np.isfinite(places).all()
    assert far[labels[:, None] != labels].min() >= 1.0
    centres = [places[labels == group].mean(axis=0) for group in range(len(sizes))]
    radii = [np.hypot(*(places[labels == g] - centres[g]).T).max() for g in range(len(sizes))]
    for a, b in itertools.combinations(range(len(sizes)), 2):
        assert np.hypot(*(centres[a] - centres[b])) > (radii[a] + radii[b]) * 0.9


def test_many_models_that_share_nothing_have_a_place_each() -> None:
    """A space of strangers is a field of single models, none on another."""
    places = graph_layout(500, np.empty((0, 2), np.int64), np.empty(0, np.float32))
    far = apart(places)
    np.fill_diagonal(far, np.inf)
    assert far.min() >= 1.0


def test_two_models_have_two_places() -> None:
    """A graph of one edge."""
    places = graph_layout(2, np.array([[0, 1]]), np.ones(1, np.float32))
    assert 0.1 < apart(places)[0, 1] < 4


def test_the_last_report_is_of_all_rounds() -> None:
    """Rounds are reported in order, from none done to all."""
    reports: list[tuple[int, int]] = []
    ends, weights = np.array([[0, 1]]), np.ones(1, np.float32)
    graph_layout(2, ends, weights, report=lambda done, total: reports.append((done, total)))
    total = reports[-1][1]
    assert [(done, total) for done in range(total + 1)] == reports


def test_every_model_that_shares_anything_has_an_edge() -> None:
    """The nearest stays one, if no more similar than usual; sharing nothing makes no edge."""
    similarity = np.full((5, 5), 0.2)
    similarity[4] = similarity[:, 4] = 0.0
    np.fill_diagonal(similarity, 1.0)
    near = nearest(MatrixDistances(similarity), 3)
    ends, weights = neighbor_edges(near, 0.2)
    assert {0, 1, 2, 3} == set(ends.ravel().tolist())
    assert (weights > 0).all()
    assert (ends[:, 0] < ends[:, 1]).all()


def test_parts_are_those_of_a_search() -> None:
    """Parts of random graphs, long chains among them, against a search from every node."""
    rng = np.random.default_rng(0)
    for n, edges in ((1, 0), (60, 30), (200, 150), (300, 400)):
        ends = rng.integers(0, n, (edges, 2))
        if n == 300:
            ends = np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)[rng.permutation(n - 1)]
        assert np.array_equal(_searched(n, ends), connected_parts(n, ends))


def _searched(n: int, ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    linked: list[set[int]] = [set() for _ in range(n)]
    for a, b in ends.tolist():
        linked[a].add(b)
        linked[b].add(a)
    found = np.full(n, -1)
    for part, first in enumerate(range(n)):
        if found[first] >= 0:
            continue
        waiting = [first]
        while waiting:
            node = waiting.pop()
            if found[node] < 0:
                found[node] = part
                waiting += linked[node]
    return np.unique(found, return_inverse=True)[1].astype(np.int64)


def test_islands_do_not_overlap() -> None:
    """Large ones, many equal ones, and one alone."""
    for sizes in ([10_000, 500, 500, 40] + [1] * 400, [9] * 300, [7]):
        centres, radii = pack_islands(np.array(sizes))
        gaps = apart(centres.astype(np.float32)) - (radii[:, None] + radii)
        np.fill_diagonal(gaps, np.inf)
        assert gaps.min() > 0.4
