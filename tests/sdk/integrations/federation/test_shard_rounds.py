"""A round of shards as its server leads it, without an engine: every order of losses ends right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkin.errors import InvalidParameter
from modelkin.federation.sharing import (
    Aggregator,
    Combined,
    Member,
    Party,
    Plan,
    Roster,
    Round,
    new_key,
    public_key,
)
from modelkin.integrations.federation.shards.members import LOST_AFTER, ShardMembers
from modelkin.integrations.federation.shards.rounds import (
    Answer,
    Ask,
    CombineAsk,
    ReleaseAsk,
    SendAsk,
    ShardRound,
    Trained,
    check_examples,
)

M, MEMBERS = 60, 5
WEIGHTS = {place: 3 + 2 * place for place in range(MEMBERS)}
UPDATES = np.random.default_rng(1).normal(0, 1, (MEMBERS, M)).astype(np.float32)

Doubles = npt.NDArray[np.float64]


class Parties:
    """Members and aggregators in this process; some do not answer, or answer badly."""

    def __init__(self, **fields: Any) -> None:
        keys = [new_key() for _ in range(MEMBERS)]
        parties = tuple(Party(str(at), public_key(key)) for at, key in enumerate(keys))
        self.roster = Roster(Plan(num_parameters=M, **fields), parties)
        self.members = [Member(self.roster, at, key) for at, key in enumerate(keys)]
        self.aggregators = [Aggregator(self.roster, at, key) for at, key in enumerate(keys)]
        self.lost_members: set[int] = set()
        self.lost_aggregators: set[int] = set()
        self.liars: set[int] = set()
        self.results: dict[tuple[int, tuple[int, int]], Combined] = {}
        self.batches: list[Sequence[Ask]] = []

    def trained(self, number: int = 1) -> dict[int, Trained]:
        """The replies of all members to the training."""
        found = {}
        for at, member in enumerate(self.members):
            if self.roster.plan.conceal:
                found[at] = Trained(WEIGHTS[at], member.peak(UPDATES[at]))
            else:
                everybody = Round(number, dict.fromkeys(range(MEMBERS), 1.0))
                found[at] = Trained(WEIGHTS[at], cells=list(member.cells(UPDATES[at], everybody)))
        return found

    def answers(self, asks: Sequence[Ask]) -> dict[int, Answer]:
        """What the parties answer to a batch; nothing from the lost ones."""
        self.batches.append(asks)
        return {ask.place: self._answer(ask) for ask in asks if ask.place not in self._lost(ask)}

    def _lost(self, ask: Ask) -> set[int]:
        return self.lost_members if isinstance(ask, SendAsk) else self.lost_aggregators

    def _answer(self, ask: Ask) -> Answer:
        if isinstance(ask, SendAsk):
            return list(self.members[ask.place].cells(UPDATES[ask.place], ask.round))
        if isinstance(ask, ReleaseAsk):
            return {piece: self.results[ask.place, piece] for piece in ask.pieces}
        found = {}
        for (shard, piece), cells in ask.cells.items():
            combined = self.aggregators[ask.place].combine(shard, piece, cells, ask.round)
            if ask.place in self.liars and combined.values is not None:
                combined = Combined(combined.values + np.float32(1))
            self.results[ask.place, (shard, piece)] = combined
            found[shard, piece] = combined if ask.release else replace(combined, values=None)
        return found

    def lead(self, current: ShardRound) -> ShardRound:
        """The round, to its end."""
        steps = current.steps()
        try:
            asks = next(steps)
            while True:
                assert len({ask.place for ask in asks}) == len(asks), "one message a party"
                asks = steps.send(self.answers(asks))
        except StopIteration:
            return current

    def average(self, number: int = 1) -> ShardRound:
        """A whole round."""
        return self.lead(ShardRound(self.roster, number, self.trained(number)))


def exact(places: Sequence[int]) -> Doubles:
    """The average in float64."""
    weights = np.array([WEIGHTS[place] for place in places], float)
    found: Doubles = weights @ UPDATES[list(places)].astype(np.float64) / weights.sum()
    return found


@pytest.mark.slow
@settings(max_examples=40)
@given(
    st.booleans(),
    st.integers(1, MEMBERS),
    st.integers(1, 3),
    st.sets(st.integers(0, MEMBERS - 1), max_size=3),
    st.sets(st.integers(0, MEMBERS - 1), max_size=2),
    st.integers(1, 40),
)
def test_every_loss_ends_with_exact_shards_or_kept_ones(
    conceal: bool, shards: int, replicas: int, members: set[int], holders: set[int], piece: int
) -> None:
    """Each shard is the exact average of one set of members, or keeps its values."""
    replicas = min(replicas, shards)
    parties = Parties(shards=shards, conceal=conceal, replicas=replicas, piece_values=piece)
    parties.lost_aggregators = holders
    parties.lost_members = members if conceal else set()
    done = parties.average()
    left = sorted(set(range(MEMBERS)) - parties.lost_members)
    kept = {a for a in range(shards) if 2 * len(holders & {*parties.roster.holders(a)}) >= replicas}
    if len(left) < 3 or len(kept) == shards:
        assert (None, ()) == (done.update, done.members)
        assert set(range(shards)) == set(done.kept)
        return
    assert (tuple(left), kept) == (done.members, set(done.kept))
    assert (2 if parties.lost_members else 1) == done.attempts
    update, expected = done.update, exact(left)
    assert update is not None
    for shard in range(shards):
        at = parties.roster.partition.indices(shard)
        np.testing.assert_allclose(update[at], 0 if shard in kept else expected[at], atol=1e-6)


def test_a_refused_member_counts_in_no_shard() -> None:
    """Plain: one bad cell, seen by one aggregator, takes its member out of all shards."""
    parties = Parties(shards=4, conceal=False)
    trained = parties.trained()
    cells = list(trained[2].cells)
    other = Parties(shards=4, conceal=False)  # of other keys
    cells[1] = replace(cells[1], data=list(other.trained()[2].cells)[1].data)
    trained[2] = Trained(WEIGHTS[2], cells=cells)
    done = parties.lead(ShardRound(parties.roster, 1, trained))
    assert ((0, 1, 3, 4), 2, {2}) == (done.members, done.attempts, set(done.refused))
    assert done.update is not None
    np.testing.assert_allclose(done.update, exact([0, 1, 3, 4]), atol=1e-6)


def test_replicas_that_differ_keep_their_shard() -> None:
    """Both holders are named, and the liar's other shard is kept as well."""
    parties = Parties(shards=3, replicas=2)
    liar = parties.roster.seats[0]
    parties.liars = {liar}
    done = parties.average()
    assert 2 == len(done.kept)
    for shard, why in done.kept.items():
        assert all(str(holder) in why for holder in parties.roster.holders(shard))


