"""Listings: who holds the keys of a query, and how many of them a stranger would."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from app.fingerprints.finding.ranking import Chance
from app.fingerprints.finding.records import Keys
from app.fingerprints.finding.snapshot import Snapshot
from app.fingerprints.finding_keys import coarse_end
from modelkin.core.fingerprints.arrays import kept
from modelkin.core.fingerprints.fingerprint import Fingerprint

__all__ = ["Listing", "Query", "found_by", "listed", "query_of"]

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

MOST_KEYS: Final = 2047
"""Keys that are looked up."""


@dataclass(frozen=True, eq=False)
class Query:
    """A fingerprint whose kin are looked for.

    Attributes:
        scale: the binary logarithm of the scale of ``keys``.
        lines: the distinct lines of each length in the whole checkpoint.
        keys: those that are looked up: each once, ascending.
    """

    scale: int
    lines: Mapping[int, int]
    keys: Keys


def query_of(fingerprint: Fingerprint) -> Query:
    """The query of a fingerprint, with more of its keys than others are found by.

    A small model keeps keys of a finer scale than a large one is found by. So the more of the large
    one's keys are looked up, the smaller a part of it is found: twice as many take twice the time.
    """
    keys, scale = fingerprint.distinct, fingerprint.scale
    while keys.size > MOST_KEYS:
        scale *= 2
        keys = keys[: kept(keys, scale)]
    return Query(scale.bit_length() - 1, dict(fingerprint.lines), keys)


def found_by(fingerprint: Fingerprint) -> Query:
    """A fingerprint with the keys that others find it by."""
    scale, keys = coarse_end(fingerprint)
    return Query(scale.bit_length() - 1, dict(fingerprint.lines), keys)


@dataclass(frozen=True, eq=False)
class Listing:
    """The listed holders of the keys of a query.

    Attributes:
        at: the place of the key of each, shape ``(n,)``.
        who: the number of the holder of each.
        ids: the fingerprint of each number, shape ``(m,)``.
        versions: that of the feed with its last change, of each; None where the index may be ahead
            of the transaction.
        expected: how many of the keys a stranger in the place of each would have.
        more: whether a key has more holders than are listed, a flag a key.
        answered: whether the holders of a key are known, a flag a key.
    """

    at: Ints
    who: Ints
    ids: Ints
    versions: Ints | None
    expected: npt.NDArray[np.float64]
    more: Flags
    answered: Flags


def listed(query: Query, snapshot: Snapshot, most: int, version: int) -> Listing:
    """The holders of keys by a snapshot.

    Args:
        most: how many are listed of a key.
        version: that of the feed, as the transaction sees it.
    """
    holders = snapshot.holders(query.keys, most)
    slots, who = np.unique(holders.slots, return_inverse=True)
    lines = snapshot.lines_in_common(Chance.of(query.lines), slots)
    scales = np.maximum(snapshot.scales(slots), query.scale)
    return Listing(
        holders.at,
        who,
        snapshot.ids(slots),
        snapshot.versions(slots) if snapshot.version == version else None,
        lines / np.exp2(scales),
        holders.more,
        np.ones(query.keys.size, np.bool_),
    )
