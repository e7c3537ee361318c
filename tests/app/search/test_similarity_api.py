"""Overlap of a pair and the matrix of many, over HTTP."""

from __future__ import annotations

import csv
import io
from typing import Any

import httpx
import numpy as np
import pytest

import modelkin
from tests.support.http_space import (
    Space,
    assert_problem,
    family,
    ok,
    true_similarity,
)

M, K, N = 10_000, 500, 30
MODELS = family(21, M, K, N)
LAYOUT = [
    {"name": "first", "shape": [100, 40]},
    {"name": "empty", "shape": [0]},
    {"name": "second", "shape": [5999]},
    {"name": "last", "shape": []},
]
ENDS = {"first": (0, 4000), "empty": (4000, 4000), "second": (4000, 9999), "last": (9999, M)}


@pytest.fixture(scope="module")
def crowd(http: httpx.Client) -> Space:
    """30 models in a space with a layout."""
    space = Space(http, M, layout=LAYOUT)
    space.put_all(MODELS)
    return space


def overlap(space: Space, a: str, b: str) -> dict[str, Any]:
    """The overlap of two stored models."""
    return ok(space.http.get(space.path("overlap"), params={"a": a, "b": b}))


def test_overlap_is_that_of_the_sets(crowd: Space) -> None:
    """Shared indices, S and J of a pair are those of Python's sets."""
    a, b = (set(MODELS[name].indices.tolist()) for name in ("m000", "m001"))
    answer = overlap(crowd, "m000", "m001")
    assert ("m000", "m001", len(a & b)) == tuple(answer[f] for f in ("a", "b", "shared_indices"))
    assert true_similarity(MODELS["m000"], MODELS["m001"]) == answer["similarity"]
    assert len(a & b) / len(a | b) == pytest.approx(answer["jaccard"])


def test_overlap_is_counted_tensor_by_tensor(crowd: Space) -> None:
    """Each tensor of the layout has its own counts, in the layout's order."""
    a, b = (set(MODELS[name].indices.tolist()) for name in ("m000", "m001"))
    expected = []
    for name, (low, high) in ENDS.items():
        inside = set(range(low, high))
        sizes = len(a & inside), len(b & inside), len(a & b & inside)
        similarity = 2 * sizes[2] / (sizes[0] + sizes[1]) if sizes[0] + sizes[1] else None
        expected.append((name, high - low, *sizes, similarity))
    fields = ("name", "size", "a", "b", "shared_indices", "similarity")
    tensors = overlap(crowd, "m000", "m001")["tensors"]
    assert expected == [tuple(tensor[f] for f in fields) for tensor in tensors]


def test_overlap_with_itself_is_one(crowd: Space) -> None:
    """A model and itself share everything."""
    answer = overlap(crowd, "m003", "m003")
    assert (K, 1.0, 1.0) == tuple(answer[f] for f in ("shared_indices", "similarity", "jaccard"))


def test_without_a_layout_there_are_no_tensors(space: Space) -> None:
    """A space without a layout reports only the whole overlap."""
    space.put_all({"a": MODELS["m000"], "b": MODELS["m001"]})
    assert overlap(space, "a", "b")["tensors"] is None


def test_the_overlap_of_a_signature_is_a_409(space: Space) -> None:
    """A model without indices has no shared indices, whichever of the two it is."""
    space.put("a", MODELS["m000"])
    space.put_signature("s", MODELS["m001"].signature())
    for a, b in (("a", "s"), ("s", "a"), ("s", "s")):
        answer = space.http.get(space.path("overlap"), params={"a": a, "b": b})
        assert "'s'" in assert_problem(answer, 409, "support_missing")


NAMES = ["m005", "m000", "m017", "m001"]
EXPECTED = np.array([[true_similarity(MODELS[a], MODELS[b]) for b in NAMES] for a in NAMES])


def matrix(space: Space, names: list[str], accept: str = "application/json") -> httpx.Response:
    """The matrix of stored models."""
    body, headers = {"models": names}, {"Accept": accept}
    return space.http.post(space.path("similarity"), json=body, headers=headers)


