"""Merges over HTTP: from creation to the average, and every way in which they end."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import numpy as np
import pytest

from app.merges.request import MergeRequest
from modelkin.federation.sharing import Aggregator
from tests.support.federations.merging import Floats, HubMerge, Party
from tests.support.federations.sharing import fedavg
from tests.support.http_space import Space, assert_problem, ok

M = 1000
NAMES = ("org/a", "org/b", "org/c", "org/d")


def vectors(count: int = 4) -> dict[str, Floats]:
    drawn = np.random.default_rng(count).normal(0, 0.05, (count, M)).astype(np.float32)
    return dict(zip(NAMES, drawn, strict=False))


@pytest.fixture
def small(http: httpx.Client) -> Iterator[Space]:
    """A space of 1,000 parameters."""
    made = Space(http, M)
    yield made
    http.delete(made.path("merges").rpartition("/")[0])


def wanted_of(merge: HubMerge) -> np.ndarray:
    current, roster = merge.round(), merge.roster()
    values = {roster.place(name): party.values for name, party in merge.parties.items()}
    weights = [current.weights[place] for place in current.taking_part]
    return fedavg([values[place] for place in current.taking_part], weights)  # type: ignore[misc]


def test_names_are_those_that_are_stored() -> None:
    """In normal form C, wherever a request names a model: some clients spell it otherwise."""
    written, stored = "caf\N{LATIN SMALL LETTER E}\N{COMBINING ACUTE ACCENT}", "café"
    of_members = MergeRequest(members=(written, "b", "c"), weights={written: 1.0}).checked()
    assert ((stored, "b", "c"), {stored: 1.0}) == (of_members.members, of_members.weights)
    assert stored == MergeRequest(donors_of=written).checked().donors_of


@pytest.mark.parametrize("members", range(3, 9))
def test_by_default_one_member_may_be_away(members: int) -> None:
    """The others are enough to hold the shards; of three, nobody may be left out anyhow."""
    plan = MergeRequest(clustering="latest", cluster=0).plan(M, members)
    assert min(4, max(3, members - 1)) == plan.shards
    assert plan.shards <= max(plan.min_members, members - 1)


@pytest.mark.slow
@pytest.mark.parametrize("conceal", [True, False])
def test_five_steps_to_an_average(small: Space, conceal: bool) -> None:
    """Create, join, send, combine, read: FedAvg, to the bit where it is not concealed."""
    merge = HubMerge(small, vectors(), conceal=conceal, aggregators=3)
    assert 201 == merge.created.status_code
    shown = merge.show()
    assert "joining" == shown["state"]
    assert list(NAMES) == shown["awaited"]
    assert shown["roster"] is None
    for number, party in enumerate(merge.parties.values(), start=1):
        ok(party.join(examples=10 * number))
    shown = merge.show()
    assert "sending" == shown["state"]
    assert [10, 20, 30, 40] == [party["weight"] for party in shown["parties"]]
    merge.send_all()
    assert "combining" == merge.state
    merge.aggregate_all()
    shown = merge.show()
    assert ("done", None, []) == (shown["state"], shown["failure"], shown["awaited"])
    for party in merge.parties.values():
        found = party.merged()
        wanted = wanted_of(merge)
        if conceal:
            assert np.abs(found - wanted).max() < 4 * 2.0**-30 + 1e-8
        else:
            assert np.array_equal(wanted.astype(np.float32), found)


def test_the_same_request_finds_the_merge(small: Space) -> None:
    """A repeated request is answered with the merge; another one under its name is refused."""
    merge = HubMerge(small, vectors(), deadline=600)
    again = merge.http.put(merge.path, json={**merge.wanted, "members": list(NAMES[::-1])})
    assert (200, merge.created.json()) == (again.status_code, again.json())
    other = merge.http.put(merge.path, json={**merge.wanted, "deadline": 601})
    assert_problem(other, 409, "merge_exists")
    listed = ok(merge.http.get(small.path("merges")))["items"]
    assert ["m"] == [item["name"] for item in listed]


@pytest.mark.slow
def test_neutral_parties_aggregate_alone(small: Space) -> None:
    """A party without a model may hold a shard, and reads the average."""
    merge = HubMerge(small, vectors(3), aggregators=3, conceal=False)
    members = list(merge.parties.values())
    ok(members[0].join(may_aggregate=False))
    ok(members[1].join())
    neutral = Party(merge, "helper")
    ok(neutral.join())
    merge.parties["helper"] = neutral
    ok(members[2].join())
    assert "sending" == merge.state
    for party in members:
        party.send()
    merge.aggregate_all()
    del merge.parties["helper"]
    assert np.array_equal(wanted_of(merge).astype(np.float32), neutral.merged())


@pytest.mark.slow
def test_a_refused_member_costs_a_second_attempt(small: Space) -> None:
    """The others send again under new masks, and the result is theirs; a third attempt fails."""
    merge = HubMerge(small, vectors(), aggregators=2)
    merge.join_all()
    where, data = next(iter(merge.parties["org/b"].cells()))
    merge.send_all()
    first = merge.seated()[0]
    ok(first.judge(attempt=0, members={"org/b": "its cell does not open"}))
    shown = merge.show()
    assert ("sending", 1) == (shown["state"], shown["attempt"])
    left_out = {party["name"]: party["left_out"] for party in shown["parties"]}
    assert "its cell does not open" == left_out["org/b"]
    late = merge.parties["org/b"].put(where, data)
    assert_problem(late, 409, "merge_closed")
    merge.send_all()
    merge.aggregate_all()
    assert "done" == merge.state
    found = merge.parties["org/b"].merged()
    assert np.abs(found - wanted_of(merge)).max() < 1e-8


@pytest.mark.slow
def test_results_wait_for_all_verdicts(small: Space) -> None:
    """None is taken while an aggregator may refuse a member: two sums would show its values."""
    merge = HubMerge(small, vectors(), aggregators=2)
    merge.join_all()
    merge.send_all()
    first, second = merge.seated()
    roster, current = merge.roster(), merge.round()
    ok(first.judge())
    assert [second.name] == merge.show()["awaited"]
    ((shard, piece), combined), *_ = first.combined().items()
    assert combined.values is not None
    aggregator = Aggregator(roster, roster.place(first.name), first.key)
    sealed = aggregator.seal_result(shard, piece, combined.values, current)
    early = first.put(f"results/{shard}/{piece}", sealed)
    assert second.name in assert_problem(early, 409, "merge_closed")
    ok(second.judge(members={"org/a": "its cell does not open"}))
    assert ("sending", 1) == (merge.state, merge.show()["attempt"])
    assert not [party for party in merge.show()["parties"] if party["decided"]]
    merge.send_all()
    merge.aggregate_all()
    assert "done" == merge.state


@pytest.mark.slow
def test_a_merge_fails_once_too_few_are_left(small: Space) -> None:
    """Below min_members, in a second failure, and where no member can be named."""
    few = HubMerge(small, vectors(3), name="few", aggregators=1)
    few.join_all()
    few.send_all()
    ok(few.seated()[0].judge(attempt=0, members={"org/a": "why"}))
    assert "2 members are left" in few.show()["failure"]
    blind = HubMerge(small, vectors(), name="blind", aggregators=1)
    blind.join_all()
    blind.send_all()
    ok(blind.seated()[0].judge(attempt=0, failed="the masks do not cancel"))
    shown = blind.show()
    assert "failed" == shown["state"]
    assert "the masks do not cancel" in shown["failure"]
    assert_problem(blind.parties["org/a"].get("results/0/0"), 404, "merge_not_found")
    twice = HubMerge(small, vectors(), name="twice", aggregators=1, min_members=2)
    twice.join_all()
    for attempt in (0, 1):
        twice.send_all()
        name = NAMES[attempt]
        ok(twice.seated()[0].judge(attempt=attempt, members={name: "no"}))
    assert "in the second attempt" in twice.show()["failure"]
