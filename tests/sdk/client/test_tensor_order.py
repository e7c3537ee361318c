"""Supports whose layout is known go out in the tensor order of the space, through either client."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from modelkin import BulkItem, Importance, Layout, Origin, SpaceMismatch, Support, select_support
from modelkin.errors import ConflictError
from modelkin.wire import decode_support
from tests.support.servers.server_process import Server

SHAPES = {"conv": (4, 5), "scale": (), "stft": (9,), "head": (10, 7)}
MINE = Layout.of(SHAPES.items())
THEIRS = Layout.of(sorted(SHAPES.items()))
M = MINE.num_parameters
VALUES = np.random.default_rng(5).permutation(M).astype(np.float32) + 1


def rearranged(values: Any, layout: Layout) -> Any:
    """An importance of ``MINE`` in another layout, tensor by tensor: what a file would hold."""
    places = dict(zip(SHAPES, np.split(values, MINE.ends.astype(int)[:-1]), strict=True))
    return np.concatenate([places[tensor.name] for tensor in layout.tensors])


SUPPORT = select_support(VALUES, k=20, kind="weight", layout=MINE)
SAME = select_support(rearranged(VALUES, THEIRS), k=20, kind="weight", layout=THEIRS)


def space_of(layout: Layout, space_json: dict[str, Any]) -> httpx.Response:
    """The service's answer about a space of a layout."""
    fields = {"num_parameters": layout.num_parameters, "layout": layout.to_json()}
    return httpx.Response(200, json=space_json | fields)


@pytest.fixture
def space() -> str:
    """A name of the test's own."""
    return f"order-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def client(sqlite_server: Server, connect: Callable[..., Any]) -> Iterator[Any]:
    """Either client of a real service."""
    with connect(sqlite_server.url) as client:
        yield client


@pytest.mark.slow
@pytest.mark.parametrize("layout", [MINE, THEIRS], ids=["the model's", "by name"])
def test_one_model_in_two_orders_is_itself(client: Any, space: str, layout: Layout) -> None:
    """S is 1 whichever of the two made the space: for uploads, batches and questions."""
    client.ensure_space(space, layout=layout, importance="weight")
    client.put_support(space, "mine", SUPPORT)
    client.put_support(space, "theirs", SAME)
    client.put_importance(space, "values", VALUES, kind="weight", layout=MINE, coverage=0.3)
    many = client.put_many(space, [("one", SUPPORT), BulkItem("two", SAME)])
    assert (2, 0) == (many.created, many.failed)
    assert 1.0 == client.overlap(space, "mine", "theirs").similarity
    assert 1.0 == client.overlap(space, "one", "two").similarity
    for query in (SUPPORT, SAME, "mine"):
        found = {n.model: n.similarity for n in client.neighbors(space, query)}
        assert {"theirs": 1.0, "one": 1.0, "two": 1.0}.items() <= found.items()
        assert 1.0 == client.donors(space, query, k=1)[0].similarity
    stored = client.supports.get(space, "values")
    expected = select_support(rearranged(VALUES, layout), coverage=0.3, kind="weight")
    assert expected == stored


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (SHAPES | {"head": (10, 8)}, r" 'head' has shape \[10, 8\] in it and \[10, 7\] in the"),
        ({"scale": (), "stft": (9,)}, r"s 'conv' \[4, 5\], 'head' \[10, 7\] are only in the"),
    ],
)
def test_other_tensors_are_refused_by_name(
    client: Any, space: str, other: dict[str, tuple[int, ...]], message: str
) -> None:
    """Where too little is common, the tensors that differ are named, before anything is stored."""
    client.ensure_space(space, layout=MINE)
    layout = Layout.of(other.items())
    m = layout.num_parameters
    support = Support([0, 5], m, origin=Origin(Importance.of("weight"), layout))
    calls: list[Callable[[], Any]] = [
        lambda: client.put_support(space, "x", support),
        lambda: client.neighbors(space, support),
        lambda: client.donors(space, support),
        lambda: client.put_importance(space, "x", np.ones(m, np.float32), layout=layout),
    ]
    for call in calls:
        with pytest.raises(SpaceMismatch, match=f"not those of space '{space}': tensor{message}"):
            call()
    summary = client.put_many(space, [("x", support), ("y", SUPPORT)])
    assert (1, 1) == (summary.created, summary.failed)
    (failure,) = summary.failures
    assert ("x", "space_mismatch") == (failure.model, failure.code)
    assert "tensor" in str(failure.detail)


