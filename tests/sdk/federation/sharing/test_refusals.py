"""Bad cells: each is named with its reason, and the others' result is exact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from modelkin.errors import InvalidParameter
from modelkin.federation.shards.roster import Roster, Round
from modelkin.federation.sharing import Member, new_key
from modelkin.federation.sharing.pairwise_masks import pair_secret
from modelkin.federation.sharing.sealing import binding, seal
from modelkin.wire import CellHeader, Kind, Sealing, decode_cell, encode_cell
from tests.support.federations.sharing import Federation, fedavg, updates

LIAR = 1


def resealed(
    federation: Federation,
    cell: bytes,
    holder: int,
    payload: bytes | None = None,
    **changes: Any,
) -> bytes:
    """A cell of the same member with other values or another header, properly sealed."""
    header: CellHeader = replace(decode_cell(cell)[0], **changes)
    size = replace(header, sealing=Sealing.CLEAR).payload_bytes
    key = federation.roster.parties[holder].public_key
    data = bytes(size) if payload is None else payload
    return encode_cell(header, seal(data, key, binding(header.pack(), None)))


Forgery = Callable[[Federation, bytes, int], bytes]
NAN = np.float32(np.nan).tobytes()


@pytest.mark.parametrize(
    ("forge", "says"),
    [
        (lambda f, cell, at: cell[:-1], "bytes"),
        (lambda f, cell, at: cell[:-9] + b"\0" * 9, "CRC"),
        (lambda f, cell, at: b"", "ends after 0 bytes"),
        (lambda f, cell, at: resealed(f, cell, at, shard=2), "shard is 2"),
        (lambda f, cell, at: resealed(f, cell, at, piece=1), "piece is 1"),
        (lambda f, cell, at: resealed(f, cell, at, round=7), "round is 7"),
        (lambda f, cell, at: resealed(f, cell, at, attempt=1), "attempt is 1"),
        (lambda f, cell, at: resealed(f, cell, at, place=0), "place is 0"),
        (lambda f, cell, at: resealed(f, cell, at, digest=bytes(32)), "digest is 0000"),
        (lambda f, cell, at: resealed(f, cell, at, count=5), "count is 5"),
        (lambda f, cell, at: resealed(f, cell, at, kind=Kind.UINT32), "kind is 2"),
        (lambda f, cell, at: resealed(f, cell, at, payload=NAN * 10), "not finite"),
        (
            lambda f, cell, at: encode_cell(decode_cell(cell)[0], bytes(88)),
            "does not open",
        ),
        (
            lambda f, cell, at: encode_cell(
                replace(decode_cell(cell)[0], sealing=Sealing.CLEAR), bytes(40)
            ),
            "sealing is 0",
        ),
    ],
)
def test_a_bad_cell_is_named(forge: Forgery, says: str) -> None:
    """The member is refused with the reason; without it the rest average exactly."""
    federation = Federation(5, 30, shards=3, conceal=False)
    vectors = dict(enumerate(updates(5, 30)))
    weights = {at: 1.0 + at for at in range(5)}
    current = federation.round(vectors, weights)
    box = federation.cells(vectors, current)
    ((_, _, holder), cells) = next(item for item in box.items() if item[0][0] == 0)
    cells[LIAR] = forge(federation, cells[LIAR], holder)
    first = federation.combine(box, current)
    assert {LIAR: True} == {
        place: says in why for place, why in first[0, 0, holder].refused.items()
    }
    assert first[0, 0, holder].values is None
    left = {at: weight for at, weight in weights.items() if at != LIAR}
    rest = Round(1, left)
    again = federation.assembled(federation.combine(box, rest), rest)
    wanted = fedavg([vectors[at] for at in left], left.values()).astype(np.float32)
    assert np.array_equal(wanted, again)


def test_rounded_values_beyond_float32_are_named() -> None:
    """A scale that is finite by itself, and whose values are not."""
    federation = Federation(4, 600, shards=2, conceal=False, quantize="int8")
    vectors = dict(enumerate(updates(4, 600)))
    current = federation.round(vectors, dict.fromkeys(range(4), 1.0))
    box = federation.cells(vectors, current)
    (_, _, holder), cells = next(iter(box.items()))
    size = decode_cell(cells[LIAR])[0].count
    scales = np.full(-(-size // 512), np.finfo(np.float32).max, np.float32)
    payload = np.full(size, 127, np.int8).tobytes() + scales.tobytes()
    cells[LIAR] = resealed(federation, cells[LIAR], holder, payload)
    found = next(iter(federation.combine(box, current).values()))
    assert [LIAR] == list(found.refused)
    assert "not finite" in found.refused[LIAR]


@pytest.mark.parametrize(
    ("where", "size"), [("values", 300), ("check words", 300), ("check words", 2)]
)
def test_a_false_concealed_cell_always_shows(where: str, size: int) -> None:
    """Sealed properly, with the right length: the masks do not cancel, and every name is given.

    Noise in the values of a large shard cannot pass for a sum; noise in the check words never can.
    """
    federation = Federation(4, size, shards=1)
    vectors = dict(enumerate(updates(4, size)))
    current = federation.round(vectors, dict.fromkeys(range(4), 1.0))
    box = federation.cells(vectors, current)
    ((key, cells),) = box.items()
    noise = np.random.default_rng(3).integers(0, 2**32, size + 4, dtype=np.uint32)
    if where == "check words":
        noise[:size] = 0
    cells[LIAR] = resealed(federation, cells[LIAR], key[2], noise.astype("<u4").tobytes())
    found = federation.combine(box, current)[key]
    assert found.values is None
    assert not found.refused
    assert found.failed is not None
    assert all(f"m{at}" in found.failed for at in range(4))


def test_cells_of_another_set_never_sum() -> None:
    """A member that was asked to mask for other members than the rest spoils the sum visibly."""
    federation = Federation(5, 40, shards=1)
    vectors = dict(enumerate(updates(5, 40)))
    current = federation.round(vectors, dict.fromkeys(range(5), 1.0))
    box = federation.cells(vectors, current)
    ((key, cells),) = box.items()
    fewer = Round(1, dict.fromkeys(range(4), 1.0), peak=current.peak)
    asked = Member(federation.roster, 0, federation.keys[0])
    cells[0] = next(asked.cells(vectors[0], fewer)).data
    assert federation.combine(box, current)[key].values is None


def test_the_group_secret_keeps_strangers_out() -> None:
    """The cells of a member that a server seats do not open without the group's secret."""
    federation = Federation(4, 30, shards=1, conceal=False, group_secret=b"known to members")
    vectors = dict(enumerate(updates(4, 30)))
    current = federation.round(vectors, dict.fromkeys(range(4), 1.0))
    box = federation.cells(vectors, current)
    ((key, cells),) = box.items()
    stranger = Member(federation.roster, 0, federation.keys[0], group_secret=b"guessed by others")
    cells[0] = next(stranger.cells(vectors[0], current)).data
    assert [0] == list(federation.combine(box, current)[key].refused)


