"""Edges found by signatures and compared again, beside those of all supports compared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from app.kinship import graph_edges as module
from app.kinship.graph_edges import EdgeFinder, EdgeSet, GraphModels
from modelkin.core.packed import PackedSupport
from modelkin.errors import InvalidParameter
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