@pytest.mark.parametrize(
    ("values", "how"),
    [
        (VALUES, {"kind": "weight"}),
        (VALUES[:-1], {"kind": "fisher"}),
        (VALUES[:-1], {}),
        (VALUES, {"kind": "fisher", "layout": Layout.of({"one": (M,)}.items())}),
    ],
    ids=["another kind", "another M", "another M alone", "other tensors"],
)
def test_a_refused_importance_moves_no_agreed_K(
    client: Any, space: str, values: Any, how: dict[str, Any]
) -> None:
    """What the space would not store is refused before its K* counts, stored or reported."""
    client.ensure_space(space, layout=MINE, importance="fisher", support_size="agreed")
    client.put_importance(space, "first", VALUES, kind="fisher", layout=THEIRS)
    before = client.spaces.support_size(space)
    with pytest.raises((SpaceMismatch, ConflictError), match=r"parameters|selected by|tensors"):
        client.put_importance(space, "wrong", values, coverage=0.1, **how)
    support = select_support(values, k=2, **how)
    with pytest.raises((SpaceMismatch, ConflictError), match=r"parameters|selected by|tensors"):
        client.spaces.report_support_size(space, 2, client="wrong", support=support)
    assert before == client.spaces.support_size(space)
    assert ["first"] == [model.model for model in client.models.list(space)]


def test_a_K_is_reported_in_either_order(client: Any, space: str) -> None:
    """A support of the space's tensors in another order counts, as it can be stored."""
    client.ensure_space(space, layout=THEIRS, importance="weight", support_size="agreed")
    for name, support in (("a", SUPPORT), ("b", SAME)):
        client.spaces.report_support_size(space, 20, client=name, support=support)
    assert 2 == client.spaces.support_size(space).reports


def test_a_signature_of_another_order_is_refused(client: Any, space: str) -> None:
    """Its values cannot be moved, and the message says how to select in the order of the space."""
    client.ensure_space(space, layout=THEIRS, importance="weight")
    client.put_signature(space, "same", SAME.signature())
    calls: list[Callable[[], Any]] = [
        lambda: client.put_signature(space, "x", SUPPORT.signature()),
        lambda: client.neighbors(space, SUPPORT.signature()),
    ]
    for call in calls:
        with pytest.raises(SpaceMismatch, match=r"another order.*select with order="):
            call()
    assert 1.0 == client.neighbors(space, SUPPORT, k=1)[0].similarity


def test_a_space_leaves_its_tensors_out_of_an_importance(client: Any, space: str) -> None:
    """``put_importance`` leaves them out before K is chosen; a finished support loses indices."""
    client.ensure_space(space, layout=THEIRS, importance="weight", exclude=["stft"])
    client.put_importance(space, "mine", VALUES, kind="weight", layout=MINE, coverage=0.3)
    kept = THEIRS.without(["stft"])
    expected = select_support(rearranged(VALUES, kept), coverage=0.3, kind="weight")
    assert expected == client.supports.get(space, "mine")
    client.put_support(space, "x", SUPPORT)
    assert SUPPORT.reordered(kept) == client.supports.get(space, "x")
    ready = select_support(VALUES, k=20, kind="weight", layout=MINE, exclude=["stft"])
    client.put_support(space, "ready", ready)
    assert 1.0 == client.neighbors(space, ready, k=1)[0].similarity