@pytest.mark.parametrize("conceal", [True, False])
def test_two_of_three_replicas_outvote_the_third(conceal: bool) -> None:
    """The average is exact in all shards, and the liar is named as a lost aggregator."""
    parties = Parties(shards=5, replicas=3, conceal=conceal)
    liar = parties.roster.seats[0]
    parties.liars = {liar}
    done = parties.average()
    assert ({}, {liar}) == (done.kept, set(done.lost))
    assert "differ from those of" in done.lost[liar]
    assert done.update is not None
    np.testing.assert_allclose(done.update, exact(range(MEMBERS)), atol=1e-6)


def test_two_of_three_replicas_that_lie_alike_are_not_outvoted_by_one() -> None:
    """A majority of holders decides, also where it lies: the page says so."""
    parties = Parties(shards=3, replicas=3)
    honest = parties.roster.seats[0]
    parties.liars = {*parties.roster.seats} - {honest}
    done = parties.average()
    assert ({}, {honest}) == (done.kept, set(done.lost))


def test_holders_of_shifts_must_all_agree() -> None:
    """A holder whose shift stayed behind would differ for good, so no majority is taken."""
    parties = Parties(shards=3, replicas=3, conceal=False, one_in=2, masks="own")
    parties.liars = {parties.roster.seats[0]}
    done = parties.average()
    assert {0, 1, 2} == set(done.kept)


@pytest.mark.parametrize("missing", [0, -1])
def test_a_member_sends_one_cell_for_each_holder(missing: int) -> None:
    """A cell too few or too many is refused before any aggregator is asked."""
    parties = Parties(shards=3, replicas=2, conceal=False)
    trained = parties.trained()
    cells = list(trained[4].cells)
    trained[4] = Trained(WEIGHTS[4], cells=[*cells, cells[0]] if missing else cells[1:])
    done = parties.lead(ShardRound(parties.roster, 1, trained))
    assert ((0, 1, 2, 3), 1) == (done.members, done.attempts)
    assert "one cell for each shard and holder" in done.refused[4]


