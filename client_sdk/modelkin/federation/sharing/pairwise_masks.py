"""Masks of pairs: a keystream that one member adds and the other subtracts, so that it cancels.

Each pair of neighbours on a ring agrees on a secret by its keys in the roster (X25519); no other
party can compute it. Each piece of each round has its own label, under which the secret becomes a
keystream (HKDF-SHA256, AES-128-CTR). A cell alone is uniform noise, and the sum of all cells is the
sum of all values.

Source: Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning",
2017; the ring of neighbours is of Bell et al., "Secure single-server aggregation with
(poly)logarithmic overhead", 2020.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from modelkin.errors import InvalidParameter
from modelkin.federation.shards.draws import draws
from modelkin.federation.shards.roster import Roster, Round
from modelkin.federation.sharing.sealing import (
    binding,
    load_private_key,
    load_public_key,
    primitives,
)
from modelkin.wire.cell import CellHeader, Kind, Sealing

__all__ = ["DEGREE", "add_keystream", "mask_label", "neighbors", "pair_secret"]

DEGREE: Final = 32
"""The neighbours of a member, unless there are fewer members."""

_STEP: Final = 1 << 16
"""Words of a keystream at a time: they stay in the second-level cache."""

_ZEROS: Final = bytes(4 * _STEP)

Words = npt.NDArray[np.uint32]


def neighbors(places: Sequence[int], seed: int, degree: int = DEGREE) -> dict[int, tuple[int, ...]]:
    """The neighbours of each member: all other members, or the nearest on a ring in a drawn order.

    Args:
        places: the numbers of the members that take part, distinct.
        seed: 0 to 2^64 - 1; members with the same seed know the same ring.
        degree: how many neighbours a member of a larger set has; even.

    Returns:
        The neighbours of each place, ascending; two members are always neighbours of each other.
    """
    count = len(places)
    if count <= degree + 1:
        return {place: tuple(sorted(set(places) - {place})) for place in places}
    keys = draws(seed, max(places) + 1)
    ring = sorted(places, key=lambda place: int(keys[place]))
    steps = [step for step in range(-(degree // 2), degree // 2 + 1) if step]
    return {
        place: tuple(sorted(ring[(at + step) % count] for step in steps))
        for at, place in enumerate(ring)
    }


def pair_secret(private_key: bytes, public_key: bytes) -> bytes:
    """Compute the secret of two parties, 32 bytes (X25519).

    Raises:
        InvalidParameter: the public key is of no private key.
    """
    try:
        secret: bytes = load_private_key(private_key).exchange(load_public_key(public_key))
    except ValueError as error:
        message = "no secret can be shared with this public key"
        raise InvalidParameter(message, field="public_key") from error
    return secret


def mask_label(
    roster: Roster, shard: int, piece: int, current: Round, group_secret: bytes | None
) -> bytes:
    """Return the label of the keystreams of a piece: never the same for two cells of a pair."""
    header = CellHeader(
        Kind.UINT32, Sealing.CLEAR, shard, piece, current.number, current.attempt, 0, 0, 0,
        roster.digest,
    )  # fmt: skip
    return b"mask" + current.digest + binding(header.pack(), group_secret)


def add_keystream(cell: Words, secret: bytes, label: bytes, *, subtract: bool) -> None:
    """Add the keystream of a pair to a cell modulo 2^32, in place, or subtract it.

    Args:
        cell: shape ``(n,)``; as one party adds and the other subtracts, the sum of both is as
            without.
        secret: the result of :func:`pair_secret`.
        label: the result of :func:`mask_label`, which is never used twice.
        subtract: one of the two parties.
    """
    primitives()
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    key = HKDF(SHA256(), 32, salt=None, info=label).derive(secret)
    stream = Cipher(algorithms.AES(key[:16]), modes.CTR(key[16:])).encryptor()
    buffer = bytearray(4 * _STEP + 16)
    apply = np.subtract if subtract else np.add
    for at in range(0, cell.size, _STEP):
        part = cell[at : at + _STEP]
        stream.update_into(memoryview(_ZEROS)[: 4 * part.size], buffer)
        apply(part, np.frombuffer(buffer, "<u4", part.size), out=part)
