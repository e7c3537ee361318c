"""Merges on the wire: what is sent, how it is read, and a service that does not play fair."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from modelkin.checkpoints import CheckpointSink, CheckpointValues, open_checkpoint
from modelkin.errors import ConflictError, InvalidName, InvalidParameter, MergeFailed
from modelkin.federation.shards.plan import Plan
from modelkin.federation.shards.roster import Party, Roster
from modelkin.federation.sharing import new_key, public_key
from modelkin.federation.sharing.values import source_of

NAMES = ("org/a", "org/b", "org/c")
PROBLEM = "application/problem+json"
PLAN = Plan(num_parameters=12)


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


def roster_with(own: bytes, plan: Plan = PLAN) -> Roster:
    others = [public_key(new_key()) for _ in NAMES[1:]]
    keys = [own, *others]
    return Roster(plan, tuple(Party(name, key) for name, key in zip(NAMES, keys, strict=True)))


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


@pytest.mark.parametrize(
    ("plan", "accepting"),
    [
        (Plan(num_parameters=12, conceal=False), {"conceal": False}),
        (Plan(num_parameters=12, min_members=2), {"min_members": 2}),
    ],
    ids=["plain", "few"],
)
def test_a_merge_that_shows_more_is_not_joined(
    wire: Any, plan: Plan, accepting: dict[str, Any]
) -> None:
    """Plain shards, and averages of two, only for who asks for them; a neutral party may help."""
    before = answer(**shown(plan=plan.to_json()))
    failed = answer(**shown("failed", failure="at last", plan=plan.to_json()))
    client = wire.client(before)
    with pytest.raises(InvalidParameter, match=next(iter(accepting))):
        client.merges.join("s", "july", "org/a", np.zeros(12), examples=1)
    assert {"GET"} == {request.method for request in wire.requests}
    for values, options in ((np.zeros(12), accepting), (None, {})):
        client = wire.client(before, before, answer(), failed)
        with pytest.raises(MergeFailed, match="at last"):
            client.merges.join("s", "july", "org/a", values, examples=1, **options)


def test_a_service_that_swaps_the_plan_gets_no_cell(wire: Any) -> None:
    """The roster must have the plan that the party has joined."""
    before = answer(**shown())
    for changed in ({"conceal": False}, {"min_members": 1}):
        other = roster_with(public_key(new_key()), replace(PLAN, **changed))
        client = wire.client(before, before, answer(), answer(**shown("sending", other)))
        with pytest.raises(InvalidParameter, match="another plan"):
            client.merges.join("s", "july", "org/a", np.zeros(12), examples=1)
    assert not [request for request in wire.requests if request.method == "PUT"]


@pytest.mark.parametrize(
    ("of", "of_values", "of_sink"),
    [("delta", False, False), ("delta", True, False), ("weights", True, True)],
)
def test_a_base_is_given_exactly_for_differences(
    wire: Any, tmp_path: Path, of: str, of_values: bool, of_sink: bool
) -> None:
    """Neither weights in place of differences are joined with, nor the other way round."""
    path = tmp_path / "x.safetensors"
    save_file({"w": torch.zeros(12)}, path)
    model = open_checkpoint(path)
    values = CheckpointValues(model, base=model if of_values else None)
    sink = CheckpointSink(tmp_path / "merged", model, base=model if of_sink else None)
    client = wire.client(answer(**shown(request={"of": of})))
    with pytest.raises(InvalidParameter, match=f"is of {'diff' if of == 'delta' else of}"):
        client.merges.join("s", "july", "org/a", values, output=sink, examples=1)
    assert {"GET"} == {request.method for request in wire.requests}


class Sending:
    """A service that seats a party when it joins, and counts the cells that it is sent."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self.now = shown()
        self.sent = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            own = base64.b64decode(json.loads(request.content)["public_key"])
            self.now = shown("sending", roster_with(own), peak=1.0)
        self.sent += request.method == "PUT"
        if self.sent:
            return httpx.Response(409, json={"code": "merge_closed", "status": 409, "detail": ""})
        return answer(**self.now)


def test_values_that_change_while_a_party_waits_are_not_sent(
    opened: Callable[..., Any], tmp_path: Path
) -> None:
    """A checkpoint that a training writes again is not the one that this party joined with."""
    path = tmp_path / "x.safetensors"
    save_file({"w": torch.zeros(12)}, path)
    service = Sending()

    def train(merge: Any) -> None:
        save_file({"w": torch.ones(12)}, path)
        os.utime(path, ns=(0, 1))

    values = CheckpointValues(open_checkpoint(path))
    with pytest.raises(InvalidParameter, match="values have changed"):
        opened(service).merges.join("s", "july", "org/a", values, examples=1, on_progress=train)
    assert 0 == service.sent


def test_an_array_may_change_while_a_party_waits() -> None:
    """It is copied: what is sent is what the party joined with."""
    vector = np.zeros(12, np.float32)
    source = source_of(vector)
    vector += 1
    assert not source.read(0, 12).any()


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
