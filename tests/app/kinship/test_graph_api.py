"""The graph of a space over HTTP: edges compared with brute force, formats read by libraries."""

from __future__ import annotations

import io
import itertools
import json
from pathlib import Path
from typing import Any

import httpx
import networkx
import numpy as np
import pytest

from modelkin import Support
from modelkin.wire.json import signature_to_json
from tests.support.fixtures import on_one_database
from tests.support.http_space import (
    Space,
    assert_problem,
    family,
    ok,
    random_support,
    related,
    true_neighbors,
    true_similarity,
)

M, K, N = 10_000, 300, 25
MODELS = family(31, M, K, N)
GRAPHML = "application/graphml+xml"
TRUE = {
    frozenset(pair): true_similarity(MODELS[pair[0]], MODELS[pair[1]])
    for pair in itertools.combinations(MODELS, 2)
}


@pytest.fixture(scope="module")
def crowd(http: httpx.Client) -> Space:
    """25 models; every fifth carries two tags, and one declares a base."""
    space = Space(http, M)
    space.put_all(MODELS, {name: {"tags": ["fifth", "red"]} for name in list(MODELS)[::5]})
    ok(http.patch(space.path("models", "m003"), json={"base_model": "org/base"}))
    return space


def graph(space: Space, **params: Any) -> dict[str, Any]:
    """The graph as JSON."""
    return ok(space.http.get(space.path("graph"), params=params))


def edges(answer: dict[str, Any]) -> dict[frozenset[str], float]:
    """The edges by their ends, each of which appears once."""
    found = {frozenset((e["source"], e["target"])): e["similarity"] for e in answer["edges"]}
    assert len(found) == len(answer["edges"])
    return found


def nearest(k: int) -> dict[frozenset[str], float]:
    """The edges to the k nearest of each, by brute force."""
    found = {}
    for name, support in MODELS.items():
        others = {other: s for other, s in MODELS.items() if other != name}
        for other, similarity in true_neighbors(support, others, k):
            if similarity > 0:
                found[frozenset((name, other))] = similarity
    return found


@pytest.mark.parametrize("k", [1, 4, 24, 1000])
def test_edges_lead_to_the_nearest(crowd: Space, k: int) -> None:
    """Each model is joined to its k nearest, with the exact S."""
    answer = graph(crowd, k=k)
    assert nearest(k) == edges(answer)
    assert {("exact", 0.0)} == {(e["estimate"], e["standard_error"]) for e in answer["edges"]}
    note = answer["graph"].pop("note")
    assert "does not state" in note
    assert {
        "k": k,
        "threshold": None,
        "version": crowd.show()["version"],
        "truncated": False,
        "constant_tensors": [],
    } == answer["graph"]


def test_ten_nearest_by_default(crowd: Space) -> None:
    """A request without parameters means k = 10."""
    assert graph(crowd, k=10) == graph(crowd)


@pytest.mark.parametrize("at", [0, 40, 150, -1])
def test_edges_reach_the_threshold(crowd: Space, at: int) -> None:
    """All pairs of that S or more are joined; the threshold is inclusive."""
    threshold = sorted(s for s in TRUE.values() if s)[at]
    expected = {pair: s for pair, s in TRUE.items() if s >= threshold}
    answer = graph(crowd, threshold=repr(threshold))
    assert expected == edges(answer)
    assert (None, threshold) == (answer["graph"]["k"], answer["graph"]["threshold"])


def test_nodes_carry_tags_and_base(crowd: Space) -> None:
    """All models by name, with tags and base, joined or not."""
    nodes = graph(crowd, threshold=1)["nodes"]
    assert list(MODELS) == [node["id"] for node in nodes]
    by_name = {node["id"]: node for node in nodes}
    assert ["fifth", "red"] == by_name["m005"]["tags"]
    assert ("org/base", "support", K) == tuple(
        by_name["m003"][field] for field in ("base_model", "kind", "support_size")
    )


def test_tags_choose_the_nodes(crowd: Space) -> None:
    """Neighbours are those among the models that carry all tags."""
    answer = graph(crowd, tag=["red", "fifth"], k=1)
    assert list(MODELS)[::5] == [node["id"] for node in answer["nodes"]]
    assert all(pair <= set(list(MODELS)[::5]) for pair in edges(answer))
    assert len(answer["edges"]) >= 3


