"""Decode the JSON of donors, graphs and lineages into ``modelkin.types.kinship``, strictly.

What a newer service says beyond these fields is ignored; of what an older one does not say, only
what came later may be missing.
"""

from __future__ import annotations

from modelkin.client._protocol.decoding import Fields
from modelkin.types.kinship import (
    Donor,
    DonorExplanation,
    Donors,
    Graph,
    GraphEdge,
    GraphNode,
    Kin,
    Lineage,
    LineageLink,
    SimilarityBaseline,
)

__all__ = ["read_donors", "read_graph", "read_lineage"]

_UNTOLD = SimilarityBaseline(0.0, 0.0, 0)


def read_donors(body: Fields) -> Donors:
    return Donors(
        items=body.rows("items", _read_donor),
        target=body.optional("target", body.text),
        method=body.text("method"),
        weights=body.optional("weights", body.text) or "similarity",
        usual=body.optional("usual", lambda name: _read_usual(body.inner(name))) or _UNTOLD,
        candidates=body.optional("candidates", body.integer) or 0,
        left_out=body.optional("left_out", body.integer) or 0,
        degraded=body.optional("degraded", body.flag) or False,
    )


def read_graph(body: Fields) -> Graph:
    facts = body.inner("graph")
    return Graph(
        nodes=body.rows("nodes", _read_node),
        edges=body.rows("edges", _read_edge),
        k=facts.optional("k", facts.integer),
        threshold=facts.optional("threshold", facts.number),
        version=facts.integer("version"),
    )


def read_lineage(body: Fields) -> Lineage:
    return Lineage(
        model=body.text("model"),
        verdict=body.text("verdict"),
        summary=body.text("summary"),
        declared_base=body.optional("declared_base", body.text),
        likely_base=body.optional("likely_base", body.text),
        base=body.optional("base", lambda name: _read_kin(body.inner(name))),
        rival=body.optional("rival", lambda name: _read_kin(body.inner(name))),
        kin=body.rows("kin", _read_kin),
        usual=_read_usual(body.inner("usual")),
        limit=body.number("limit"),
        chain=body.rows("chain", _read_link),
        cycle=body.flag("cycle"),
    )


def _read_usual(body: Fields) -> SimilarityBaseline:
    return SimilarityBaseline(
        body.number("similarity"), body.number("deviation"), body.integer("models")
    )


def _read_donor(body: Fields) -> Donor:
    why = body.optional("why", lambda name: _read_reason(body.inner(name)))
    return Donor(
        model=body.text("model"),
        similarity=body.number("similarity"),
        weight=body.number("weight"),
        estimate=body.text("estimate"),
        standard_error=body.number("standard_error"),
        why=why or DonorExplanation(""),
    )


def _read_reason(body: Fields) -> DonorExplanation:
    def number(name: str) -> float | None:
        return body.optional(name, body.number)

    return DonorExplanation(
        sentence=body.text("sentence"),
        shared_indices=body.optional("shared_indices", body.integer),
        z_score=number("z_score"),
        rarity=number("rarity"),
        rarity_gain=number("rarity_gain"),
        explained=number("explained"),
        cumulative=number("cumulative"),
        shapley=number("shapley"),
        worth=number("worth"),
        label=body.optional("label", body.text),
    )


def _read_node(body: Fields) -> GraphNode:
    return GraphNode(
        model=body.text("id"),
        kind=body.text("kind"),
        support_size=body.integer("support_size"),
        tags=body.texts("tags"),
        base_model=body.optional("base_model", body.text),
    )


def _read_edge(body: Fields) -> GraphEdge:
    return GraphEdge(
        a=body.text("source"),
        b=body.text("target"),
        similarity=body.number("similarity"),
        estimate=body.text("estimate"),
        standard_error=body.number("standard_error"),
    )


def _read_kin(body: Fields) -> Kin:
    return Kin(
        model=body.text("model"),
        similarity=body.number("similarity"),
        estimate=body.text("estimate"),
        standard_error=body.number("standard_error"),
        z_score=body.optional("z_score", body.number),
        stands_out=body.optional("stands_out", body.flag),
        base_model=body.optional("base_model", body.text),
        relation=body.optional("relation", body.text),
        to_base=body.optional("to_base", body.number),
    )


def _read_link(body: Fields) -> LineageLink:
    return LineageLink(
        model=body.text("model"),
        base_model=body.text("base_model"),
        similarity=body.optional("similarity", body.number),
        estimate=body.optional("estimate", body.text),
        standard_error=body.optional("standard_error", body.number),
    )
