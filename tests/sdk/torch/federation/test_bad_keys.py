"""Keys of ranks that cannot be: each rank names the one at fault, before a value is sent."""

from __future__ import annotations

import pytest

from modelkin.errors import InvalidParameter
from modelkin.federation.sharing import Party, Plan, Roster, new_key, public_key
from modelkin.torch.federation.cells import ConcealedCells
from tests.support.federations.low_order import LOW_ORDER_KEYS, same_secrets

KEYS = [new_key() for _ in range(3)]


def cells_with(bad: bytes) -> ConcealedCells:
    """The cells of rank 0 in a world whose last rank has a bad key."""
    keys = [*map(public_key, KEYS[:2]), bad]
    parties = tuple(Party(str(rank), key) for rank, key in enumerate(keys))
    return ConcealedCells(Roster(Plan(num_parameters=30, shards=3), parties), 0, KEYS[0])


def test_ranks_with_keys_of_low_order_are_named() -> None:
    """Each of the 14 encodings."""
    for key in LOW_ORDER_KEYS:
        with pytest.raises(InvalidParameter, match="rank 2: its public key is of low order"):
            cells_with(key)


def test_ranks_with_the_same_secrets_are_named() -> None:
    """A key that another rank has in another form."""
    twin = same_secrets(public_key(KEYS[1]))[1]
    with pytest.raises(InvalidParameter, match="public keys of '1' and '2' give the same secrets"):
        cells_with(twin)
    assert cells_with(public_key(KEYS[2]))
