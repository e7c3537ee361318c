"""Donors, graphs and lineages: what either client sends, and how it reads what comes back."""

from __future__ import annotations

import json
from typing import Any

import httpx
import networkx
import pytest

from modelkin import DonorExplanation, GraphEdge, GraphNode, SimilarityBaseline, Support
from modelkin.errors import InvalidName, InvalidParameter, ModelkinError

SUPPORT = Support.from_indices([2, 5, 7], 100)
WHY: dict[str, Any] = {
    "sentence": "holds much",
    "shared_indices": 2,
    "z_score": 1.5,
    "rarity": None,
    "rarity_gain": None,
    "explained": 0.25,
    "cumulative": 1,
    "shapley": None,
    "worth": None,
    "label": None,
}
DONORS: dict[str, Any] = {
    "target": "org/a",
    "method": "cover",
    "weights": "score",
    "items": [
        {
            "model": "org/b",
            "similarity": 0.5,
            "weight": 1,
            "estimate": "exact",
            "standard_error": 0.0,
            "why": WHY,
        }
    ],
    "usual": {"similarity": 0.2, "deviation": 0.2, "models": 7},
    "candidates": 7,
    "left_out": 2,
    "degraded": False,
}
GRAPH = {
    "directed": False,
    "multigraph": False,
    "graph": {
        "k": None,
        "threshold": 0.5,
        "version": 9,
        "note": "unstated",
        "truncated": False,
        "constant_tensors": ["mask"],
    },
    "nodes": [
        {"id": "a", "kind": "support", "support_size": 3, "tags": ["t"]}
        | {"base_model": "b", "base_models": ["b"]},
        {"id": "b", "kind": "signature", "support_size": 3, "tags": []}
        | {"base_model": None, "base_models": []},
    ],
    "edges": [
        {
            "source": "a",
            "target": "b",
            "similarity": 0.75,
            "estimate": "signature",
            "standard_error": 0.02,
            "expected": 0.5,
            "kappa": 0.5,
            "covered": None,
            "log10_p": None,
            "unrelated": None,
        }
    ],
}
KIN = {
    "model": "org/b",
    "similarity": 0.5,
    "estimate": "sketch",
    "standard_error": 0.01,
    "z_score": None,
    "stands_out": None,
    "base_model": None,
    "relation": "base",
    "to_base": None,
}
LINEAGE = {
    "model": "org/a",
    "verdict": "inconclusive",
    "reason": "few",
    "summary": "nothing is known",
    "declared_base": "org/b",
    "likely_base": None,
    "base": KIN,
    "rival": None,
    "kin": [KIN],
    "usual": {"similarity": 0.2, "deviation": 0, "models": 1},
    "limit": 0.26,
    "chain": [
        {
            "model": "org/a",
            "base_model": "org/b",
            "similarity": None,
            "estimate": None,
            "standard_error": None,
        }
    ],
    "cycle": False,
}


def test_what_is_asked_of_donors_is_sent(wire: Any) -> None:
    """Every argument that was given stands in the query, names repeated, and none that was not."""
    client = wire.client(httpx.Response(200, json=DONORS))
    client.donors(
        "digits",
        "org/a",
        method="knn_shapley",
        k=3,
        tags=["r1"],
        min_similarity=0.25,
        exclude=["org/x", "y z"],
        weights="score",
        label="mix",
        target_label=True,
        neighbors=2,
    )
    assert wire.target == (
        "/v1/spaces/digits/donors?target=org%2Fa&method=knn_shapley&k=3&min_similarity=0.25"
        "&weights=score&label=mix&target_label=true&neighbors=2&tag=r1&exclude=org%2Fx&exclude=y%20z"
    )


def test_a_plain_question_stays_plain(wire: Any) -> None:
    """Defaults of the service are the service's; what is not stored is posted."""
    client = wire.client(httpx.Response(200, json=DONORS))
    client.donors("digits", "org/a")
    client.donors("digits", SUPPORT)
    first, second = wire.requests
    assert "/v1/spaces/digits/donors?target=org%2Fa&method=similarity&k=10" == (
        first.url.raw_path.decode()
    )
    assert ("POST", b"method=similarity&k=10") == (second.method, second.url.query)
    assert SUPPORT == Support.from_bytes(second.content)


