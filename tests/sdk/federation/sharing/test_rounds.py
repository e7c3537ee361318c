"""Rounds of members and aggregators: the average, exact for every cut, and nothing else."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkin.errors import InvalidCell, InvalidParameter
from modelkin.federation.shards.fixed_point import FixedPoint
from modelkin.federation.shards.thinning import Thinning
from modelkin.federation.sharing import Aggregator, Member, Round, SentCell, open_result
from modelkin.federation.sharing.sealing import unseal
from modelkin.wire import Kind, decode_cell
from tests.support.federations.sharing import Federation, fedavg, updates


@pytest.mark.slow
@given(
    st.integers(1, 60),
    st.integers(1, 6),
    st.lists(st.integers(1, 2**30), min_size=6, max_size=6),
    st.data(),
)
@settings(max_examples=40)
def test_the_mean_has_the_same_bits_for_every_cut(
    size: int, members: int, weights: list[int], data: st.DataObject
) -> None:
    """FedAvg in float64, rounded once, whatever A and the pieces are."""
    vectors = dict(enumerate(updates(members, size)))
    shares = dict(enumerate(map(float, weights[:members])))
    shards = data.draw(st.integers(1, min(members, size)))
    federation = Federation(
        members,
        size,
        shards=shards,
        conceal=False,
        min_members=1,
        piece_values=data.draw(st.integers(1, 20)),
    )
    wanted = fedavg(vectors.values(), shares.values()).astype(np.float32)
    assert np.array_equal(wanted, federation.average(vectors, shares))


def test_many_shards_have_the_same_bits() -> None:
    """A = 1, 2, 7 and 20, of 20 members with their own weights; near FedAvg of float32 too."""
    vectors = dict(enumerate(updates(20, 4810)))
    weights = {at: 10.0 + at for at in range(20)}
    wanted = fedavg(vectors.values(), weights.values())
    for shards in (1, 2, 7, 20):
        found = Federation(20, 4810, shards=shards, conceal=False).average(vectors, weights)
        assert np.array_equal(wanted.astype(np.float32), found)
    total = np.float32(sum(weights.values()))
    plain = sum(np.float32(weights[at]) / total * vectors[at] for at in range(20))
    assert np.abs(plain - found).max() < 1e-6


@given(st.integers(3, 8), st.integers(8, 60), st.floats(1e-6, 1e6), st.data())
@settings(max_examples=25)
def test_concealed_means_are_the_plain_ones(
    members: int, size: int, scale: float, data: st.DataObject
) -> None:
    """Within n steps of 2^-F, and float32's own rounding."""
    vectors = dict(enumerate(updates(members, size, scale)))
    weights = {at: float(data.draw(st.integers(1, 1000))) for at in range(members)}
    federation = Federation(
        members, size, shards=data.draw(st.integers(1, members)), piece_values=16
    )
    current = federation.round(vectors, weights)
    assert current.peak is not None
    wanted = fedavg(vectors.values(), weights.values())
    allowed = members * FixedPoint(current.peak).unit + np.abs(wanted) * 2.0**-23
    assert (np.abs(federation.average(vectors, weights) - wanted) <= allowed).all()


def test_a_large_group_masks_on_a_ring() -> None:
    """Forty members have 32 neighbours each, and the masks cancel."""
    vectors = dict(enumerate(updates(40, 50)))
    weights = {at: 1.0 + at for at in range(40)}
    found = Federation(40, 50, shards=3).average(vectors, weights)
    assert np.abs(found - fedavg(vectors.values(), weights.values())).max() < 40 * 2.0**-30


@pytest.mark.parametrize("conceal", [True, False])
def test_one_mask_averages_the_kept_values(conceal: bool) -> None:
    """All members send the same one in c; the rest of the update is zero."""
    vectors = dict(enumerate(updates(4, 1000)))
    weights = {at: 1.0 + at for at in range(4)}
    federation = Federation(4, 1000, shards=3, one_in=8, conceal=conceal, piece_values=64)
    found = federation.average(vectors, weights)
    kept = np.flatnonzero(found)
    assert abs(kept.size - 125) <= 3
    wanted = 8 * fedavg(vectors.values(), weights.values())
    assert np.abs(found[kept] - wanted[kept]).max() < 1e-6


def test_rounded_cells_are_a_quarter() -> None:
    """int8 takes a byte a value, and the mean is near the plain one."""
    vectors = dict(enumerate(updates(5, 20_000)))
    weights = dict.fromkeys(range(5), 1.0)
    federation = Federation(5, 20_000, shards=2, conceal=False, quantize="int8")
    current = federation.round(vectors, weights)
    box = federation.cells(vectors, current)
    assert sum(len(cell) for cells in box.values() for cell in cells.values()) < 5 * 20_000 * 1.03
    found = federation.assembled(federation.combine(box, current), current)
    step = 0.05 * 4.5 / 127
    assert np.abs(found - fedavg(vectors.values(), weights.values())).max() < step
    assert not np.array_equal(found, federation.average(vectors, weights))


