"""How answers are read: into typed values, strictly, with room for newer services."""

from __future__ import annotations

import dataclasses
import io
from datetime import UTC, datetime
from typing import Any

import httpx
import numpy as np
import pytest

import modelkin
from modelkin.core.layout import Layout
from modelkin.core.support import Support
from modelkin.errors import ApiError, ModelkinError
from modelkin.types.models import ModelInfo
from modelkin.types.spaces import SpaceInfo, StopList

SUPPORT = Support.from_indices([2, 5, 7], 100)
NPY = {"content-type": "application/x-npy"}


def npy(matrix: Any) -> bytes:
    """What numpy.save writes."""
    stream = io.BytesIO()
    np.save(stream, matrix)
    return stream.getvalue()


def test_a_space_is_read(wire: Any, space_json: dict[str, Any]) -> None:
    """A space comes with its layout, its signature and a time with a zone."""
    space_json["layout"] = [{"name": "w", "shape": [10, 10]}]
    space = wire.client(httpx.Response(200, json=space_json)).spaces.get("digits")
    assert Layout.of([("w", (10, 10))]) == space.layout
    assert (3, 2, 1, 256) == (
        space.models,
        space.supports,
        space.signatures,
        space.signature.num_perm,
    )
    assert datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC) == space.created_at


def test_a_stop_list_is_read(wire: Any, space_json: dict[str, Any]) -> None:
    """A space with one says what it knows of it, a space without says None."""
    fields = {"version": 2, "size": 480, "share": 0.5, "models": 40}
    shown = {**space_json, "stop_list": {**fields, "computed_at": "2026-05-01T10:00:00Z"}}
    answers = [httpx.Response(200, json=body) for body in (space_json, shown)]
    client = wire.client(*answers)
    assert client.spaces.get("s").stop_list is None
    moment = datetime(2026, 5, 1, 10, tzinfo=UTC)
    assert StopList(computed_at=moment, **fields) == client.spaces.get("s").stop_list  # type: ignore[arg-type]


def test_a_model_carries_its_etag(wire: Any, model_json: dict[str, Any]) -> None:
    """The entity tag of a single model is at hand for if_match."""
    answer = httpx.Response(200, json=model_json, headers={"ETag": '"7"'})
    model = wire.client(answer).models.get("digits", "org/a")
    assert ('"7"', ("r1",), {"epochs": 8}) == (model.etag, model.tags, model.attributes)


def test_neighbors_are_read_in_order(wire: Any, neighbors_json: dict[str, Any]) -> None:
    """Neighbours keep the order of the service, and estimates have no shared indices."""
    found = wire.client(httpx.Response(200, json=neighbors_json)).neighbors("digits", "org/a", k=2)
    assert [(n.model, n.similarity, n.shared_indices) for n in found] == [
        ("org/b", 0.5, 2),
        ("org/c", 0.25, None),
    ]
    assert ("exact", 2, False) == (found.method, found.candidates, found.degraded)


def test_whole_numbers_are_numbers(wire: Any, donors_json: dict[str, Any]) -> None:
    """A weight of 1 written without a fraction is a float."""
    (donor,) = wire.client(httpx.Response(200, json=donors_json)).donors("digits", "org/a")
    assert (1.0, float) == (donor.weight, type(donor.weight))


def test_an_overlap_is_read(wire: Any, overlap_json: dict[str, Any]) -> None:
    """An overlap lists its tensors, and one that neither touches has no similarity."""
    overlap = wire.client(httpx.Response(200, json=overlap_json)).overlap("digits", "a", "b")
    assert overlap.tensors is not None
    assert [(t.name, t.shared_indices, t.similarity) for t in overlap.tensors] == [
        ("w", 2, 2 / 3),
        ("b", 0, None),
    ]