def test_donors_are_read_with_their_reasons(wire: Any) -> None:
    """Weights, the background and why each is a donor; the reasons are columns of a table."""
    found = wire.client(httpx.Response(200, json=DONORS)).donors("digits", "org/a")
    assert ("cover", "score", SimilarityBaseline(0.2, 0.2, 7), 7, 2) == (
        found.method,
        found.weights,
        found.usual,
        found.candidates,
        found.left_out,
    )
    (donor,) = found
    assert DonorExplanation(**(WHY | {"cumulative": 1.0})) == donor.why
    row = found.to_pandas().loc[0]
    assert ("org/b", "holds much", 0.25) == (row.model, row.sentence, row.explained)


def test_donors_without_reasons_are_read(wire: Any, donors_json: dict[str, Any]) -> None:
    """A service without reasons gives donors all the same."""
    found = wire.client(httpx.Response(200, json=donors_json)).donors("digits", "org/a")
    assert ("similarity", DonorExplanation("")) == (found.weights, found[0].why)


def test_a_graph_is_read(wire: Any) -> None:
    """Nodes and edges are typed, make a table, and are what networkx takes."""
    client = wire.client(httpx.Response(200, json=GRAPH))
    graph = client.spaces.graph("digits", threshold=0.5, tags=["t"])
    assert "/v1/spaces/digits/graph?threshold=0.5&tag=t" == wire.target
    assert GraphNode("a", "support", 3, ("t",), "b", ("b",)) == graph.nodes[0]
    assert (GraphEdge("a", "b", 0.75, "signature", 0.02, 0.5, 0.5),) == graph.edges
    assert (None, 0.5, 9, "unstated") == (graph.k, graph.threshold, graph.version, graph.note)
    assert ["a"] == list(graph.to_pandas().a)
    assert GRAPH == graph.to_node_link()
    assert 0.75 == networkx.node_link_graph(graph.to_node_link()).edges["a", "b"]["similarity"]


def test_a_lineage_is_read(wire: Any) -> None:
    """What is null is None, and numbers without a fraction are numbers."""
    found = wire.client(httpx.Response(200, json=LINEAGE)).lineage("digits", "org/a")
    assert "/v1/spaces/digits/lineage?model=org%2Fa" == wire.target
    assert ("inconclusive", "few", "org/b", None, False) == (
        found.verdict,
        found.reason,
        found.declared_base,
        found.rival,
        found.cycle,
    )
    assert (found.base, 0.0) == (found.kin[0], found.usual.deviation)
    assert ("base", None, None) == (found.base.relation, found.base.stands_out, found.base.z_score)
    assert ("org/b", None) == (found.chain[0].base_model, found.chain[0].similarity)
    assert ["org/b"] == list(found.to_pandas().model)


def test_a_lineage_of_an_older_service_is_read(wire: Any) -> None:
    """It has no reason, no kappa and no note."""
    older = {name: value for name, value in LINEAGE.items() if name != "reason"}
    found = wire.client(httpx.Response(200, json=older)).lineage("digits", "org/a")
    assert (None, None, None) == (found.reason, found.base.kappa, found.note)


def test_a_finding_is_acknowledged(wire: Any) -> None:
    """With a note, for its model; the answer is the finding with that."""
    noted = {"verdict": "mismatch", "base": "org/b", "note": "known", "made_by": None}
    noted |= {"made_at": "2026-05-04T03:02:01Z"}
    finding = {"model": "org/a", "verdict": "mismatch", "summary": "No.", "acknowledgement": noted}
    client = wire.client(httpx.Response(200, json=finding))
    found = client.models.acknowledge("digits", "org/a", note="known")
    assert "/v1/spaces/digits/lineage/acknowledgement?model=org%2Fa" == wire.target
    assert ("known", "org/b") == (found.acknowledgement.note, found.acknowledgement.base)
    assert {"note": "known"} == json.loads(wire.requests[-1].content)
    client = wire.client(httpx.Response(204))
    client.models.withdraw_acknowledgement("digits", "org/a")
    assert ["PUT", "DELETE"] == [request.method for request in wire.requests]
    assert wire.requests[0].url == wire.requests[1].url