@pytest.mark.parametrize("rule", ["median", "trimmed_mean"])
def test_a_robust_rule_shards_exactly(rule: str) -> None:
    """One shard or four give the same, and a liar moves it little."""
    vectors = dict(enumerate([np.full(200, 1e6, np.float32), *updates(5, 200)]))
    weights = dict.fromkeys(range(6), 1.0)
    one, four = (
        Federation(6, 200, shards=shards, conceal=False, rule=rule).average(vectors, weights)
        for shards in (1, 4)
    )
    assert np.array_equal(one, four)
    assert np.abs(one).max() < 1


def test_replicas_agree_to_the_bit() -> None:
    """Two holders of a shard have equal results, plain and concealed."""
    for conceal in (True, False):
        federation = Federation(4, 100, shards=3, replicas=2, conceal=conceal)
        vectors = dict(enumerate(updates(4, 100)))
        current = federation.round(vectors, dict.fromkeys(range(4), 1.0))
        found = federation.combine(federation.cells(vectors, current), current)
        for shard in range(3):
            first, second = (found[shard, 0, holder] for holder in federation.roster.holders(shard))
            assert np.array_equal(first.values, second.values)  # type: ignore[arg-type]


def test_a_cell_opens_for_its_holder_alone() -> None:
    """No other party opens it, and r aggregators hold r/A of a member's coordinates."""
    federation = Federation(6, 600, shards=4, conceal=False)
    vectors = dict(enumerate(updates(6, 600)))
    current = federation.round(vectors, dict.fromkeys(range(6), 1.0))
    box = federation.cells(vectors, current)
    seen = dict.fromkeys(range(6), 0)
    for (_, _, holder), cells in box.items():
        header, payload = decode_cell(cells[0])
        info = b"modelkin cell 1" + header.pack() + hashlib.sha256(b"").digest()
        for place, key in enumerate(federation.keys):
            try:
                seen[place] += len(unseal(payload, key, info)) // 4
                assert place == holder
            except InvalidCell:
                assert place != holder
    assert [150, 150, 150, 150, 0, 0] == sorted(seen.values(), reverse=True)