def test_an_overlap_without_layout_has_no_tensors(wire: Any, overlap_json: dict[str, Any]) -> None:
    """tensors is None whether the service says null or nothing."""
    del overlap_json["tensors"]
    assert (
        wire.client(httpx.Response(200, json=overlap_json)).overlap("s", "a", "b").tensors is None
    )


def test_a_support_comes_back_equal(wire: Any) -> None:
    """A download is the support that was uploaded."""
    media = {"content-type": "application/vnd.modelkin.support"}
    client = wire.client(httpx.Response(200, content=SUPPORT.to_bytes(), headers=media))
    assert client.supports.get("digits", "a") == SUPPORT
    assert "application/vnd.modelkin.support" == wire.requests[0].headers["accept"]


def test_a_signature_comes_back_equal(wire: Any) -> None:
    """A downloaded signature equals the one computed here."""
    signature = SUPPORT.signature(num_perm=16)
    media = {"content-type": "application/vnd.modelkin.signature"}
    client = wire.client(httpx.Response(200, content=signature.to_bytes(), headers=media))
    assert signature == client.signatures.get("digits", "a")


def test_a_damaged_support_is_no_support(wire: Any) -> None:
    """A bit that flipped on the way is an error that names the request."""
    data = bytearray(SUPPORT.to_bytes())
    data[-1] ^= 1
    media = {"content-type": "application/vnd.modelkin.support"}
    client = wire.client(httpx.Response(200, content=bytes(data), headers=media))
    with pytest.raises(ModelkinError, match="GET /v1/spaces/digits/supports/a in a form"):
        client.supports.get("digits", "a")


def test_a_matrix_is_read(wire: Any) -> None:
    """The matrix comes with its names in the order asked, and says whose rows are estimates."""
    values = np.array([[1.0, 0.25], [0.25, 1.0]])
    headers = NPY | {"X-Modelkin-Estimated": "1"}
    client = wire.client(httpx.Response(200, content=npy(values), headers=headers))
    matrix = client.similarity("digits", ["org/a", "org/b"])
    assert (("org/a", "org/b"), ("org/b",)) == (matrix.models, matrix.estimated)
    assert np.array_equal(values, matrix.values)
    assert not matrix.values.flags.writeable
    assert "application/x-npy" == wire.requests[0].headers["accept"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x93NUMPY",
        npy(np.eye(3)),
        npy(np.eye(2, dtype=np.float32)),
        npy(np.eye(2))[:-1],
        npy(np.array([[1.0, 0.5], [0.2, 1.0]], order="F")),
        npy(np.eye(2)).replace(b"(2, 2)", b"(9999999, 9999999)"),
        npy(np.array([{}], dtype=object)),
    ],
)
def test_other_matrices_are_refused(content: bytes, wire: Any) -> None:
    """A matrix of another shape, type, order or length is an error, and nothing is unpickled."""
    client = wire.client(httpx.Response(200, content=content, headers=NPY))
    with pytest.raises(ModelkinError, match="the matrix is"):
        client.similarity("digits", ["a", "b"])


def test_a_matrix_of_kappa_is_read(wire: Any) -> None:
    """It says so; that of a service which ignores the measure is an error, not a kappa."""
    values = np.array([[1.0, np.nan], [np.nan, 1.0]])
    headers = NPY | {"X-Modelkin-Measure": "kappa"}
    client = wire.client(httpx.Response(200, content=npy(values), headers=headers))
    matrix = client.similarity("digits", ["a", "b"], measure="kappa")
    assert "/v1/spaces/digits/similarity?measure=kappa" == wire.target
    assert "kappa" == matrix.measure
    assert np.array_equal(values, matrix.values, equal_nan=True)
    older = wire.client(httpx.Response(200, content=npy(np.eye(2)), headers=NPY))
    with pytest.raises(ModelkinError, match="'similarity', not of 'kappa'"):
        older.similarity("digits", ["a", "b"], measure="kappa")


