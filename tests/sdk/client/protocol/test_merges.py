"""Merges on the wire: what is sent, how it is read, and a service that does not play fair."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest

from modelkin.core.shards.plan import Plan
from modelkin.core.shards.roster import Party, Roster
from modelkin.errors import ConflictError, InvalidName, InvalidParameter, MergeFailed
from modelkin.sharing import new_key, public_key

NAMES = ("org/a", "org/b", "org/c")
PROBLEM = "application/problem+json"
PLAN = Plan(num_parameters=12, conceal=False)


def shown(state: str = "joining", roster: Roster | None = None, **changed: Any) -> dict[str, Any]:
    """A merge as the service shows it."""
    ended = "2026-05-01T11:00:00Z" if state in {"done", "failed"} else None
    parties = [
        {
            "name": name,
            "joined": roster is not None,
            "neutral": False,
            "may_aggregate": True,
            "weight": 1.0,
            "left_out": None,
        }
        for name in NAMES
    ]
    return {
        "name": "july",
        "space": "s",
        "state": state,
        "attempt": 0,
        "revision": 1,
        "request": {"deadline": 60},
        "digest": None if roster is None else roster.digest.hex(),
        "failure": None,
        "created_at": "2026-05-01T10:00:00Z",
        "due_at": None if ended else "2026-05-01T10:01:00Z",
        "ended_at": ended,
        "plan": PLAN.to_json(),
        "parties": parties,
        "awaited": [],
        "roster": None if roster is None else roster.to_json(),
        "peak": None,
        **changed,
    }


def answer(**fields: Any) -> httpx.Response:
    return httpx.Response(200, json=fields)


def test_a_merge_is_created(wire: Any) -> None:
    """Only what is given is sent; the answer has the parties and who is awaited."""
    client = wire.client(httpx.Response(201, json=shown(awaited=["org/a"])))
    made = client.merges.create("s", "july", members=NAMES, weights={"org/a": 1.5}, deadline=60)
    (request,) = wire.requests
    assert ("PUT", "/v1/spaces/s/merges/july") == (request.method, request.url.path)
    assert {"members": list(NAMES), "weights": {"org/a": 1.5}, "deadline": 60} == json.loads(
        request.content
    )
    assert (("org/a",), 12, False) == (made.awaited, made.plan["num_parameters"], made.finished)
    assert ["org/a", "org/b", "org/c"] == [party.name for party in made.parties]


def test_merges_are_listed_read_and_deleted(wire: Any) -> None:
    """Each by its path; a merge stands for its name."""
    client = wire.client(answer(items=[shown("done")], next_cursor=None))
    (info,) = client.merges.list("s")
    assert ("july", "done", True) == (info.name, info.state, info.finished)
    client = wire.client(answer(**shown("failed", failure="why")))
    assert "why" == client.merges.get("s", info).failure
    client = wire.client(httpx.Response(204))
    client.merges.delete("s", "july")
    assert ["GET", "GET", "DELETE"] == [request.method for request in wire.requests]
    assert "/v1/spaces/s/merges/july" == wire.requests[-1].url.path


def test_wrong_names_are_refused_before(wire: Any) -> None:
    """A string of members, a merge's and a model's name that cannot be one."""
    client = wire.client(answer())
    calls: tuple[Callable[[], Any], ...] = (
        lambda: client.merges.create("s", "july", members="org/a"),
        lambda: client.merges.create("s", "July!", members=NAMES),
        lambda: client.merges.create("s", "july", members=["a//b"]),
        lambda: client.merges.delete("s", "July!"),
    )
    for refused in calls:
        with pytest.raises((InvalidName, InvalidParameter)):
            refused()
    assert not wire.requests


def roster_with(own: bytes) -> Roster:
    others = [public_key(new_key()) for _ in NAMES[1:]]
    keys = [own, *others]
    return Roster(PLAN, tuple(Party(name, key) for name, key in zip(NAMES, keys, strict=True)))


def test_a_service_that_swaps_a_key_gets_no_cell(wire: Any) -> None:
    """The roster must have this party's key and its own digest; nothing is sent otherwise."""
    joined = httpx.Response(201, json={"merge": "july", "model": "org/a"})
    swapped = roster_with(public_key(new_key()))
    lying = shown("sending", swapped, digest="0" * 64)
    for now, says in ((shown("sending", swapped), "another key"), (lying, "digest")):
        before = answer(**shown())
        client = wire.client(before, before, joined, answer(**now))
        with pytest.raises(InvalidParameter, match=says):
            client.merges.join("s", "july", "org/a", np.zeros(12), examples=1)
    sent = [json.loads(r.content) for r in wire.requests if r.method == "POST"]
    assert all(32 == len(base64.b64decode(body["public_key"])) for body in sent)
    assert all(64 == len(body["token_digest"]) and "token" not in body for body in sent)
    assert not [request for request in wire.requests if request.method == "PUT"]


def test_a_failed_merge_says_why(wire: Any) -> None:
    """The reason of the service is that of the error; another merge of the name is noticed."""
    joined = httpx.Response(201, json={"merge": "july", "model": "org/a"})
    before = answer(**shown())
    failed = answer(**shown("failed", failure="2 members joined"))
    client = wire.client(before, before, joined, failed)
    with pytest.raises(MergeFailed, match="2 members joined"):
        client.merges.join("s", "july", "org/a", np.zeros(12), examples=1)
    other = answer(**shown(created_at="2026-05-02T10:00:00Z"))
    client = wire.client(before, before, joined, other)
    with pytest.raises(MergeFailed, match="replaced"):
        client.merges.join("s", "july", "org/a", np.zeros(12), examples=1)


def test_a_closed_merge_is_a_conflict(wire: Any) -> None:
    """Late parties get the service's refusal."""
    before = answer(**shown("combining"))
    problem = {"code": "merge_closed", "detail": "it is combining", "status": 409}
    refused = httpx.Response(
        409, json=problem, headers={"content-type": "application/problem+json"}
    )
    client = wire.client(before, before, refused)
    with pytest.raises(ConflictError, match="merge_closed"):
        client.merges.join("s", "july", "org/a", np.zeros(12), examples=1)


def test_a_party_waits_for_a_service_that_is_away(wire: Any) -> None:
    """Connections that fail are tried again, with growing pauses, and then it goes on."""
    before = answer(**shown())
    joined = httpx.Response(201, json={"merge": "july", "model": "org/a"})
    away = [httpx.ConnectError("refused")] * 9
    failed = answer(**shown("failed", failure="at last"))
    client = wire.client(before, *away, before, joined, *away, failed)
    with pytest.raises(MergeFailed, match="at last"):
        client.merges.join("s", "july", "org/a", np.zeros(12), examples=1)
    assert max(wire.pauses) <= 60
