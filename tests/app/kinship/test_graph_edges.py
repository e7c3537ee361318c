"""Edges found by signatures and compared again, beside those of all supports compared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.kinship import graph
from app.kinship import graph_edges as module
from app.kinship.graph import FoundGraph
from app.kinship.graph_edges import EdgeFinder, EdgeSet, GraphModels
from app.kinship.repository import Node
from modelkin.core.packed import PackedSupport
from modelkin.core.similarity.edges import Pairs
from modelkin.errors import InvalidParameter
from modelkin.types.kinship import Graph, GraphEdge
from tests.support.http_space import family

SUPPORTS = list(family(41, 6_000, 250, 60).values())


def models(*, whole_matrix: bool, without: int = 0) -> GraphModels:
    """60 models at all distances of the first; the last ``without`` sent only signatures."""
    packed: list[PackedSupport | None] = [PackedSupport.pack(support) for support in SUPPORTS]
    if without:
        packed[-without:] = [None] * without
    return GraphModels(
        names=[f"m{i:02d}" for i in range(len(SUPPORTS))],
        values=np.stack([support.signature().values for support in SUPPORTS]),
        supports=packed,
        bytes_each=750,
        whole_matrix=whole_matrix,
    )


def figures(found: EdgeSet) -> dict[tuple[int, int], tuple[float, bool]]:
    """Edges with their S, and whether it is exact."""
    rows = zip(found.pairs.ends.tolist(), found.pairs.similarity.tolist(), found.exact, strict=True)
    return {(a, b): (similarity, bool(exact)) for (a, b), similarity, exact in rows}


def test_refined_edges_have_the_exact_similarity() -> None:
    """Edges found by signatures have the S that comparing all supports gives them."""
    exact = figures(EdgeFinder(models(whole_matrix=True)).nearest(59))
    edges = figures(EdgeFinder(models(whole_matrix=False)).nearest(5))
    assert len(edges) > 100
    assert all(exact[pair] == value for pair, value in edges.items())


@pytest.mark.parametrize("without", [0, 20])
def test_a_threshold_holds_for_pairs_compared_again(without: int) -> None:
    """Supports decide about edges near the threshold.

    For pairs that both have one, the edges are those of comparing all supports.
    """
    whole, refined = (
        figures(EdgeFinder(models(whole_matrix=w, without=without)).beyond(0.3))
        for w in (True, False)
    )
    assert {0: {True}, 20: {True, False}}[without] == {exact for _, exact in whole.values()}
    assert whole == refined


def test_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """If comparing again would read too much, the estimates stand and are marked so."""
    monkeypatch.setattr(module, "_MAX_REFINED_BYTES", 10)
    for found in (
        EdgeFinder(models(whole_matrix=False)).nearest(5),
        EdgeFinder(models(whole_matrix=False)).beyond(0.3),
    ):
        assert {False} == {exact for _, exact in figures(found).values()}


def test_edges_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A threshold with too many pairs is refused, however they are compared.

    If the answer is just small enough but has too many pairs to compare again, estimates stand.
    """
    every = len(figures(EdgeFinder(models(whole_matrix=True)).beyond(0.1)))
    for whole_matrix in (True, False):
        monkeypatch.setattr(module, "MAX_EDGES", every // 4)
        with pytest.raises(InvalidParameter, match="raise the threshold"):
            EdgeFinder(models(whole_matrix=whole_matrix)).beyond(0.1)
    monkeypatch.undo()
    signed = replace(models(whole_matrix=False), supports=[None] * len(SUPPORTS))
    estimated = figures(EdgeFinder(signed).beyond(0.6))
    monkeypatch.setattr(module, "MAX_EDGES", len(estimated))
    assert estimated == figures(EdgeFinder(models(whole_matrix=False)).beyond(0.6))


def test_edges_are_made_while_they_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next thousand are made when the thousand before are sent, and none is left out."""
    n, made = 2_500, 0

    def counted(*figures: Any) -> GraphEdge:
        nonlocal made
        made += 1
        return GraphEdge(*figures)

    monkeypatch.setattr(graph, "GraphEdge", counted)
    names = [f"m{i:04d}" for i in range(n)]
    nodes = [Node(name, "signature", 9, None, None, None, (), None) for name in names]
    ends = np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)
    pairs = Pairs(ends, np.linspace(0.1, 0.9, n - 1))
    edges = EdgeSet(pairs, np.zeros(n - 1, np.bool_))
    facts = Graph(nodes=(), edges=(), version=3)
    unknown = np.full(n - 1, np.nan)
    found = FoundGraph(facts, nodes, edges, unknown, unknown, 256)
    seen = []
    for number, piece in enumerate(found.edge_pieces(), 1):
        assert made == min(n - 1, 1_000 * number)
        seen += [(edge.a, edge.b, edge.similarity) for edge in piece.edges]
    expected = zip(ends.tolist(), pairs.similarity.tolist(), strict=True)
    assert [(names[a], names[b], s) for (a, b), s in expected] == seen
    assert names == [node.model for piece in found.node_pieces() for node in piece.nodes]
