"""Rosters with keys that cannot be: the culprit is named, and the others average without it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from modelkin.errors import InvalidParameter
from modelkin.federation.sharing import (
    Aggregator,
    Member,
    Party,
    Plan,
    Roster,
    Round,
    assemble,
    new_key,
    open_result,
    public_key,
)
from tests.support.federations.low_order import LOW_ORDER_KEYS, same_secrets
from tests.support.federations.sharing import Floats, fedavg, updates

M, CULPRIT = 30, 3
VECTORS = updates(4, M)
KEYS = [new_key() for _ in range(4)]


def roster_with(bad: bytes, *, holds: bool = False, conceal: bool = True) -> Roster:
    """A roster that a service hands out: the last of four parties has a bad key."""
    parties = [Party(f"m{at}", public_key(key), not holds) for at, key in enumerate(KEYS)]
    parties[CULPRIT] = replace(parties[CULPRIT], public_key=bad, may_aggregate=holds)
    return Roster(Plan(num_parameters=M, shards=1, conceal=conceal), tuple(parties))


@pytest.mark.parametrize("conceal", [True, False])
@pytest.mark.parametrize("bad", LOW_ORDER_KEYS, ids=bytes.hex)
def test_the_others_average_without_a_key_of_low_order(bad: bytes, conceal: bool) -> None:
    """Members send, the aggregator names the culprit alone, and the second attempt is exact."""
    roster = roster_with(bad, conceal=conceal)
    (seat,) = roster.seats
    everybody = Round(1, dict.fromkeys(range(4), 1.0), peak=1.0)
    aggregator = Aggregator(roster, seat, KEYS[seat])
    honest = {at: Member(roster, at, KEYS[at]) for at in range(3)}
    cells = {at: next(iter(m.cells(VECTORS[at], everybody))).data for at, m in honest.items()}
    found = aggregator.combine(0, 0, cells, everybody)
    assert [CULPRIT] == list(found.refused)
    assert "of low order" in found.refused[CULPRIT]
    rest = everybody.without(found.refused)
    cells = {at: next(iter(m.cells(VECTORS[at], rest))).data for at, m in honest.items()}
    combined = aggregator.combine(0, 0, cells, rest)
    assert combined.values is not None, combined
    sealed = aggregator.seal_result(0, 0, combined.values, rest)
    result = open_result(roster, 0, KEYS[0], sealed, shard=0, piece=0, current=rest)
    average: Floats = assemble(roster, rest, {0: {0: result}})
    wanted = fedavg(VECTORS[:3], [1.0] * 3)
    np.testing.assert_allclose(average, wanted, atol=1e-7)


def test_an_aggregator_of_low_order_is_named() -> None:
    """Nobody can seal a cell to it, and no other can take its shard: the error names it."""
    roster = roster_with(LOW_ORDER_KEYS[0], holds=True)
    with pytest.raises(InvalidParameter, match=r"'m3' holds a shard, and .* of low order"):
        Member(roster, 0, KEYS[0])


@pytest.mark.parametrize("at", [0, 1])
def test_keys_with_the_same_secrets_are_named(at: int) -> None:
    """The masks of a third member for the two would cancel; it sends nothing, and names both."""
    roster = roster_with(same_secrets(public_key(KEYS[1]))[at])
    for kind in (Member, Aggregator):
        with pytest.raises(InvalidParameter, match="public keys of 'm1' and 'm3' give the same"):
            kind(roster, 2, KEYS[2])
