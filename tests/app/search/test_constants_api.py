"""Tensors that no training changed carry no answer, and each answer names them."""

from __future__ import annotations

import functools
from typing import Any

import httpx
import numpy as np
import pytest

from modelkin import Client, Layout, Support, select_support
from tests.support.fixtures import on_one_database
from tests.support.http_space import SUPPORT, Space, ok
from tests.support.models.planted_tables import drifted, network, support_of

pytestmark = on_one_database

STRANGERS = [f"stranger-{i}" for i in range(6)]
DECLARING = ["child", *STRANGERS[:2]]


@functools.cache
def planted(table: str | None) -> tuple[dict[str, Support], Layout]:
    """A base, its child, and six strangers, two of which declare the base as the child does."""
    base = network(0, table)
    nets = {"base": base, "child": drifted(base, 9)}
    nets |= {name: network(place, table) for place, name in enumerate(STRANGERS, 1)}
    layout = Layout.of((name, weights.shape) for name, weights in base.items())
    return {name: support_of(made, layout) for name, made in nets.items()}, layout


def space_of(http: httpx.Client, table: str | None, names: list[str] | None = None) -> Space:
    """A space of weights with some of the planted models, or all."""
    supports, layout = planted(table)
    space = Space(
        http, layout.num_parameters, layout=layout.to_json(), importance={"kind": "weight"}
    )
    chosen = {name: supports[name] for name in names or supports}
    space.put_all(chosen)
    for name in set(DECLARING) & set(chosen):
        ok(http.patch(space.path("models", name), json={"base_model": "base"}))
    return space


def lineage(space: Space, name: str) -> dict[str, Any]:
    return ok(space.http.get(space.path("lineage"), params={"model": name}))


SLOW = [pytest.param(table, marks=pytest.mark.slow) for table in ("sinusoids", "window", "basis")]


@pytest.mark.parametrize("table", ["mask", *SLOW, pytest.param(None, marks=pytest.mark.slow)])
def test_verdicts_rest_on_what_was_trained(http: httpx.Client, table: str | None) -> None:
    """False declarations are contradicted and the child's is not, whatever all models contain."""
    space = space_of(http, table)
    left_out = [] if table is None else ["table"]
    found = {name: lineage(space, name) for name in DECLARING}
    assert dict.fromkeys(DECLARING[1:], "mismatch") | {"child": "consistent"} == {
        name: answer["verdict"] for name, answer in found.items()
    }
    assert [left_out] * 3 == [answer["constant_tensors"] for answer in found.values()]
    assert ("leaves out tensor 'table'" in found["child"]["summary"]) == bool(left_out)
    audited = ok(space.http.get(space.path("lineages")))["items"]
    assert {"child": "consistent"} == {
        item["model"]: item["verdict"] for item in audited if item["verdict"] == "consistent"
    }


@pytest.mark.slow
@pytest.mark.parametrize("table", ["mask", "sinusoids", "one-hot"])
def test_two_models_are_enough(http: httpx.Client, table: str) -> None:
    """A stranger is contradicted beside the base alone, and a child beside it is consistent."""
    strange, kin = (space_of(http, table, ["base", name]) for name in ("stranger-0", "child"))
    assert "mismatch" == lineage(strange, "stranger-0")["verdict"]
    assert "consistent" == lineage(kin, "child")["verdict"]
    [tensor] = [t for t in ok(http.get(strange.path("tensors")))["items"] if t["looks_constant"]]
    assert "table" == tensor["name"]


@pytest.fixture(scope="module")
def masked(http: httpx.Client) -> Space:
    """All planted models, with a mask."""
    return space_of(http, "mask")


def expected_pair(a: str, b: str) -> tuple[int, float]:
    """The shared indices and S of two planted models without the table, by a selection of sets."""
    supports, layout = planted("mask")
    [(begin, end)] = layout.gaps(["table"]).ranges
    one, other = (
        {i for i in supports[name].indices.tolist() if not begin <= i < end} for name in (a, b)
    )
    return len(one & other), 2 * len(one & other) / (len(one) + len(other))


@pytest.mark.slow
def test_neighbors_and_overlaps_leave_constants_out(masked: Space, client: Client) -> None:
    """S, shared indices and kappa are those of the other tensors, of all methods and of a body."""
    supports, _ = planted("mask")
    given = masked.find(supports["base"].to_bytes(), SUPPORT)
    for answer in (masked.neighbors("base"), masked.neighbors("base", method="scan"), given):
        items = {item["model"]: item for item in answer["items"] if item["model"] != "base"}
        assert ["table"] == answer["constant_tensors"]
        assert 7 == len(items)
        for name, item in items.items():
            assert expected_pair("base", name) == (item["shared_indices"], item["similarity"])
            assert (item["kappa"] > 0.3) == (name == "child")
    overlap = client.overlap(masked.name, "base", "stranger-0")
    assert expected_pair("base", "stranger-0") == (overlap.shared_indices, overlap.similarity)
    assert overlap.kappa is not None
    assert abs(overlap.kappa) < 0.05
    assert ("table",) == overlap.constant_tensors
    assert 1.0 == next(t.similarity for t in overlap.tensors or () if t.name == "table")
    matrix = client.similarity(masked.name, ["base", "child", "stranger-0"], measure="kappa")
    assert [True, False] == (matrix.values[0, 1:] > 0.3).tolist()
    assert ("table",) == matrix.constant_tensors