def test_the_matrix_is_that_of_the_pairs(crowd: Space) -> None:
    """Rows and columns are in the requested order; each cell is the S of its pair."""
    answer = ok(matrix(crowd, NAMES))
    assert (NAMES, []) == (answer["models"], answer["estimated"])
    np.testing.assert_allclose(EXPECTED, answer["similarity"], rtol=1e-12)


def test_the_matrix_as_npy(crowd: Space) -> None:
    """``application/x-npy`` is a float64 array without pickles."""
    answer = matrix(crowd, NAMES, "application/x-npy")
    values = np.load(io.BytesIO(answer.content), allow_pickle=False)
    assert ("application/x-npy", np.float64) == (answer.headers["content-type"], values.dtype)
    np.testing.assert_allclose(EXPECTED, values, rtol=1e-12)


def test_the_matrix_as_csv(crowd: Space) -> None:
    """``text/csv`` has the names in its first row and its first column."""
    answer = matrix(crowd, NAMES, "text/csv")
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.reader(io.StringIO(answer.text)))
    assert ["model", *NAMES] == rows[0]
    assert NAMES == [row[0] for row in rows[1:]]
    np.testing.assert_allclose(EXPECTED, np.array([row[1:] for row in rows[1:]], float))


def test_rows_of_signatures_are_estimates_and_named(space: Space) -> None:
    """A model without a support has estimated cells, off by no more than chance explains."""
    names = ["m000", "m001", "m002"]
    space.put_all({name: MODELS[name] for name in names[:2]})
    space.put_signature("m002", MODELS["m002"].signature())
    answer = matrix(space, names)
    values = np.array(answer.json()["similarity"])
    assert (["m002"], "2") == (
        answer.json()["estimated"],
        answer.headers["X-Modelkin-Estimated"],
    )
    assert true_similarity(MODELS["m000"], MODELS["m001"]) == pytest.approx(values[0, 1])
    estimate = MODELS["m000"].signature().similarity(MODELS["m002"].signature())
    assert [estimate, estimate, 1.0] == pytest.approx([values[0, 2], values[2, 0], values[2, 2]])


def test_a_matrix_of_one_and_of_all(crowd: Space) -> None:
    """The smallest matrix is [[1]]; the largest here is symmetric with a diagonal of ones."""
    assert [[1.0]] == ok(matrix(crowd, ["m000"]))["similarity"]
    values = np.array(ok(matrix(crowd, list(MODELS)))["similarity"])
    np.testing.assert_array_equal(values, values.T)
    np.testing.assert_array_equal(np.ones(N), np.diag(values))


def test_two_spellings_of_a_name_are_one_name(space: Space) -> None:
    """Names are compared in their normal form, here too."""
    space.put("é", MODELS["m000"])
    answer = matrix(space, ["é", "e\u0301"])
    assert "twice" in assert_problem(answer, 422, "invalid_parameter", "models")


def test_an_unknown_name_in_a_matrix_is_named(crowd: Space) -> None:
    """One missing model fails the whole matrix; the error names it and counts the others."""
    answer = matrix(crowd, ["m000", "nobody", "m001", "nobody-else"])
    detail = assert_problem(answer, 404, "model_not_found")
    assert "'nobody'" in detail
    assert "1 more" in detail


def test_a_matrix_of_another_type_is_a_406(crowd: Space) -> None:
    """Only JSON, CSV and npy are available."""
    assert_problem(matrix(crowd, NAMES, "image/png"), 406, "not_acceptable")


def test_the_SDK_answers_the_same(crowd: Space, client: modelkin.Client) -> None:
    """Overlap and matrix by the SDK are those of plain HTTP."""
    answered = client.overlap(crowd.name, "m000", "m001")
    assert overlap(crowd, "m000", "m001")["shared_indices"] == answered.shared_indices
    np.testing.assert_allclose(EXPECTED, client.similarity(crowd.name, NAMES).to_numpy())
