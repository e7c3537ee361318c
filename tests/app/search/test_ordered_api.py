"""The ordered similarity over HTTP: neighbours, matrices and overlaps of ordered spaces."""

from __future__ import annotations

import csv
import io
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
import pytest

import modelkin
from app.search import orders
from modelkin.core.packed import PackedSupport
from tests.support.declared_problems import checked
from tests.support.fixtures import Start, on_one_database
from tests.support.http_space import (
    RAW,
    SIGNATURE,
    SUPPORT,
    Space,
    assert_problem,
    ok,
    true_similarity,
)
from tests.support.orders.family import importances, ordered_supports, true_order

M, N = 6400, 24
ROWS = importances(11, M, N)
NAMES = sorted(ROWS)
LAYOUT = [{"name": "first", "shape": [64, 60]}, {"name": "second", "shape": [M - 3840]}]


class Crowd:
    """An ordered space that holds the family, and what its answers should be."""

    def __init__(self, http: httpx.Client, k: int, **body: Any) -> None:
        self.space = Space(http, M, ordered=True, **body)
        self.supports = ordered_supports(ROWS, k)
        self.space.put_all(self.supports)
        self.truth = true_order([ROWS[name] for name in NAMES], k)

    def of(self, a: str, b: str) -> float:
        """The ordered similarity of two models."""
        return float(self.truth[NAMES.index(a), NAMES.index(b)])

    def nearest(self, model: str, least: float = 0.0) -> list[str]:
        """The others by the ordered similarity, those of this S or more."""
        others = [
            name
            for name in NAMES
            if name != model and true_similarity(self.supports[model], self.supports[name]) >= least
        ]
        return sorted(others, key=lambda name: (-self.of(model, name), name))


@pytest.fixture(scope="module", params=[60, 640], ids=["lists", "bitmaps"])
def crowd(http: httpx.Client, request: pytest.FixtureRequest) -> Crowd:
    """The family as sparse and as dense supports; the dense ones have a layout."""
    return Crowd(http, request.param, **({"layout": LAYOUT} if request.param > 100 else {}))


@pytest.fixture(scope="module")
def plain(http: httpx.Client) -> Space:
    """Two of the models without their octaves."""
    space = Space(http, M)
    supports = ordered_supports(ROWS, 60)
    space.put_all({name: supports[name].unordered() for name in NAMES[:2]})
    return space


@on_one_database
def test_exact_neighbors_are_those_of_all_ranks(crowd: Crowd) -> None:
    """The order is that of the cosines; S stays beside it, and nothing is an estimate."""
    for model in NAMES[:4]:
        found = crowd.space.neighbors(model, measure="ordered", method="exact", k=N)
        assert "ordered" == found["measure"]
        assert crowd.nearest(model) == [item["model"] for item in found["items"]]
        for item in found["items"]:
            assert item["ordered_similarity"] == pytest.approx(
                crowd.of(model, item["model"]), abs=1e-12
            )
            expected = true_similarity(crowd.supports[model], crowd.supports[item["model"]])
            assert (expected, "exact", 0.0) == (
                item["similarity"],
                item["estimate"],
                item["standard_error"],
            )


@on_one_database
def test_ranks_order_otherwise_than_overlaps(crowd: Crowd) -> None:
    """So that no test passes by the plain similarity; which stays what is answered by default."""
    by_ranks = crowd.space.neighbors("m009", measure="ordered", k=N)["items"]
    answer = crowd.space.neighbors("m009", k=N)
    by_overlap = answer["items"]
    assert [item["model"] for item in by_ranks] != [item["model"] for item in by_overlap]
    assert {None} == {item["ordered_similarity"] for item in by_overlap}
    assert "similarity" == answer["measure"]


@on_one_database
@pytest.mark.parametrize("method", ["auto", "scan", "lsh"])
def test_candidates_of_every_method_are_ranked_exactly(crowd: Crowd, method: str) -> None:
    """Who is proposed depends on the indices; their order and their figures do not."""
    found = crowd.space.neighbors("m002", measure="ordered", method=method, k=8)
    names = [item["model"] for item in found["items"]]
    assert names == [name for name in crowd.nearest("m002") if name in names]
    if method != "lsh":
        assert crowd.nearest("m002")[:8] == names
    for item in found["items"]:
        expected = crowd.of("m002", item["model"])
        assert item["ordered_similarity"] == pytest.approx(expected, abs=1e-12)