def test_the_findings_of_a_space_are_counted(wire: Any) -> None:
    """By verdict, and with those that wait."""
    totals: dict[str, Any] = {"found": {"mismatch": 2}, "acknowledged": {"mismatch": 1}}
    totals |= {"pending": 3, "outdated": 0}
    page: dict[str, Any] = {"items": [], "next_cursor": None, "totals": totals}
    found = wire.client(httpx.Response(200, json=page)).lineage_totals("digits")
    assert ({"mismatch": 2}, {"mismatch": 1}, 3) == (found.found, found.acknowledged, found.pending)


def test_a_lineage_of_a_fingerprint_is_read(wire: Any) -> None:
    """It has the evidence of lines, and no S."""
    lines = {
        "verdict": "consistent",
        "finding": "shares",
        "relation": "depth_up_scaled",
        "share_of_lines": 1,
        "share_of_base": 0.5,
        "share_of_parameters": 1.0,
        "keys": 900,
        "expected": 0.5,
        "log10_p": -3000,
        "scale": 8,
        "tensors": 38,
        "found": 38,
        "tensors_of_base": "layers 0-5",
        "new_tensors": None,
        "stated_by": "hub",
        "relations": [{"relation": "depth_up_scaled", "models": ["org/b"], "sentence": "grown"}],
        "sources": [],
    }
    declared = {"base_model": "org/b", "verdict": "consistent", "reason": "lines", "lines": lines}
    link = {"model": "org/a", "base_model": "org/b", "share_of_lines": 1.0, "log10_p": -3000.0}
    body = {
        "model": "org/a",
        "verdict": "consistent",
        "reason": "lines",
        "summary": "grown",
        "declared_base": "org/b",
        "declared_bases": [declared],
        "base_relation": None,
        "relation": "depth_up_scaled",
        "lines": lines,
        "likely_base": None,
        "chain": [link],
        "likely_by_lines": None,
        "cycle": False,
        "compared": 0,
        "truncated": False,
    }
    client = wire.client(httpx.Response(200, json=body))
    found = client.fingerprint_lineage("org/a")
    assert "/v1/fingerprints/org/a/lineage" == wire.target
    assert (1.0, -3000.0, None) == (
        found.lines.share_of_lines,
        found.lines.log10_p,
        found.lines.new_tensors,
    )
    assert (found.lines, ("org/b",)) == (
        found.declared_bases[0].lines,
        found.lines.relations[0].models,
    )
    assert 1.0 == found.chain[0].share_of_lines


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda c: c.donors("digits", "a", exclude="one"), InvalidName),
        (lambda c: c.donors("digits", "a", exclude=["a", ".."]), InvalidName),
        (lambda c: c.donors("digits", [1, 2]), InvalidParameter),
        (lambda c: c.spaces.graph("Digits"), InvalidName),
        (lambda c: c.spaces.graph("digits", tags="one"), InvalidName),
        (lambda c: c.lineage("digits", "a/../b"), InvalidName),
    ],
)
def test_wrong_arguments_are_never_sent(call: Any, error: type[Exception], wire: Any) -> None:
    """What no service would take is an error at the call."""
    client = wire.client(httpx.Response(500))
    with pytest.raises(error):
        call(client)
    assert [] == wire.requests


@pytest.mark.parametrize(
    ("answer", "call"),
    [
        ({**DONORS, "items": [{**DONORS["items"][0], "why": {}}]}, lambda c: c.donors("s", "a")),
        ({**GRAPH, "edges": [{}]}, lambda c: c.spaces.graph("s")),
        ({**LINEAGE, "verdict": 1}, lambda c: c.lineage("s", "a")),
    ],
)
def test_answers_of_another_form_are_told(answer: Any, call: Any, wire: Any) -> None:
    """A field that is missing or of another type is an error that names it."""
    client = wire.client(httpx.Response(200, json=answer))
    with pytest.raises(ModelkinError, match=r"field `(sentence|source)`|str.*verdict"):
        call(client)