def test_networkx_loads_the_json(crowd: Space) -> None:
    """``node_link_graph`` takes the answer unchanged, and gives it back."""
    answer = graph(crowd, k=3)
    loaded = networkx.node_link_graph(answer)
    assert (N, len(nearest(3))) == (loaded.number_of_nodes(), loaded.number_of_edges())
    assert not loaded.is_directed()
    assert {"fifth", "red"} == set(loaded.nodes["m000"]["tags"])
    a, b = next(iter(loaded.edges))
    assert TRUE[frozenset((a, b))] == loaded.edges[a, b]["similarity"]


def test_networkx_and_igraph_load_the_graphml(crowd: Space, tmp_path: Path) -> None:
    """Both libraries read the same nodes and edges, typed, from GraphML."""
    import igraph  # which loads matplotlib: no process that only collects needs it

    answer = crowd.http.get(crowd.path("graph"), params={"k": 3}, headers={"Accept": GRAPHML})
    assert (200, GRAPHML, "Accept") == (
        answer.status_code,
        answer.headers["content-type"],
        answer.headers["vary"],
    )
    loaded = networkx.read_graphml(io.BytesIO(answer.content))
    assert nearest(3) == {frozenset(ends): s for *ends, s in loaded.edges(data="similarity")}
    assert ("fifth,red", K) == tuple(loaded.nodes["m005"][k] for k in ("tags", "support_size"))
    assert "org/base" == loaded.nodes["m003"]["base_model"]
    (tmp_path / "g.graphml").write_bytes(answer.content)
    other = igraph.Graph.Read_GraphML(str(tmp_path / "g.graphml"))
    assert (N, len(nearest(3))) == (other.vcount(), other.ecount())
    names = other.vs["id"]
    assert nearest(3) == {
        frozenset((names[e.source], names[e.target])): e["similarity"] for e in other.es
    }


def test_any_name_survives_both_formats(space: Space) -> None:
    """Slashes, spaces and letters of any script are names of nodes in JSON and XML alike."""
    names = ["org/a b@1+2:c", "模型/ü", "café", "_-."]
    for name in names:
        space.put(name, MODELS["m000"], tags=["日本 語"])
    assert sorted(names) == [node["id"] for node in graph(space)["nodes"]]
    answer = space.http.get(space.path("graph"), headers={"Accept": GRAPHML})
    loaded = networkx.read_graphml(io.BytesIO(answer.content))
    assert set(names) == set(loaded.nodes)
    assert {"日本 語"} == set(dict(loaded.nodes(data="tags")).values())
    assert 6 == loaded.number_of_edges()


def test_edges_say_whether_chance_made_them(http: httpx.Client) -> None:
    """In a space with a layout an edge of strangers is unrelated, and one of kin has a P."""
    rng = np.random.default_rng(6)
    base = random_support(rng, M, K)
    space = Space(http, M, layout=[{"name": "body", "shape": [M]}])
    others = {f"s{at}": random_support(rng, M, K) for at in range(3)}
    space.put_all({"base": base, "child": related(rng, base, 0.6), **others})
    edges = ok(http.get(space.path("graph"), params={"k": 4}))["edges"]
    for edge in edges:
        is_kin = {"base", "child"} == {edge["source"], edge["target"]}
        assert edge["unrelated"] == (not is_kin)
        assert (edge["log10_p"] < -50) == is_kin
    text = http.get(space.path("graph"), headers={"Accept": GRAPHML}).text
    assert text.count('<data key="unrelated">true</data>') == len(edges) - 1
    assert text.count('<data key="unrelated">false</data>') == 1


def test_signatures_alone_make_estimated_edges(space: Space) -> None:
    """An edge of a signature-only model is an estimate with its error; others stay exact."""
    space.put_all({name: MODELS[name] for name in ("m000", "m001")})
    space.put_signature("m002", MODELS["m002"].signature())
    answer = graph(space, k=2)
    kinds = {frozenset((e["source"], e["target"])): e["estimate"] for e in answer["edges"]}
    assert "exact" == kinds.pop(frozenset(("m000", "m001")))
    assert {"signature"} == set(kinds.values())
    assert ["support", "support", "signature"] == [node["kind"] for node in answer["nodes"]]
    for edge in answer["edges"]:
        if edge["estimate"] == "signature":
            true = TRUE[frozenset((edge["source"], edge["target"]))]
            assert abs(true - edge["similarity"]) < 4 * edge["standard_error"] + 0.01