def heads_and_tails(k: int) -> dict[str, npt.NDArray[np.float32]]:
    """A base; ten that have its first ranks, thirty its last half, and twenty nothing of it."""
    rng = np.random.default_rng(5)
    ranked = rng.permutation(M)
    kept = {"head": ranked[: k // 6], "tail": ranked[k // 2 : k], "other": ranked[:0]}
    rows = {"base": np.empty(M, np.float32)}
    rows["base"][ranked] = np.linspace(2, 1, M)
    for name, count in (("head", 10), ("tail", 30), ("other", 20)):
        for number in range(count):
            row = rng.random(M).astype(np.float32)
            row[kept[name]] = np.linspace(3, 2, kept[name].size)
            rows[f"{name}-{number:02d}"] = row
    return rows


@on_one_database
def test_a_scan_ranks_those_that_share_most(http: httpx.Client) -> None:
    """The 40 models of most shared indices are compared, and the nearest by rank of them all are
    found, although 30 models have a larger S.
    """
    rows = heads_and_tails(240)
    names, supports = sorted(rows), ordered_supports(rows, 240)
    space = Space(http, M, ordered=True)
    space.put_all(supports)
    truth = dict(zip(names, true_order([rows[name] for name in names], 240)[0], strict=True))
    for method in ("scan", "exact"):
        found = space.neighbors("base", measure="ordered", method=method, k=8)["items"]
        expected = sorted(names[1:], key=lambda name: (-truth[name], name))[:8]
        assert expected == [item["model"] for item in found]
    by_overlap = space.neighbors("base", k=8)["items"]
    assert {"head", "tail"} == {
        name.split("-")[0] for name in (expected[0], by_overlap[0]["model"])
    }


@on_one_database
def test_the_least_similarity_is_one_of_overlap(crowd: Crowd) -> None:
    """``min_similarity`` leaves out models by S before the nearest by rank are chosen."""
    for method in ("exact", "scan"):
        found = crowd.space.neighbors(
            "m001", measure="ordered", method=method, min_similarity=0.5, k=3
        )
        assert crowd.nearest("m001", 0.5)[:3] == [item["model"] for item in found["items"]]


@on_one_database
def test_a_newcomer_has_the_neighbors_of_its_ranks(crowd: Crowd) -> None:
    """A support that is not stored, in the native format and as JSON."""
    support = crowd.supports["m003"]
    expected = ["m003", *crowd.nearest("m003")][:5]
    bodies = (
        (support.to_bytes(), SUPPORT),
        (modelkin.wire.dump_support(support, modelkin.wire.JSON), modelkin.wire.JSON),
    )
    for body, media_type in bodies:
        found = crowd.space.find(body, media_type, measure="ordered", k=5)
        assert expected == [item["model"] for item in found["items"]]
        assert 1.0 == found["items"][0]["ordered_similarity"]


@on_one_database
def test_a_newcomer_without_ranks_has_none(crowd: Crowd) -> None:
    """It is a 422 that says what to send; by overlap, indices are enough."""
    support = crowd.supports["m003"].unordered()
    for body, media_type in (
        (support.to_bytes(), SUPPORT),
        (modelkin.wire.dump_support(support, RAW), RAW),
        (support.signature().to_bytes(), SIGNATURE),
    ):
        headers = {"Content-Type": media_type}
        answer = crowd.space.http.post(
            crowd.space.path("neighbors"),
            content=body,
            headers=headers,
            params={"measure": "ordered"},
        )
        assert "ordered=True" in assert_problem(answer, 422, "invalid_parameter", "measure")
        assert "m003" == crowd.space.find(body, media_type)["items"][0]["model"]


def matrix(space: Space, accept: str = "application/json", **params: str) -> httpx.Response:
    """The matrix of the whole family."""
    body, headers = {"models": NAMES}, {"Accept": accept}
    return space.http.post(space.path("similarity"), json=body, headers=headers, params=params)


@on_one_database
def test_the_matrix_is_that_of_all_pairs(crowd: Crowd) -> None:
    """As JSON, CSV and .npy, which all say what it measures."""
    answer = matrix(crowd.space, measure="ordered")
    shown = ok(answer)
    assert ("ordered", None, None, []) == (
        shown["measure"],
        shown["similarity"],
        shown["kappa"],
        shown["estimated"],
    )
    assert np.allclose(crowd.truth, shown["ordered"], rtol=0, atol=1e-12)
    assert "ordered" == answer.headers["X-Modelkin-Measure"]
    table = list(csv.reader(io.StringIO(matrix(crowd.space, "text/csv", measure="ordered").text)))
    assert shown["ordered"] == [[float(cell) for cell in row[1:]] for row in table[1:]]
    npy = matrix(crowd.space, "application/x-npy", measure="ordered").content
    assert shown["ordered"] == np.load(io.BytesIO(npy)).tolist()


@on_one_database
def test_other_matrices_have_no_ordered_values(crowd: Crowd) -> None:
    """S is as it was: the octaves change nothing."""
    shown = ok(matrix(crowd.space))
    assert ("similarity", None, None) == (shown["measure"], shown["kappa"], shown["ordered"])
    a, b = crowd.supports[NAMES[0]], crowd.supports[NAMES[5]]
    assert true_similarity(a, b) == shown["similarity"][0][5]


@on_one_database
def test_an_overlap_shows_both(crowd: Crowd, plain: Space) -> None:
    """S and the ordered similarity of a pair; of plain supports S alone."""
    answer = ok(
        crowd.space.http.get(crowd.space.path("overlap"), params={"a": "m001", "b": "m007"})
    )
    assert answer["ordered_similarity"] == pytest.approx(crowd.of("m001", "m007"), abs=1e-12)
    assert true_similarity(crowd.supports["m001"], crowd.supports["m007"]) == answer["similarity"]
    other = ok(plain.http.get(plain.path("overlap"), params={"a": "m000", "b": "m001"}))
    assert other["ordered_similarity"] is None


@on_one_database
def test_a_space_without_ranks_is_not_measured_by_them(http: httpx.Client, plain: Space) -> None:
    """Neighbours and matrices of a plain space, and of data subspaces: a 422 that says why."""
    subspaces = Space(http, 64, kind="subspaces")
    support = ordered_supports(ROWS, 60)["m000"]
    asked = [
        plain.http.get(plain.path("neighbors"), params={"model": "m000", "measure": "ordered"}),
        plain.http.post(
            plain.path("neighbors"),
            content=support.to_bytes(),
            headers={"Content-Type": SUPPORT},
            params={"measure": "ordered"},
        ),
        matrix(plain, measure="ordered"),
        matrix(subspaces, measure="ordered"),
    ]
    for answer in asked:
        assert "is not ordered" in assert_problem(answer, 422, "invalid_parameter", "measure")
    answer = plain.http.get(plain.path("neighbors"), params={"model": "m000", "measure": "kappa"})
    assert 422 == answer.status_code


@on_one_database
@pytest.mark.slow
def test_a_damaged_file_is_left_out(start: Start) -> None:
    """No signature stands in for octaves: the others are ranked, and the answer is degraded."""
    server = start()
    supports = ordered_supports(ROWS, 60)
    with checked(httpx.Client(base_url=server.url, trust_env=False)) as http:
        space = Space(http, M, ordered=True)
        space.put_all({name: supports[name] for name in NAMES[:4]})
        octaves = np.asarray(supports["m001"].octaves).tobytes()
        (path,) = (
            path
            for path in server.blobs.rglob("*")
            if path.is_file() and path.read_bytes().endswith(octaves)
        )
        path.write_bytes(path.read_bytes()[: -len(octaves)])
        found = space.neighbors("m000", measure="ordered", method="exact")
        assert ["m002", "m003"] == sorted(item["model"] for item in found["items"])
        assert found["degraded"]
        assert "damaged" in assert_problem(
            http.get(space.path("supports", "m001")), 503, "unavailable"
        )


@pytest.mark.parametrize("room", [1, 2000, 1 << 20])
def test_a_matrix_in_tiles_is_the_same(monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    """However few supports are unpacked at a time; and it says how far it is."""
    monkeypatch.setattr(orders, "_UNPACKED_BYTES", room)
    packed = [PackedSupport.pack(each) for each in ordered_supports(ROWS, 60).values()]
    told: list[float] = []
    found = orders.ordered_matrix(packed, lambda done, total: told.append(done / total))
    expected = true_order([ROWS[name] for name in NAMES], 60)
    assert np.allclose(expected, found, rtol=0, atol=1e-12)
    assert told == sorted(told)
    assert told[-1] <= 1