def test_a_model_that_lacks_a_tensor_has_gaps(client: Any, space: str) -> None:
    """An importance and a finished support are of what the model has; answers say the share."""
    client.ensure_space(space, layout=THEIRS, importance="weight")
    client.put_importance(space, "whole", VALUES, kind="weight", layout=MINE, coverage=0.3)
    less = MINE.without(["stft"])
    values = rearranged(VALUES, less)
    client.put_importance(space, "less", values, kind="weight", layout=less, coverage=0.3)
    stored = client.supports.get(space, "less")
    assert ((91, 100),) == stored.gaps.ranges
    ready = select_support(values, kind="weight", layout=less, coverage=0.3)
    client.put_support(space, "ready", ready)
    assert stored == client.supports.get(space, "ready")
    assert 0.91 == pytest.approx(client.overlap(space, "whole", "less").covered)
    assert 1.0 == client.neighbors(space, ready, k=1)[0].similarity


def test_the_tensors_to_leave_out_are_named(client: Any, space: str) -> None:
    """Where a model has too little of a space, or the space too little of it."""
    client.ensure_space(space, layout=THEIRS, importance="weight")
    less = select_support(VALUES[:30], k=5, kind="weight", layout=MINE.without(["head"]))
    with pytest.raises(SpaceMismatch, match=r"a space with exclude=\['head'\] has this"):
        client.put_support(space, "less", less)
    more = Layout.of([*SHAPES.items(), ("tower.weight", (200,))])
    wide = select_support(np.arange(300, dtype=np.float32), k=9, kind="weight", layout=more)
    with pytest.raises(SpaceMismatch, match=r"pass exclude=\['tower.\*'\] to select_support"):
        client.put_support(space, "more", wide)


def test_a_layout_is_read_once(
    wire: Any, space_json: dict[str, Any], model_json: dict[str, Any]
) -> None:
    """One question about the space for any number of uploads, and none without a layout."""
    answer = httpx.Response(200, json=model_json)
    client = wire.client(space_of(THEIRS, space_json), answer)
    for _ in range(3):
        client.put_support("digits", "org/a", SUPPORT)
    assert ["GET", "PUT", "PUT", "PUT"] == [request.method for request in wire.requests]
    sent = decode_support(wire.requests[1].read())
    assert (SAME, False) == (sent, SUPPORT == sent)
    plain = wire.client(answer)
    plain.put_support("digits", "org/a", SUPPORT.with_origin(None))
    assert "PUT" == wire.requests[-1].method


def test_a_key_that_may_only_write_sends_supports_as_they_are(
    wire: Any, model_json: dict[str, Any]
) -> None:
    """Where the space cannot be read, the service compares the digest that the upload states."""
    problem = {"code": "forbidden", "title": "t", "detail": "this key lacks the scope read"}
    client = wire.client(httpx.Response(403, json=problem), httpx.Response(200, json=model_json))
    client.put_support("digits", "org/a", SUPPORT)
    assert ["GET", "PUT"] == [request.method for request in wire.requests]
    assert SUPPORT == decode_support(wire.requests[1].read())
    assert MINE.digest == wire.requests[1].url.params["layout"]


def test_a_space_made_again_in_another_order_is_read_again(
    wire: Any, space_json: dict[str, Any], model_json: dict[str, Any]
) -> None:
    """A refusal after a cached layout reads the layout again; what stays refused is raised."""
    problem = {"code": "space_mismatch", "title": "t", "detail": "another layout"}
    refused, stored = httpx.Response(409, json=problem), httpx.Response(200, json=model_json)
    first, second = space_of(THEIRS, space_json), space_of(MINE, space_json)
    client = wire.client(first, stored, refused, second, stored, refused, second)
    client.put_support("digits", "org/a", SUPPORT)
    client.put_support("digits", "org/a", SUPPORT)
    assert ["GET", "PUT", "PUT", "GET", "PUT"] == [request.method for request in wire.requests]
    assert SUPPORT == decode_support(wire.requests[-1].read())
    with pytest.raises(ConflictError, match="another layout"):
        client.put_support("digits", "org/a", SUPPORT)
    assert ["PUT", "GET"] == [request.method for request in wire.requests[5:]]