def concealed_cell(seed: int = 0) -> tuple[Federation, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """What an aggregator sees of member 0, and the values in it."""
    federation = Federation(3, 40_000, shards=1)
    vectors = dict(enumerate(updates(3, 40_000)))
    current = federation.round(vectors, dict.fromkeys(range(3), 1.0))
    ((_, _, holder),) = box = federation.cells(vectors, current)
    header, payload = decode_cell(box[0, 0, holder][0])
    assert Kind.UINT32 is header.kind
    info = b"modelkin cell 1" + header.pack() + hashlib.sha256(b"").digest()
    opened = np.frombuffer(unseal(payload, federation.keys[holder], info), "<u4")
    return federation, opened[:40_000], vectors[0]


def test_a_concealed_cell_is_noise() -> None:
    """To its aggregator it is uniform over 2^32, and uncorrelated with its values."""
    _, words, values = concealed_cell()
    counts = np.bincount(words >> 24, minlength=256)
    expected = words.size / 256
    assert ((counts - expected) ** 2 / expected).sum() < 350  # one in 25,000
    correlation = np.corrcoef(words.view(np.int32).astype(float), values)[0, 1]
    assert abs(correlation) < 4.5 / np.sqrt(words.size)


def test_members_conceal_an_update_once() -> None:
    """For one set of members, for a second one after losses, and for no third."""
    federation = Federation(5, 50, shards=2)
    vectors = dict(enumerate(updates(5, 50)))
    current = federation.round(vectors, dict.fromkeys(range(5), 1.0))
    member = federation.members[0]
    first = [cell.data for cell in member.cells(vectors[0], current)]
    assert len(first) == len([*member.cells(vectors[0], current)])
    fewer = Round(1, dict.fromkeys(range(4), 1.0), peak=current.peak)
    heavier = Round(1, {**current.weights, 0: 2.0}, peak=current.peak)
    for wrong in (fewer, heavier, current.without([1]).without([2])):
        with pytest.raises(InvalidParameter) as raised:
            next(member.cells(vectors[0], wrong))
        assert "round" == raised.value.field
    second = current.without([1])
    assert [*member.cells(vectors[0], second)]
    with pytest.raises(InvalidParameter):
        next(member.cells(vectors[0], current))
    again = Member(federation.roster, 0, federation.keys[0])
    again.restore(member.state())
    with pytest.raises(InvalidParameter):
        next(again.cells(vectors[0], current))
    assert [*again.cells(vectors[0], Round(2, dict(current.weights), peak=current.peak))]


def test_a_lost_member_costs_a_second_attempt() -> None:
    """Masks of the first attempt are in no cell of the second, whose sum is exact."""
    federation = Federation(5, 300, shards=3)
    vectors = dict(enumerate(updates(5, 300)))
    weights = {at: 1.0 + at for at in range(5)}
    current = federation.round(vectors, weights)
    box = federation.cells(vectors, current)
    for cells in box.values():
        del cells[2]
    found = federation.combine(box, current)
    assert {2} == {place for each in found.values() for place in each.refused}
    assert {None} == {each.values for each in found.values()}
    second = current.without([2])
    again = federation.combine(federation.cells(vectors, second), second)
    kept = [at for at in range(5) if at != 2]
    wanted = fedavg([vectors[at] for at in kept], [weights[at] for at in kept])
    assert np.abs(federation.assembled(again, second) - wanted).max() < 5 * 2.0**-30


def test_results_open_for_members_alone() -> None:
    """A result is sealed once for all members; another key, or another round, opens nothing."""
    federation = Federation(4, 100, shards=2, group_secret=b"0123456789abcdef")
    vectors = dict(enumerate(updates(4, 100)))
    current = federation.round(vectors, dict.fromkeys(range(4), 1.0))
    (shard, piece, holder), cells = next(iter(federation.cells(vectors, current).items()))
    aggregator: Aggregator = federation.aggregators[holder]
    values = aggregator.combine(shard, piece, cells, current).values
    assert values is not None
    sealed = aggregator.seal_result(shard, piece, values, current)

    def opened(place: int, key: bytes, secret: bytes, number: int = 1) -> Any:
        return open_result(
            federation.roster,
            place,
            key,
            sealed,
            shard=shard,
            piece=piece,
            current=Round(number, dict(current.weights), peak=current.peak),
            group_secret=secret,
        )

    for place, key in enumerate(federation.keys):
        assert np.array_equal(values, opened(place, key, b"0123456789abcdef"))
    for place, key, secret, number in (
        (0, federation.keys[1], b"0123456789abcdef", 1),
        (0, federation.keys[0], b"another secret !", 1),
        (0, federation.keys[0], b"0123456789abcdef", 2),
        (4, federation.keys[0], b"0123456789abcdef", 1),
    ):
        with pytest.raises(InvalidCell):
            opened(place, key, secret, number)


def test_pieces_can_be_sent_one_by_one() -> None:
    """A member that reads its update in stretches sends the same cells."""
    federation = Federation(3, 1000, shards=3, conceal=False, one_in=4, piece_values=32)
    vectors = updates(3, 1000)
    current = Round(1, dict.fromkeys(range(3), 1.0))
    whole = list(federation.members[0].cells(vectors[0], current))
    pieces: list[SentCell] = []
    for piece in range(federation.roster.plan.pieces):
        start, stop = federation.roster.plan.stretch(piece)
        part = vectors[0][start:stop]
        pieces += federation.members[0].piece_cells(part, piece, current)
    assert [(c.shard, c.piece, c.holder) for c in whole] == [
        (c.shard, c.piece, c.holder) for c in pieces
    ]
    assert [len(c.data) for c in whole] == [len(c.data) for c in pieces]


def test_kept_places_change_each_round() -> None:
    """Other rounds keep other values, and members with masks of their own others still."""
    federation = Federation(3, 1000, shards=1, conceal=False, one_in=4, masks="own")
    drawn: list[Thinning] = [
        federation.roster.thinning(0, 0, number, place) for number in (1, 2) for place in (0, 1)
    ]
    assert 4 == len({each.positions.tobytes() for each in drawn})


@pytest.mark.parametrize(
    ("vector", "says"),
    [
        (np.zeros(9, np.float32), "10 values"),
        (np.full(10, np.nan, np.float32), "value 0 is nan"),
        (np.full(10, np.inf), "value 0 is inf"),
        (np.zeros((2, 5), np.float32), "vector"),
        (np.zeros(10, bool), "vector"),
        (np.array(["a"] * 10), "vector"),
    ],
)
def test_updates_that_cannot_be_averaged(vector: Any, says: str) -> None:
    """The member refuses them itself, and says why."""
    federation = Federation(3, 10)
    current = Round(1, dict.fromkeys(range(3), 1.0), peak=1.0)
    with pytest.raises(InvalidParameter, match=says):
        next(federation.members[0].cells(vector, current))


def test_foreign_keys_and_places_are_refused() -> None:
    """A member and an aggregator know their own key, place and round."""
    federation = Federation(4, 10)
    roster, keys = federation.roster, federation.keys
    current = Round(1, {1: 1.0, 2: 1.0, 3: 1.0}, peak=1.0)
    spare = next(at for at in range(4) if at not in roster.seats)
    for wrong in (
        lambda: Member(roster, 0, keys[1]),
        lambda: Member(roster, 4, keys[1]),
        lambda: Member(roster, 0, b"short"),
        lambda: Member(roster, 0, keys[0], group_secret=b"short"),
        lambda: Aggregator(roster, 0, keys[1]),
        lambda: next(federation.members[0].cells(np.zeros(10), current)),
        lambda: Aggregator(roster, spare, keys[spare]).combine(0, 0, {}, current),
    ):
        with pytest.raises(InvalidParameter):
            wrong()
