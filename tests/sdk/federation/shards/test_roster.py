"""Plans, rosters and rounds: what is refused, what is drawn, what changes a digest."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkin.errors import InvalidParameter
from modelkin.federation.shards.plan import Plan
from modelkin.federation.shards.roster import Party, Roster, Round


def parties(count: int, **fields: Any) -> tuple[Party, ...]:
    return tuple(Party(f"m{at}", bytes([at + 1]) * 32, **fields) for at in range(count))


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"num_parameters": 0}, "num_parameters"),
        ({"num_parameters": 2.0}, "num_parameters"),
        ({"shards": 0}, "shards"),
        ({"shards": 1001}, "shards"),
        ({"shards": True}, "shards"),
        ({"one_in": 0}, "one_in"),
        ({"shards": 10, "one_in": 101}, "one_in"),
        ({"min_members": 0}, "min_members"),
        ({"replicas": 2}, "replicas"),
        ({"conceal": 1}, "conceal"),
        ({"masks": "all"}, "masks"),
        ({"quantize": "int4"}, "quantize"),
        ({"rule": "krum"}, "rule"),
        ({"rule": "median"}, "rule"),
        ({"masks": "own", "one_in": 2}, "masks"),
        ({"quantize": "int8"}, "quantize"),
        ({"rule": "median", "conceal": False, "one_in": 2}, "rule"),
        ({"rule": "median", "conceal": False, "quantize": "int8"}, "rule"),
        ({"piece_values": 0}, "piece_values"),
    ],
)
def test_plans_that_cannot_be(arguments: dict[str, Any], field: str) -> None:
    """The error names the field, before any message is sent."""
    with pytest.raises(InvalidParameter) as raised:
        Plan(**{"num_parameters": 1000, **arguments})
    assert field == raised.value.field


@given(st.integers(1, 500), st.data())
@settings(max_examples=100)
def test_stretches_cover_the_vector(m: int, data: st.DataObject) -> None:
    """Pieces follow each other without gaps, of whole blocks of A and of c."""
    shards = data.draw(st.integers(1, m))
    one_in = data.draw(st.integers(1, m // shards))
    piece = data.draw(st.integers(1, 60))
    plan = Plan(num_parameters=m, shards=shards, one_in=one_in, piece_values=piece)
    assert 0 == plan.piece_blocks % one_in
    edges = [plan.stretch(at) for at in range(plan.pieces)]
    assert 0 == edges[0][0]
    assert m == edges[-1][1]
    assert all(before[1] == after[0] for before, after in itertools.pairwise(edges))
    assert all(0 == start % shards for start, _ in edges)
    with pytest.raises(InvalidParameter):
        plan.stretch(plan.pieces)


def test_a_roster_is_its_json() -> None:
    """It survives JSON, and everything in it is in the digest."""
    plan = Plan(num_parameters=100, shards=3)
    roster = Roster(plan, parties(5), 2, (1,))
    assert roster == Roster.from_json(json.loads(json.dumps(roster.to_json())))
    others = [
        Roster(plan, parties(6), 2, (1,)),
        Roster(plan, parties(5, may_aggregate=True, neutral=True), 2, (1,)),
        Roster(plan, parties(5), 3, (1,)),
        Roster(plan, parties(5), 2),
        Roster(Plan(num_parameters=100, shards=2), parties(5), 2, (1,)),
    ]
    assert 6 == len({roster.digest, *(other.digest for other in others)})


def test_a_digest_never_changes() -> None:
    """A roster of a release has this digest and these seats in every release."""
    roster = Roster(Plan(num_parameters=1000, shards=3, replicas=2), parties(7))
    assert "504a5c29210aae16" == roster.digest.hex()[:16]
    assert (3, 2, 1) == roster.seats


def test_a_lost_aggregator_moves_no_other() -> None:
    """A new epoch without an aggregator keeps the cut and every other seat."""
    plan = Plan(num_parameters=100, shards=3)
    before = Roster(plan, parties(5))
    lost = before.seats[1]
    after = Roster(plan, parties(5), 1, (lost,))
    assert before.partition == after.partition
    assert [before.seats[0], before.seats[2]] == [after.seats[0], after.seats[2]]
    assert after.seats[1] not in before.seats


def test_seats_are_drawn_among_the_willing() -> None:
    """Over many rosters each willing party aggregates equally often, and no other does."""
    counts = Counter[int]()
    for number in range(2000):
        willing = parties(4)
        unwilling = Party("zz", b"\xff" * 32, may_aggregate=False)
        plan = Plan(num_parameters=100 + number, shards=2)
        counts.update(Roster(plan, (*willing, unwilling)).seats)
    assert {0, 1, 2, 3} == set(counts)
    assert all(abs(count - 1000) < 120 for count in counts.values())


def test_replicas_hold_a_shard_each() -> None:
    """With two replicas each shard has two holders, and each aggregator two shards."""
    roster = Roster(Plan(num_parameters=100, shards=4, replicas=2), parties(6))
    held = Counter(place for shard in range(4) for place in roster.holders(shard))
    assert set(roster.seats) == set(held)
    assert {2} == set(held.values())
    for place in roster.seats:
        assert [a for a in range(4) if place in roster.holders(a)] == list(roster.shards_of(place))


def test_neutral_parties_have_no_values() -> None:
    """They may hold shards, and are not members."""
    neutral = Party("n", b"\xee" * 32, neutral=True)
    roster = Roster(Plan(num_parameters=100, shards=4), (*parties(3), neutral))
    assert (0, 1, 2) == roster.members
    assert 3 in roster.seats
    assert 3 == roster.place("n")
    with pytest.raises(InvalidParameter):
        roster.check_round(Round(1, {0: 1.0, 1: 1.0, 3: 1.0}, peak=1.0))


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"parties": ()}, "parties"),
        ({"parties": (*parties(3), *parties(1))}, "parties"),
        ({"parties": (*parties(3), Party("x", bytes([1]) * 32))}, "parties"),
        ({"parties": (Party("", b"1" * 32),)}, "parties[0].id"),
        ({"parties": (Party("a", b"1" * 31),)}, "parties[0].public_key"),
        ({"parties": (Party("a", b"1" * 32, 1),)}, "parties[0]"),  # type: ignore[arg-type]
        ({"epoch": -1}, "epoch"),
        ({"unseated": (9,)}, "unseated"),
        ({"parties": parties(5, may_aggregate=False)}, "shards"),
        ({"unseated": (0, 1, 2)}, "shards"),
    ],
)
def test_rosters_that_cannot_be(changed: dict[str, Any], field: str) -> None:
    """The error names the field."""
    arguments = {"parties": parties(5), "epoch": 0, "unseated": ()}
    with pytest.raises(InvalidParameter) as raised:
        Roster(Plan(num_parameters=100, shards=3), **{**arguments, **changed})
    assert field == raised.value.field


@pytest.mark.parametrize(
    "damage",
    [
        lambda fields: fields.pop("parties"),
        lambda fields: fields.update(parties=7),
        lambda fields: fields["parties"][0].update(public_key="zz"),
        lambda fields: fields["parties"][0].pop("id"),
        lambda fields: fields["plan"].pop("rule"),
        lambda fields: fields["plan"].update(more=1),
        lambda fields: fields.update(plan=[]),
        lambda fields: fields.update(unseated=["0"]),
    ],
)
def test_foreign_json_is_refused(damage: Any) -> None:
    """What another party sends is an error of ours, whatever it is."""
    fields = Roster(Plan(num_parameters=100), parties(3)).to_json()
    damage(fields)
    with pytest.raises(InvalidParameter):
        Roster.from_json(fields)


def test_rounds_have_shares() -> None:
    """Shares sum to 1, presence is relative to the roster, and who is left out is out."""
    current = Round(3, {2: 30.0, 0: 10.0}, peak=1.0, roster_total=80.0)
    assert (0, 2) == current.taking_part
    assert [0.25, 0.75] == [current.share(0), current.share(2)]
    assert 0.5 == current.presence
    again = current.without([0])
    assert (1, {2: 30.0}) == (again.attempt, dict(again.weights))
    assert current.digest != again.digest
    assert current.digest == Round(3, {0: 10.0, 2: 30.0}, peak=1.0, roster_total=80.0).digest


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf"), 2.0**54])
def test_weights_that_cannot_be(weight: float) -> None:
    """Examples are above 0 and at most 2^53."""
    with pytest.raises(InvalidParameter, match="member 1"):
        Round(1, {0: 1.0, 1: weight})


def test_small_rounds_are_refused() -> None:
    """Fewer than min_members, no R, or a number beyond 32 bits."""
    roster = Roster(Plan(num_parameters=100), parties(5))
    roster.check_round(Round(1, dict.fromkeys(range(3), 1.0), peak=1.0))
    for wrong in (
        Round(1, {0: 1.0, 1: 1.0}, peak=1.0),
        Round(1, dict.fromkeys(range(3), 1.0)),
        Round(1, dict.fromkeys(range(7), 1.0), peak=1.0),
    ):
        with pytest.raises(InvalidParameter):
            roster.check_round(wrong)
    with pytest.raises(InvalidParameter):
        Round(0, {})