@pytest.mark.parametrize("count", [0, 1, 2])
def test_the_smallest_graphs(space: Space, count: int) -> None:
    """Of zero models, one, and two that share nothing, in both formats: nodes and no edge."""
    for n in range(count):
        space.put(f"a{n}", Support.from_indices(range(100 * n, 100 * n + 50), M))
    for params in ({"k": 5}, {"threshold": 0.1}):
        answer = graph(space, **params)
        assert (count, 0) == (len(answer["nodes"]), len(answer["edges"]))
        sent = space.http.get(space.path("graph"), params=params, headers={"Accept": GRAPHML})
        loaded = networkx.read_graphml(io.BytesIO(sent.content))
        assert (count, 0) == (loaded.number_of_nodes(), loaded.number_of_edges())


@pytest.mark.parametrize(
    ("params", "field", "said"),
    [
        ({"k": 0}, "k", "1"),
        ({"k": 1001}, "k", "1000"),
        ({"threshold": 0}, "threshold", "0"),
        ({"threshold": 1.1}, "threshold", "1"),
        ({"threshold": "nan"}, "threshold", "finite"),
        ({"k": 3, "threshold": 0.5}, "threshold", "one of them"),
    ],
)
def test_invalid_parameters_are_a_422(crowd: Space, params: Any, field: str, said: str) -> None:
    """Numbers out of range, and k and threshold together, are refused by name."""
    answer = crowd.http.get(crowd.path("graph"), params=params)
    assert said in assert_problem(answer, 422, "invalid_parameter", field)


def test_another_format_is_a_406(crowd: Space) -> None:
    """Only JSON and GraphML are available."""
    answer = crowd.http.get(crowd.path("graph"), headers={"Accept": "text/csv"})
    assert "graphml" in assert_problem(answer, 406, "not_acceptable")


def test_an_unknown_space_is_a_404(http: httpx.Client) -> None:
    """An unknown space has no graph."""
    assert_problem(http.get("/v1/spaces/nowhere/graph"), 404, "space_not_found")


@pytest.fixture(scope="module")
def many(http: httpx.Client) -> tuple[Space, dict[str, Any]]:
    """1,200 signature-only models in families of four, and the supports of their signatures."""
    m, rng = 4_000, np.random.default_rng(8)
    space, supports, lines = Space(http, m, signature={"num_perm": 128}), {}, []
    for head in range(300):
        base = random_support(rng, m, 120)
        for member in range(4):
            support = base if member == 0 else related(rng, base, 0.9)
            supports[f"f{head:03d}/{member}"] = support
    for name, support in supports.items():
        signature = signature_to_json(support.signature(num_perm=128))
        lines.append(json.dumps({"model": name, "signature": signature}))
    headers = {"Content-Type": "application/jsonl"}
    http.post(space.path("batch"), content="\n".join(lines), headers=headers).raise_for_status()
    return space, supports


@on_one_database
def test_large_spaces_are_compared_by_signatures(many: tuple[Space, dict[str, Any]]) -> None:
    """The three nearest of 1,200 models are their own family, as are those beyond 0.5."""
    space, supports = many
    assert len(supports) == space.show()["models"]
    for params in ({"k": 3}, {"threshold": 0.5}):
        found = edges(graph(space, **params))
        kin = {pair for pair in found if len({name.split("/")[0] for name in pair}) == 1}
        assert 300 * 6 == len(kin)
        assert 300 * 6 == len(found)


@on_one_database
def test_more_edges_than_a_graph_takes(many: tuple[Space, dict[str, Any]]) -> None:
    """A graph that would be too large is refused; the message suggests another request."""
    space, _ = many
    answer = space.http.get(space.path("graph"), params={"k": 1000})
    assert "k of 833 or fewer" in assert_problem(answer, 422, "invalid_parameter", "k")
    answer = space.http.get(space.path("graph"), params={"threshold": 0.0001})
    assert "raise the threshold" in assert_problem(answer, 422, "invalid_parameter", "threshold")