def test_an_aggregators_messages_do_not_grow_with_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pieces are combined a bundle at a time, with the same result."""
    monkeypatch.setattr("modelkin.integrations.federation.shards.rounds.BUNDLE_BYTES", 1)
    parties = Parties(shards=2, piece_values=4, conceal=False)
    done = parties.average()
    assert 8 == parties.roster.plan.pieces
    assert [CombineAsk] * 8 + [ReleaseAsk] * 8 == [type(batch[0]) for batch in parties.batches]
    for ask in (ask for batch in parties.batches for ask in batch):
        assert not isinstance(ask, SendAsk)
        assert 1 == len(ask.cells if isinstance(ask, CombineAsk) else ask.pieces)
    assert done.update is not None
    np.testing.assert_allclose(done.update, exact(range(MEMBERS)), atol=1e-6)


@pytest.mark.parametrize(
    "bad", [0, -1, 2**53 + 1, 1.5, float("nan"), float("inf"), True, "9", None]
)
def test_examples_are_whole_numbers(bad: object) -> None:
    """1 to 2^53 of them, whole, also as a float."""
    with pytest.raises(InvalidParameter, match="examples are"):
        check_examples(bad)
    assert (1, 2**53, 12) == tuple(map(check_examples, (1, 2**53, 12.0)))


def joined(members: ShardMembers, nodes: Sequence[int]) -> None:
    """Nodes join with keys of their own."""
    for node in nodes:
        members.join(node, Party(str(node), public_key(new_key())))


def ended(roster: Roster, number: int, lost: Sequence[int] = ()) -> ShardRound:
    """A round that ended, with some aggregators lost."""
    done = ShardRound(roster, number, {})
    done.members = tuple(range(len(roster.parties)))
    done.lost = dict.fromkeys(lost, "it did not answer in time")
    held = {a for a in range(roster.plan.shards) if not set(roster.holders(a)) & set(lost)}
    done.values = {shard: {0: np.zeros(1, np.float32)} for shard in held}
    return done


def plan(**fields: Any) -> Plan:
    return Plan(num_parameters=M, shards=2, **fields)


def test_rounds_have_numbers_of_their_own() -> None:
    """No number is used twice, also after nodes say what an earlier server used."""
    members = ShardMembers(plan())
    joined(members, [4, 9, 2])
    (roster, first), (same, second) = members.begin([2, 4, 9]), members.begin([2, 4, 9])
    assert (1, 2, roster.digest) == (first, second, same.digest)
    assert (2, 4, 9) == members.nodes
    members.join(11, Party("11", public_key(new_key())), last_round=70)
    later, number = members.begin([2, 4, 9, 11])
    assert (71, 11) == (number, members.nodes[-1])
    assert (1, later.digest != roster.digest) == (later.epoch, True)


def test_an_aggregator_is_replaced_after_some_rounds() -> None:
    """Another party takes its shard, in the same cut; without another one nothing changes."""
    members = ShardMembers(plan())
    joined(members, [1, 2, 3])
    gone = members.begin([1, 2, 3])[0].seats[0]
    for _ in range(LOST_AFTER):
        roster, number = members.begin([1, 2, 3])
        assert gone in roster.seats
        members.end(ended(roster, number, [gone]))
    new, number = members.begin([1, 2, 3])
    assert gone not in new.seats
    assert (roster.seed, roster.epoch + 1) == (new.seed, new.epoch)
    for _ in range(LOST_AFTER + 1):
        latest, number = members.begin([1, 2, 3])
        members.end(ended(latest, number, [new.seats[0]]))
    assert new.seats == latest.seats


def test_a_node_that_is_back_in_time_keeps_its_shard() -> None:
    """Absences in a row count, not absences."""
    members = ShardMembers(plan())
    joined(members, [1, 2, 3, 4])
    roster, _ = members.begin([1, 2, 3, 4])
    gone = members.nodes[roster.seats[0]]
    rest = [node for node in (1, 2, 3, 4) if node != gone]
    for present in ([*rest], [*rest], [*rest, gone], [*rest], [*rest]):
        assert roster.digest == members.begin(present)[0].digest
    assert roster.digest != members.begin(rest)[0].digest


def test_receipts_wait_until_they_are_delivered() -> None:
    """With shifts each party has the receipt of each round until an answer shows that it has it."""
    members = ShardMembers(plan(conceal=False, masks="own", one_in=2))
    joined(members, [1, 2, 3])
    roster, number = members.begin([1, 2, 3])
    members.end(ended(roster, number))
    (first,) = members.receipts(2)
    assert (number, roster.digest.hex(), (0, 1)) == (first.round, first.digest, first.shards)
    assert tuple(roster.shards_of(1)) == first.held
    members.end(ended(roster, number + 1))
    assert 2 == len(members.receipts(2))
    members.forget_receipts(2, [first])
    assert [number + 1] == [receipt.round for receipt in members.receipts(2)]
    assert 2 == len(members.receipts(1))


@pytest.mark.parametrize(("weights", "changes"), [({0: 5}, False), ({0: 6}, True), ({2: 1}, True)])
def test_new_weights_begin_an_epoch(weights: Mapping[int, int], changes: bool) -> None:
    """Shifts are of one set of weights; plain rounds without shifts do not care."""
    members = ShardMembers(plan(conceal=False, masks="own", one_in=2))
    joined(members, [1, 2, 3])
    roster, _ = members.begin([1, 2, 3])
    assert 12.0 == members.weigh({0: 5, 1: 7})
    assert roster.digest == members.begin([1, 2, 3])[0].digest
    members.weigh(weights)
    assert changes == (roster.digest != members.begin([1, 2, 3])[0].digest)
    assert ShardMembers(plan()).weigh({0: 5}) is None


def test_lost_keys_are_asked_for_again() -> None:
    """A node that lost its key has not joined, until it does so with a new one."""
    members = ShardMembers(plan())
    joined(members, [1, 2, 3])
    before, _ = members.begin([1, 2, 3])
    members.forget(2)
    assert [True, False] == [members.has(node) for node in (1, 2)]
    joined(members, [2])
    after, _ = members.begin([1, 2, 3])
    assert members.has(2)
    assert before.seed != after.seed