@pytest.mark.slow
def test_donors_graphs_clusters_and_maps_leave_constants_out(masked: Space, client: Client) -> None:
    """No stranger is a donor, an edge beyond S = .3, or a member of the family's cluster."""
    for method in ("similarity", "idf", "cover"):
        donors = client.donors(masked.name, "base", method=method, k=20)
        assert {"child"} == {donor.model for donor in donors if donor.weight > 0}
        assert ("table",) == donors.constant_tensors
    graph = client.spaces.graph(masked.name, threshold=0.3)
    assert [("base", "child")] == [(edge.a, edge.b) for edge in graph.edges]
    assert ("table",) == graph.constant_tensors
    assert "constant_tensors" in client.spaces.graphml(masked.name)
    made = client.clusterings.create(
        masked.name, algorithm="agglomerative", distance_threshold=0.6, wait=True
    )
    assert ["table"] == made.chosen["constant_tensors"]
    assert {("base", "child")} == {c.members for c in made.clusters if len(c.members) > 1}
    assert ("table",) == client.maps.create(masked.name, wait=True).constant_tensors


@pytest.mark.slow
def test_signatures_alone_are_no_proof(http: httpx.Client) -> None:
    """They cannot leave a table out: the answers say so, and no verdict rests on them."""
    space = space_of(http, "mask", ["base", "stranger-1", "stranger-2"])
    supports, _ = planted("mask")
    for name in ("stranger-3", "child"):
        space.put_signature(name, supports[name].signature(256, 1, "affine32"))
        ok(http.patch(space.path("models", name), json={"base_model": "base"}))
        found = lineage(space, name)
        assert "inconclusive" == found["verdict"]
        assert "nothing to compare but tensor 'table'" in found["summary"]
        assert "signatures cannot" in space.neighbors(name)["note"]
    near = {item["model"]: item for item in space.neighbors("base")["items"]}
    assert near["child"]["similarity"] > 0.5 > near["stranger-3"]["similarity"]
    assert None is near["child"]["kappa"]


@pytest.mark.slow
def test_frozen_tables_of_a_family_and_a_common_index_stay(http: httpx.Client) -> None:
    """Embeddings that a family keeps, while all else is new, and one index of biases count."""
    base = network(0)
    nets = {"base": base}
    for place in range(1, 5):
        nets[f"child-{place}"] = {**network(place), "embed": base["embed"]}
    for place in range(5, 9):
        nets[f"stranger-{place}"] = network(place)
    for made in nets.values():
        made["bias"][7] = 9.0
    layout = Layout.of((name, weights.shape) for name, weights in base.items())
    space = Space(
        http, layout.num_parameters, layout=layout.to_json(), importance={"kind": "weight"}
    )
    family = [name for name in nets if not name.startswith("stranger")]
    for names in (family, [name for name in nets if name not in family]):
        space.put_all({name: support_of(nets[name], layout) for name in names})
        for name in family[1:]:
            ok(http.patch(space.path("models", name), json={"base_model": "base"}))
        tensors = ok(http.get(space.path("tensors")))["items"]
        assert not any(tensor["looks_constant"] for tensor in tensors)
        assert [] == space.neighbors("base")["constant_tensors"]


@pytest.mark.slow
def test_ordered_similarities_leave_constants_out(http: httpx.Client) -> None:
    """A mask has the largest entries, so that ranks of strangers agree in nothing else."""
    _, layout = planted("mask")
    space = Space(http, layout.num_parameters, layout=layout.to_json(), ordered=True)
    base = network(0, "mask")
    nets = {"base": base, "child": drifted(base, 9), "stranger": network(5, "mask")}
    for name, made in nets.items():
        flat = np.abs(np.concatenate([weights.ravel() for weights in made.values()]))
        space.put(name, select_support(flat, kind="weight", layout=layout, ordered=True))
    near = space.neighbors("base", measure="ordered")["items"]
    assert [True, False] == [item["ordered_similarity"] > 0.3 for item in near]
    matrix = ok(
        http.post(
            space.path("similarity"),
            params={"measure": "ordered"},
            json={"models": ["base", "child", "stranger"]},
        )
    )
    assert near[0]["ordered_similarity"] == pytest.approx(matrix["ordered"][0][1])


def test_what_constants_leave_nothing_of_is_open(http: httpx.Client) -> None:
    """Where a mask takes the whole K, models have S = 0, no kappa, and no verdict rests on that."""
    layout = Layout.of([("table", (64, 64)), ("w", (64, 64))])
    whole = Support.from_indices(np.flatnonzero(np.tril(np.ones((64, 64)))), 8192)
    space = Space(http, 8192, layout=layout.to_json(), importance={"kind": "weight"})
    space.put_all({"base": whole, "child": whole})
    ok(http.patch(space.path("models", "child"), json={"base_model": "base"}))
    assert ("inconclusive", "unclear") == tuple(
        lineage(space, "child")[key] for key in ("verdict", "reason")
    )
    [near] = space.neighbors("base")["items"]
    assert (0.0, None, None) == (near["similarity"], near["expected"], near["kappa"])
    answer = ok(http.get(space.path("graph")))
    assert [] == answer["edges"]
    matrix = ok(
        http.post(
            space.path("similarity"),
            params={"measure": "kappa"},
            json={"models": ["base", "child"]},
        )
    )
    assert None is matrix["kappa"][0][1]
    donors = ok(http.get(space.path("donors"), params={"target": "base"}))
    assert ([], ["table"]) == (donors["items"], donors["constant_tensors"])
    for method in ("idf", "cover"):
        refused = http.get(space.path("donors"), params={"target": "base", "method": method})
        assert "no index outside the tensors that no training changed" in refused.json()["detail"]
