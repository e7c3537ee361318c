"""Shifts: ``s = sum W_k s_k`` after any sequence of absences, losses, refusals and repeats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from modelkin.federation.shards.shifts import Shift, gamma
from modelkin.federation.shards.thinning import omega
from modelkin.federation.sharing import Aggregator, Member, Round
from tests.support.federations.sharing import Federation, fedavg, updates

MEMBERS, SIZE, SHARDS = 4, 24, 3
WEIGHTS = {0: 1.0, 1: 5.0, 2: 2.0, 3: 12.0}
TOTAL = sum(WEIGHTS.values())
SUBSETS = st.sets(st.integers(0, MEMBERS - 1), min_size=1)


class Shifts(RuleBasedStateMachine):
    """Rounds whose receipts come late, twice, or after a restart of the process."""

    def __init__(self) -> None:
        super().__init__()
        self.federation = Federation(
            MEMBERS,
            SIZE,
            shards=SHARDS,
            conceal=False,
            one_in=2,
            masks="own",
            min_members=1,
            piece_values=4,
        )
        self.number = 0
        self.owed: dict[Member | Aggregator, list[tuple[int, tuple[int, ...]]]] = {}
        self.largest = 1.0

    def deliver(self, party: Member | Aggregator) -> None:
        for number, counted in self.owed.pop(party, []):
            party.settle(number, counted)
            # A shift that has been large keeps the rounding of that time, also when it is small.
            shifts = values_of(party.state()).values()
            self.largest = max(self.largest, *(float(np.abs(each).max()) for each in shifts), 0.0)

    @rule(
        present=SUBSETS,
        refused=st.sets(st.integers(0, MEMBERS - 1), max_size=2),
        lost=st.sets(st.integers(0, SHARDS - 1)),
        scale=st.sampled_from([1e-3, 1.0, 100.0]),
        repeated=st.booleans(),
    )
    def average(
        self, present: set[int], refused: set[int], lost: set[int], scale: float, repeated: bool
    ) -> None:
        """A round: some absent, some refused by an aggregator, some shards lost at the end."""
        self.number += 1
        federation = self.federation
        current = Round(
            self.number, {at: WEIGHTS[at] for at in sorted(present)}, roster_total=TOTAL
        )
        vectors = dict(enumerate(updates(MEMBERS, SIZE, scale)))
        for at in present:
            self.deliver(federation.members[at])
        box = federation.cells(vectors, current)
        for aggregator in federation.aggregators.values():
            self.deliver(aggregator)
        left = {at: w for at, w in current.weights.items() if at not in refused}
        counts = Round(self.number, left, roster_total=TOTAL) if left else current
        if left:
            for _ in range(1 + repeated):
                federation.combine(box, current)
                federation.combine(box, counts)
        done = tuple(a for a in range(SHARDS) if a not in lost) if left else ()
        for at in present:
            self.owe(federation.members[at], done if at in left else ())
        for aggregator in federation.aggregators.values():
            self.owe(aggregator, done)

    def owe(self, party: Member | Aggregator, done: tuple[int, ...]) -> None:
        self.owed.setdefault(party, []).append((self.number, done))

    @rule(twice=st.booleans())
    def deliver_all(self, twice: bool) -> None:
        """Each party has its receipts, some of them twice."""
        for party, receipts in list(self.owed.items()):
            self.deliver(party)
            if twice:
                for number, counted in receipts:
                    party.settle(number, counted)

    @rule(at=st.integers(0, MEMBERS - 1))
    def restart_member(self, at: int) -> None:
        """Its process ends, and another goes on from the arrays that it kept."""
        federation = self.federation
        old = federation.members[at]
        new = Member(federation.roster, at, federation.keys[at])
        new.restore(old.state())
        federation.members[at] = new
        if old in self.owed:
            self.owed[new] = self.owed.pop(old)

    @rule(shard=st.integers(0, SHARDS - 1))
    def restart_aggregator(self, shard: int) -> None:
        """Likewise."""
        federation = self.federation
        (at,) = federation.roster.holders(shard)
        old = federation.aggregators[at]
        new = Aggregator(federation.roster, at, federation.keys[at])
        new.restore(old.state())
        federation.aggregators[at] = new
        if old in self.owed:
            self.owed[new] = self.owed.pop(old)

    @invariant()
    def the_shift_is_the_members_mean(self) -> None:
        """Wherever all receipts are delivered."""
        if not self.owed:
            check_shifts(self.federation, self.largest)

    def teardown(self) -> None:
        for party in list(self.owed):
            self.deliver(party)
        check_shifts(self.federation, self.largest)


def values_of(arrays: dict[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in arrays.items() if name.endswith("/values")}


def check_shifts(federation: Federation, largest: float) -> None:
    """``s = sum W_k s_k`` to 1e-6 of the largest shift so far, for every piece of every shard."""
    members = [values_of(member.state()) for member in federation.members]
    for aggregator in federation.aggregators.values():
        for name, s in values_of(aggregator.state()).items():
            of_members = [m.get(name, np.zeros_like(s)) for m in members]
            wanted = fedavg(of_members, WEIGHTS.values())
            assert np.abs(s - wanted).max() <= 1e-6 * largest


TestShifts = Shifts.TestCase
pytest.mark.slow(TestShifts)
TestShifts.settings = settings(max_examples=40, stateful_step_count=15)


def test_gamma_is_soteriafls() -> None:
    """1 without compression is .707; it falls with the variance."""
    assert 0.5**0.5 == pytest.approx(gamma(0.0))
    assert ((1 + 6) / (2 * 4**3)) ** 0.5 == pytest.approx(gamma(omega(4)))
    assert gamma(omega(16)) < gamma(omega(4))


def test_a_step_waits_for_its_own_receipt() -> None:
    """Receipts of other rounds, repeated or refused ones change nothing."""
    shift = Shift.zeros(3)
    shift.propose(5, np.array([2.0], np.float32), np.array([1]))
    shift.settle(4, counted=True)
    assert [0, 0, 0] == shift.values.tolist()
    shift.settle(5, counted=True)
    shift.settle(5, counted=True)
    assert [0, 2, 0] == shift.values.tolist()
    shift.propose(6, np.ones(3, np.float32))
    again = Shift.restore(shift.state())
    again.settle(6, counted=False)
    again.settle(6, counted=True)
    assert [0, 2, 0] == again.values.tolist()
    shift.settle(6, counted=True)
    assert [1, 3, 1] == shift.values.tolist()


@pytest.mark.slow
def test_shifts_end_the_error_of_differing_members() -> None:
    """Members whose updates stay what they are: with shifts the estimate converges to the mean.

    Without, each round's error stays as large as the members differ.
    """
    federation = Federation(4, 600, shards=2, conceal=False, one_in=8, masks="own")
    vectors = dict(enumerate(updates(4, 600)))
    wanted = fedavg(vectors.values(), WEIGHTS.values())
    errors = []
    for number in range(1, 161):
        current = Round(number, WEIGHTS, roster_total=TOTAL)
        found = federation.combine(federation.cells(vectors, current), current)
        errors.append(float(np.abs(federation.assembled(found, current) - wanted).mean()))
        for member in federation.members:
            member.settle(number, range(2))
        for aggregator in federation.aggregators.values():
            aggregator.settle(number, range(2))
    assert np.mean(errors[-10:]) < 0.1 * errors[0]