def test_neighbors_of_an_older_service_have_no_kappa(
    wire: Any, neighbors_json: dict[str, Any]
) -> None:
    """Fields that it does not answer are None, and the least kappa is part of the request."""
    client = wire.client(httpx.Response(200, json=neighbors_json))
    found = client.neighbors("digits", "a", min_kappa=-0.5)
    assert "min_kappa=-0.5" in wire.target
    assert all(item.expected is None and item.kappa is None for item in found)


@pytest.mark.parametrize("rows", ["2", "x", "0,,y"])
def test_unknown_rows_are_refused(rows: str, wire: Any) -> None:
    """Estimated rows outside the matrix are an error."""
    headers = NPY | {"X-Modelkin-Estimated": rows}
    client = wire.client(httpx.Response(200, content=npy(np.eye(2)), headers=headers))
    with pytest.raises(ModelkinError, match="not row numbers"):
        client.similarity("digits", ["a", "b"])


def test_unknown_fields_are_ignored(wire: Any, neighbors_json: dict[str, Any]) -> None:
    """A newer service may say more, at every level."""
    newer = neighbors_json | {"truncated": False}
    newer["items"] = [item | {"kind": "support"} for item in neighbors_json["items"]]
    old = wire.client(httpx.Response(200, json=neighbors_json)).neighbors("digits", "org/a")
    assert old == wire.client(httpx.Response(200, json=newer)).neighbors("digits", "org/a")


def test_unknown_words_are_read(wire: Any, neighbors_json: dict[str, Any]) -> None:
    """A newer service may answer a word that this version does not know."""
    newer = neighbors_json | {"method": "hnsw"}
    newer["items"] = [item | {"estimate": "delta"} for item in neighbors_json["items"]]
    found = wire.client(httpx.Response(200, json=newer)).neighbors("digits", "org/a")
    assert ("hnsw", ["delta", "delta"]) == (found.method, [item.estimate for item in found])


def test_older_services_leave_out_optional_fields(wire: Any, model_json: dict[str, Any]) -> None:
    """What may be null may be missing too."""
    for name in ("digest", "source", "base_model"):
        del model_json[name]
    model = wire.client(httpx.Response(200, json=model_json)).models.get("digits", "org/a")
    assert (None, None, None) == (model.digest, model.source, model.base_model)


@pytest.mark.parametrize("name", ["scheme", "num_perm", "seed"])
def test_a_signature_spec_is_never_guessed(
    name: str, wire: Any, space_json: dict[str, Any]
) -> None:
    """The defaults of a new space do not stand in for a missing field of an answer."""
    spec = {key: value for key, value in space_json["signature"].items() if key != name}
    client = wire.client(httpx.Response(200, json=space_json | {"signature": spec}))
    with pytest.raises(ModelkinError, match=f"missing required field `{name}`"):
        client.spaces.get("digits")


@pytest.mark.parametrize("layout", [[{"name": "w"}], [{"name": "w", "shape": [1, -1]}], [], {}])
def test_what_is_not_a_layout_is_refused(
    layout: Any, wire: Any, space_json: dict[str, Any]
) -> None:
    """The layout of an answer passes the same checks as one that is made here."""
    client = wire.client(httpx.Response(200, json=space_json | {"layout": layout}))
    with pytest.raises(ModelkinError, match="in a form"):
        client.spaces.get("digits")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"method": None}, "Expected `str`, got `null` - at `$.method`"),
        ({"candidates": "2"}, "Expected `int`, got `str` - at `$.candidates`"),
        ({"candidates": True}, "Expected `int`, got `bool` - at `$.candidates`"),
        ({"degraded": 0}, "Expected `bool`, got `int` - at `$.degraded`"),
        ({"items": {}}, "Expected `array`, got `object` - at `$.items`"),
        ({"items": [3]}, "Expected `object`, got `int` - at `$.items[0]`"),
        ({"items": [{}]}, "missing required field `model` - at `$.items[0]`"),
    ],
)
def test_other_forms_name_the_field(
    change: dict[str, Any], said: str, wire: Any, neighbors_json: dict[str, Any]
) -> None:
    """An answer that lacks what is needed is an error with field, address and version."""
    client = wire.client(httpx.Response(200, json=neighbors_json | change))
    with pytest.raises(ModelkinError) as caught:
        client.neighbors("digits", "org/a")
    message = str(caught.value)
    assert said in message
    assert "http://kin.test answers GET /v1/spaces/digits/neighbors" in message
    assert f"modelkin {modelkin.__version__}" in message