def test_cells_of_another_roster_do_not_count() -> None:
    """A cell that is sealed for an earlier epoch names the digest that differs."""
    federation = Federation(4, 30, shards=1, conceal=False)
    vectors = dict(enumerate(updates(4, 30)))
    current = federation.round(vectors, dict.fromkeys(range(4), 1.0))
    box = federation.cells(vectors, current)
    ((key, cells),) = box.items()
    earlier = Roster(federation.roster.plan, federation.roster.parties, 1)
    cells[2] = next(Member(earlier, 2, federation.keys[2]).cells(vectors[2], current)).data
    assert "digest" in federation.combine(box, current)[key].refused[2]


def test_results_of_small_sets_are_never_computed() -> None:
    """Below min_members an aggregator refuses, whatever it is asked for."""
    federation = Federation(4, 30, shards=1, conceal=False)
    vectors = dict(enumerate(updates(4, 30)))
    current = federation.round(vectors, dict.fromkeys(range(4), 1.0))
    ((key, cells),) = federation.cells(vectors, current).items()
    aggregator = federation.aggregators[key[2]]
    with pytest.raises(ValueError, match="min_members=3"):
        aggregator.combine(0, 0, cells, Round(1, {0: 1.0, 1: 1.0}))


def test_a_public_key_of_low_order_is_refused() -> None:
    """A party whose key is zero cannot make others use a secret that all parties know."""
    with pytest.raises(InvalidParameter):
        seal(b"data", bytes(32), b"")
    with pytest.raises(InvalidParameter):
        pair_secret(new_key(), bytes(32))
