"""Public spaces through either client: what is sent, and what is read."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from modelkin import Importance, SignatureSpec, Support
from modelkin.errors import InvalidName, InvalidParameter, RateLimitError
from tests.sdk.client.conftest import Wire

SPACE = {
    "owner": "labs",
    "space": "atlas",
    "description": "ours",
    "step": 0.1,
    "floor": 0.3,
    "daily_queries": 1000,
    "created_at": "2026-01-02T03:04:05Z",
}
INFO = SPACE | {
    "num_parameters": 100,
    "layout_digest": None,
    "importance": {"kind": "fisher", "base": None},
    "blinding": None,
    "signature": {"scheme": "affine32", "num_perm": 64, "seed": 1},
    "remaining": 998,
}
FOUND = {
    "items": [{"model": "org/a", "score": 0.7}],
    "step": 0.1,
    "floor": 0.3,
    "remaining": 997,
    "truncated": False,
    "degraded": False,
}
QUERY = Support.from_indices([1, 2, 3], 100)


def test_a_space_is_published_read_and_withdrawn(wire: Wire) -> None:
    """What is left out is the service's default."""
    client = wire.client(
        httpx.Response(200, json=SPACE), httpx.Response(200, json=SPACE), httpx.Response(204)
    )
    made = client.public.publish("atlas", step=0.1, description="ours")
    assert made == client.public.settings("atlas")
    client.public.withdraw("atlas")
    paths = [(r.method, r.url.path) for r in wire.requests]
    assert [(method, "/v1/spaces/atlas/public") for method in ("PUT", "GET", "DELETE")] == paths
    assert {"step": 0.1, "description": "ours"} == json.loads(wire.requests[0].content)
    assert ("labs", "atlas", 0.1) == (made.owner, made.space, made.step)


def test_public_spaces_are_listed_read_and_asked(wire: Wire) -> None:
    """Answers are typed; a ranking prints as a table."""
    client = wire.client(
        httpx.Response(200, json={"items": [SPACE], "next_cursor": None}),
        httpx.Response(200, json=INFO),
        httpx.Response(200, json=FOUND),
    )
    [listed] = client.public.list()
    info = client.public.get(listed.owner, listed.space)
    assert (Importance.of("fisher"), SignatureSpec(num_perm=64)) == (
        info.importance,
        info.signature,
    )
    found = client.public.neighbors("labs", "atlas", QUERY, k=5)
    assert ("org/a", 0.7, 997) == (found[0].model, found[0].score, found.remaining)
    assert "org/a" in repr(found)
    asked = wire.requests[-1]
    assert ("POST", "/v1/public/labs/atlas/neighbors") == (asked.method, asked.url.path)
    assert QUERY.to_bytes() == asked.content
    assert "5" == asked.url.params["k"]


def test_a_spent_budget_is_not_waited_for(wire: Wire) -> None:
    """The error says in how many seconds there is another."""
    problem = {"code": "query_budget_spent", "detail": "spent", "status": 429}
    headers = {"Retry-After": "4000", "Content-Type": "application/problem+json"}
    client = wire.client(httpx.Response(429, json=problem, headers=headers))
    with pytest.raises(RateLimitError, match="query_budget_spent") as error:
        client.public.neighbors("labs", "atlas", QUERY)
    assert 4000 == error.value.retry_after
    assert 1 == len(wire.requests)


@pytest.mark.parametrize("query", ["org/a", b"x", None])
def test_what_is_no_support_is_refused_here(wire: Wire, query: Any) -> None:
    """The name of a stored model, for one: no model of another tenant is a subject."""
    client = wire.client()
    with pytest.raises(InvalidParameter, match="a Support or a Signature"):
        client.public.neighbors("labs", "atlas", query)
    with pytest.raises(InvalidName):
        client.public.get("../labs", "atlas")
    assert [] == wire.requests