@pytest.mark.parametrize("similarity", [None, "0.5", False, 10**400])
def test_numbers_are_numbers(similarity: Any, wire: Any, overlap_json: dict[str, Any]) -> None:
    """What is no number, or none that a float can hold, is not taken for one."""
    client = wire.client(httpx.Response(200, json=overlap_json | {"similarity": similarity}))
    with pytest.raises(ModelkinError, match=r"(float|out of range).* - at `\$\.similarity`"):
        client.overlap("digits", "a", "b")


def test_a_time_must_be_one(wire: Any, space_json: dict[str, Any]) -> None:
    """created_at is a date and time."""
    client = wire.client(httpx.Response(200, json=space_json | {"created_at": "yesterday"}))
    with pytest.raises(ModelkinError, match=r"datetime - at `\$\.created_at`"):
        client.spaces.get("digits")


def test_pages_are_followed(wire: Any, model_json: dict[str, Any]) -> None:
    """A listing goes on while there is a cursor, with the same filter, fetching as it is read."""
    pages = [
        httpx.Response(200, json={"items": [model_json | {"model": name}], "next_cursor": cursor})
        for name, cursor in [("a", "x/y+"), ("b", "z"), ("c", None)]
    ]
    models = wire.client(*pages).models.list("digits", tags=["r1"])
    assert [] == wire.requests
    assert [model.model for model in models] == ["a", "b", "c"]
    assert [request.url.query.decode() for request in wire.requests] == [
        "limit=100&tag=r1",
        "limit=100&tag=r1&cursor=x%2Fy%2B",
        "limit=100&tag=r1&cursor=z",
    ]


def test_a_listing_becomes_a_table(wire: Any, model_json: dict[str, Any]) -> None:
    """A table has a row for each model of all pages, and a model's fields as columns."""
    pages = [
        httpx.Response(200, json={"items": [model_json | {"model": name}], "next_cursor": cursor})
        for name, cursor in [("a", "x"), ("b", None)]
    ]
    frame = wire.client(*pages).models.list("digits").to_pandas()
    assert [f.name for f in dataclasses.fields(ModelInfo)] == list(frame.columns)
    assert [("a", 3, {"epochs": 8}), ("b", 3, {"epochs": 8})] == list(
        zip(frame.model, frame.support_size, frame.attributes, strict=True)
    )


def test_an_empty_listing_becomes_an_empty_table(wire: Any) -> None:
    """Without any space there are no rows, and the columns all the same."""
    frame = wire.client(httpx.Response(200, json={"items": []})).spaces.list().to_pandas()
    assert [f.name for f in dataclasses.fields(SpaceInfo)] == list(frame.columns)
    assert 0 == len(frame)


def test_a_listing_without_end_ends(wire: Any, space_json: dict[str, Any]) -> None:
    """A service that answers the same cursor again is not asked again and again."""
    page = httpx.Response(200, json={"items": [space_json], "next_cursor": "x"})
    with pytest.raises(ModelkinError, match="the same page again"):
        list(wire.client(page).spaces.list())
    assert 2 == len(wire.requests)


def test_a_page_of_another_program_is_shown(wire: Any) -> None:
    """A success without JSON is an ApiError with its first characters."""
    page = httpx.Response(200, html="<html>\n<title>Log in</title>")
    with pytest.raises(ApiError, match=r"text/html.*<html> <title>Log in</title>"):
        wire.client(page).spaces.get("digits")
