"""Edges found by signatures and compared again, beside those of all supports compared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from app.kinship import graph_edges as module
from app.kinship.graph_edges import Edges, Found, Models
from modelkin.core.packed import PackedSupport
from modelkin.errors import InvalidParameter
from tests.support.http_space import family

SUPPORTS = list(family(41, 6_000, 250, 60).values())


def models(*, whole_matrix: bool, without: int = 0) -> Models:
    """60 models at all distances of the first; the last ``without`` sent signatures alone."""
    packed: list[PackedSupport | None] = [PackedSupport.pack(support) for support in SUPPORTS]
    if without:
        packed[-without:] = [None] * without
    return Models(
        names=[f"m{i:02d}" for i in range(len(SUPPORTS))],
        values=np.stack([support.signature().values for support in SUPPORTS]),
        supports=packed,
        bytes_each=750,
        whole_matrix=whole_matrix,
    )


def told(found: Found) -> dict[tuple[int, int], tuple[float, bool]]:
    """Edges with their S, and whether it is exact."""
    rows = zip(found.pairs.ends.tolist(), found.pairs.similarity.tolist(), found.exact, strict=True)
    return {(a, b): (similarity, bool(exact)) for (a, b), similarity, exact in rows}


def test_refined_edges_have_the_exact_similarity() -> None:
    """Found by signatures, every edge has the S that comparing all supports gives it."""
    exact = told(Edges(models(whole_matrix=True)).nearest(59))
    edges = told(Edges(models(whole_matrix=False)).nearest(5))
    assert len(edges) > 100
    assert all(exact[pair] == value for pair, value in edges.items())


@pytest.mark.parametrize("without", [0, 20])
def test_a_threshold_holds_for_what_was_compared_again(without: int) -> None:
    """Edges near the threshold are decided by supports where there are any: the same ones as when
    all are compared, for every pair that has both.
    """
    whole, refined = (
        told(Edges(models(whole_matrix=w, without=without)).beyond(0.3)) for w in (True, False)
    )
    assert {0: {True}, 20: {True, False}}[without] == {exact for _, exact in whole.values()}
    assert whole == refined


def test_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where comparing again would read too much the estimates stand, and say that they are such."""
    monkeypatch.setattr(module, "_REFINED_WORK", 10)
    for found in (
        Edges(models(whole_matrix=False)).nearest(5),
        Edges(models(whole_matrix=False)).beyond(0.3),
    ):
        assert {False} == {exact for _, exact in told(found).values()}


def test_edges_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A threshold of too many pairs is refused, however they are compared; what is just few enough
    for an answer and too many to be looked at twice is answered by estimates.
    """
    every = len(told(Edges(models(whole_matrix=True)).beyond(0.1)))
    for whole_matrix in (True, False):
        monkeypatch.setattr(module, "MOST_EDGES", every // 4)
        with pytest.raises(InvalidParameter, match="raise the threshold"):
            Edges(models(whole_matrix=whole_matrix)).beyond(0.1)
    monkeypatch.undo()
    signed = replace(models(whole_matrix=False), supports=[None] * len(SUPPORTS))
    estimated = told(Edges(signed).beyond(0.6))
    monkeypatch.setattr(module, "MOST_EDGES", len(estimated))
    assert estimated == told(Edges(models(whole_matrix=False)).beyond(0.6))
