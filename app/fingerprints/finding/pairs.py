"""Pairs of fingerprints: what two of them have in common beyond chance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from app.fingerprints.finding.records import Keys
from modelkin.core.fingerprints.chance import log10_tail
from modelkin.core.fingerprints.comparison import chance

__all__ = ["HasKeys", "are_kin", "are_kin_by", "expected_keys"]


class HasKeys(Protocol):
    """A fingerprint's finding keys.

    Attributes:
        scale: the binary logarithm of their scale.
        lines: the distinct lines of each length in the whole checkpoint.
        keys: each once, ascending.
    """

    @property
    def scale(self) -> int: ...

    @property
    def lines(self) -> Mapping[int, int]: ...

    @property
    def keys(self) -> Keys: ...


def expected_keys(one: HasKeys, other: HasKeys) -> float:
    """How many common keys two strangers have at most."""
    expected, _ = chance(0, one.lines, other.lines, 1 << max(one.scale, other.scale))
    return expected


def are_kin(one: HasKeys, other: HasKeys, *, without: Keys, limit: float) -> bool:
    """Whether two have more keys in common than chance explains.

    Args:
        without: keys that do not count.
        limit: the decimal logarithm of the probability below which chance explains nothing.
    """
    common = np.intersect1d(one.keys, other.keys, assume_unique=True)
    count = int(np.isin(common, without, assume_unique=True, invert=True).sum())
    return log10_tail(count, expected_keys(one, other)) < limit


def are_kin_by(common: Keys, one: HasKeys, other: HasKeys, *, limit: float) -> bool:
    """Whether two have more keys in common than chance explains, and without some keys have not."""
    if not common.size or not are_kin(one, other, without=common[:0], limit=limit):
        return False
    return not are_kin(one, other, without=common, limit=limit)
