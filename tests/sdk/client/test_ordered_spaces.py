"""Ordered spaces through both clients: created, filled, asked, printed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import modelkin
from modelkin import Blinding, Layout
from modelkin.core.similarity.ordered import ordered_similarity
from tests.support.blocking_client import Connect
from tests.support.orders.family import importances, ordered_supports, true_order
from tests.support.servers.server_process import Server

LAYOUT = Layout.of([("conv.weight", (20, 60)), ("head.weight", (10, 180))])
M, K = LAYOUT.num_parameters, 150
ROWS = importances(8, M, 9)
NAMES = sorted(ROWS)
SUPPORTS = ordered_supports(ROWS, K)
TRUTH = true_order([ROWS[name] for name in NAMES], K)


@pytest.fixture
def client(connect: Connect, sqlite_server: Server) -> Iterator[Any]:
    """Each client, connected to the service."""
    made = connect(sqlite_server.url)
    yield made
    made.close()


@pytest.fixture
def name() -> str:
    """That of a new space."""
    return f"ordered-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def space(client: Any, name: str) -> str:
    """An ordered space that holds the family."""
    client.ensure_space(name, layout=LAYOUT, importance="fisher", ordered=True)
    assert len(NAMES) == client.put_many(name, list(SUPPORTS.items())).created
    return name


def test_a_space_says_that_it_is_ordered(client: Any, space: str) -> None:
    """As it was made, read, listed and printed; another value is a conflict."""
    info = client.spaces.get(space)
    assert info.ordered
    assert "ordered" in str(info)
    assert next(each for each in client.spaces.list() if each.name == space).ordered
    same = {"layout": LAYOUT, "importance": "fisher"}
    assert client.ensure_space(space, **same, ordered=True).ordered
    with pytest.raises(modelkin.ConflictError, match="ordered is true"):
        client.ensure_space(space, **same)


def test_neighbors_are_ranked_by_octaves(client: Any, space: str) -> None:
    """Of a stored model and of one that is not, in the order of numpy's cosines."""
    others = sorted(range(1, len(NAMES)), key=lambda row: (-TRUTH[0, row], NAMES[row]))
    found = client.neighbors(space, "m000", measure="ordered", k=len(NAMES))
    assert "ordered" == found.measure
    assert [NAMES[row] for row in others] == [each.model for each in found]
    values = [each.ordered_similarity for each in found]
    assert np.allclose(TRUTH[0, others], values, rtol=0, atol=1e-12)
    assert "measure: ordered" in str(found)
    assert "ordered_similarity" in str(found)
    newcomer = client.neighbors(space, SUPPORTS["m000"], measure="ordered", k=3)
    assert ("m000", 1.0) == (newcomer[0].model, newcomer[0].ordered_similarity)
    plain = client.neighbors(space, "m000")
    assert "similarity" == plain.measure
    assert {None} == {each.ordered_similarity for each in plain}


def test_a_matrix_and_an_overlap_are_those_of_the_sdk(client: Any, space: str) -> None:
    """What the service answers, ``modelkin.ordered_similarity`` computes from the supports."""
    matrix = client.similarity(space, measure="ordered")
    assert "ordered" == matrix.measure
    assert "ordered" in str(matrix)
    assert np.allclose(TRUTH, matrix.values, rtol=0, atol=1e-12)
    overlap = client.overlap(space, "m001", "m004")
    expected = ordered_similarity(SUPPORTS["m001"], SUPPORTS["m004"])
    assert expected == overlap.ordered_similarity
    assert "ordered_similarity" in str(overlap)


def test_a_changed_support_goes_out_whole(client: Any, name: str) -> None:
    """Where a client would send a patch of a plain one."""
    client.ensure_space(name, num_parameters=M, ordered=True)
    client.put_support(name, "a", SUPPORTS["m000"])
    assert 2 == client.put_support(name, "a", SUPPORTS["m001"]).revision
    assert SUPPORTS["m001"] == client.supports.get(name, "a")


def test_an_importance_goes_up_ordered(client: Any, name: str) -> None:
    """``put_importance`` follows the space, and agrees on K first; ``ordered`` overrides it."""
    client.ensure_space(name, layout=LAYOUT, importance="fisher", support_size=K - 30, ordered=True)
    how: dict[str, Any] = {"kind": "fisher", "layout": LAYOUT}
    client.put_importance(name, "a", ROWS["m002"], **how)
    expected = modelkin.select_support(ROWS["m002"], k=K - 30, **how, ordered=True)
    assert expected == client.supports.get(name, "a")
    client.put_importance(name, "b", ROWS["m002"], **how, ordered=True)
    assert expected == client.supports.get(name, "b")
    with pytest.raises(modelkin.ConflictError, match=r"put_importance or .*ordered=True"):
        client.put_importance(name, "c", ROWS["m002"], **how, ordered=False)


def test_a_client_that_has_not_read_the_space_follows_it(
    connect: Connect, sqlite_server: Server, client: Any, name: str
) -> None:
    """Of an importance without a layout, too, and of a plain space as of an ordered one."""
    client.ensure_space(name, num_parameters=M, ordered=True)
    client.ensure_space(f"{name}-plain", num_parameters=M)
    with connect(sqlite_server.url) as other:
        for space in (name, f"{name}-plain"):
            other.put_importance(space, "a", ROWS["m002"])
            assert client.spaces.get(space).ordered == client.supports.get(space, "a").ordered


@pytest.mark.slow
def test_blinded_supports_keep_their_octaves(client: Any, name: str) -> None:
    """The ordered similarities of a blinded space are those of the plain one."""
    blinding = Blinding("5a" * 32, LAYOUT)
    client.ensure_space(name, blinding=blinding, ordered=True)
    for model in NAMES:
        client.put_support(name, model, blinding.blind(SUPPORTS[model]))
    matrix = client.similarity(name, measure="ordered")
    assert np.allclose(TRUTH, matrix.values, rtol=0, atol=1e-12)
    assert SUPPORTS["m003"] == blinding.unblind(client.supports.get(name, "m003"))


def test_what_does_not_fit_is_refused(client: Any, space: str, name: str) -> None:
    """Plain supports and signatures in an ordered space, and ranks of a plain one."""
    plain = SUPPORTS["m000"].unordered()
    with pytest.raises(modelkin.ConflictError, match="has no octaves"):
        client.put_support(space, "new", plain)
    with pytest.raises(modelkin.ConflictError, match="has no octaves"):
        client.put_signature(space, "new", plain.signature())
    with pytest.raises(modelkin.ApiError, match="ordered=True"):
        client.neighbors(space, plain, measure="ordered")
    other = f"{name}-plain"
    client.ensure_space(other, num_parameters=M)
    client.put_support(other, "a", plain)
    with pytest.raises(modelkin.ConflictError, match="unordered"):
        client.put_support(other, "b", SUPPORTS["m000"])
    with pytest.raises(modelkin.ApiError, match="is not ordered"):
        client.neighbors(other, "a", measure="ordered")
    with pytest.raises(modelkin.ApiError, match="is not ordered"):
        client.similarity(other, measure="ordered")
