"""Common keys: those of tables that models embed which have nothing else in common.

Word vectors, or a layer that is drawn from one seed and stays frozen, make no kin. They are told by
who has them: three models or more, of which no two have anything else in common. A copy or a light
fine-tune has little of its own, so it is none of three; and where a base is known that others took
whole, its keys come from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from app.fingerprints.finding.pairs import HasKeys
from app.fingerprints.finding.ranking import log10_bounds
from app.fingerprints.finding.records import Keys
from modelkin.core.fingerprints.chance import collision_probability
from modelkin.core.fingerprints.comparison import MODEL_LIMIT, OVERDISPERSION

__all__ = ["common_keys"]

Flags = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

NOTHING_ELSE: Final = -3.0
"""The decimal logarithm of the probability from which on chance explains what else two have."""
OWN_SHARE: Final = 1 / 3
"""The least part of a model's keys that are its own, for it to be one of three."""
OWN_KEYS: Final = 32
"""How many these are at least: with fewer it cannot be said that there is nothing else."""
_MOST_TRIALS: Final = 16
"""Groups of keys that are tried at one scale."""


def common_keys(query: HasKeys, others: Sequence[HasKeys], asked: Flags) -> Flags:
    """Which keys of a fingerprint are common, by those of its candidates.

    Three fingerprints are compared at the coarsest of their scales, so each scale is tried with all
    that have none coarser.

    Args:
        asked: the keys in question, a flag a key.
    """
    common = np.zeros(query.keys.size, np.bool_)
    for scale in sorted({max(query.scale, each.scale) for each in others}):
        some = [each for each in others if each.scale <= scale]
        if len(some) >= 2:
            common |= _at(scale, query, some, asked & ~common)
    return common


def _at(scale: int, query: HasKeys, others: Sequence[HasKeys], asked: Flags) -> Flags:
    """The common keys by those whose scales are no coarser than one."""
    found = np.zeros(query.keys.size, np.bool_)
    end = np.searchsorted(query.keys, np.uint64((2**64 - 1) >> scale), "right")
    table = _Table(scale, [query.keys[:end][asked[:end]], *(each.keys for each in others)])
    table.expect([query, *others])
    while (group := table.group()) is not None:
        table.leave(group)
        found |= np.isin(query.keys, table.keys[group])
        # Keys beyond the scale are common, too, where a finer model has nothing else below it.
        for number in np.flatnonzero(table.has_only(group)).tolist():
            found |= np.isin(query.keys, others[number - 1].keys)
    return found & asked


class _Table:
    """Which fingerprint has which key at one scale. The first is the one in question.

    Of the keys that one has alone it is only known how many there are: no two have them in common.

    Attributes:
        keys: those that two have or more, ascending.
    """

    def __init__(self, scale: int, keys: Sequence[Keys]) -> None:
        last = np.uint64((2**64 - 1) >> scale)
        cut = [each[: np.searchsorted(each, last, "right")] for each in keys]
        held = np.concatenate(cut)
        order = np.argsort(held)
        ordered = held[order]
        begins = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: ordered.size])
        holders = np.diff(begins, append=ordered.size)
        several = holders > 1
        self.keys = ordered[begins[several]]
        owner = np.repeat(np.arange(len(cut)), [each.size for each in cut])[order]
        column = np.repeat(np.cumsum(several) - 1, holders)
        kept = np.repeat(several, holders)
        self._has = np.zeros((len(cut), self.keys.size), np.float32)
        self._has[owner[kept], column[kept]] = 1
        self._alone = np.bincount(owner[~kept], minlength=len(cut))
        self._scale = scale
        self._expected = np.zeros((len(cut), len(cut)))

    def expect(self, models: Sequence[HasKeys]) -> None:
        """Note the lines of all, from which follows what chance explains."""
        lengths = sorted({length for each in models for length in each.lines})
        counts = np.array([[each.lines.get(length, 0) for length in lengths] for each in models])
        chances = np.array([collision_probability(length) for length in lengths])
        lines = counts.astype(np.float64)
        self._expected = OVERDISPERSION * (lines * chances) @ lines.T / 2.0**self._scale

    def group(self) -> Flags | None:
        """The largest group of keys that three have who have nothing else; None if there is none.

        A flag a key.
        """
        shared = self._has @ self._has.T
        of_first = self._has[:, self._has[0] > 0]
        of_three = of_first @ of_first.T
        first, expected = shared[0], self._expected
        alone = ~self._beyond(first[:, None] - of_three, expected[0][:, None])
        alone &= alone.T
        alone &= ~self._beyond(shared - of_three, expected)
        alone &= self._beyond(of_three, expected, MODEL_LIMIT)
        alone &= np.tri(len(shared), k=-1, dtype=np.bool_)
        alone[:, 0] = False
        second, third = np.nonzero(alone)
        order = np.argsort(-of_three[second, third], kind="stable")[:_MOST_TRIALS]
        for b, c in zip(second[order].tolist(), third[order].tolist(), strict=True):
            group: Flags = (self._has[0] * self._has[b] * self._has[c]) > 0
            if self._is_common(group):
                return group
        return None

    def leave(self, group: Flags) -> None:
        """Leave keys aside from now on."""
        self._left = self._has[:, group].sum(axis=1)
        self._has[:, group] = 0

    def has_only(self, group: Flags) -> Flags:
        """Who has nothing of the first but keys that were left aside just now."""
        besides = self._has @ self._has[0]
        only: Flags = ~self._beyond(besides, self._expected[0])
        only &= 2 * self._left >= group.sum()
        only[0] = False
        return only

    def _is_common(self, group: Flags) -> bool:
        """Whether those who have these keys are in three parts that have nothing else in common.

        Whoever has most of them counts, so that kin of two of three are seen.
        """
        held = self._has[:, group].sum(axis=1)
        holders = np.flatnonzero(2 * held >= group.sum())
        sizes = self._has[holders].sum(axis=1) + self._alone[holders]
        if (sizes - held[holders] < np.maximum(OWN_SHARE * sizes, OWN_KEYS)).any():
            return False
        besides = self._has[np.ix_(holders, np.flatnonzero(~group))]
        linked = self._beyond(besides @ besides.T, self._expected[np.ix_(holders, holders)])
        return _parts(linked) >= 3

    def _beyond(
        self, counts: npt.NDArray[np.floating], expected: Floats, limit: float = NOTHING_ELSE
    ) -> Flags:
        whole = counts.astype(np.int64)
        found: Flags = log10_bounds(whole, np.broadcast_to(expected, whole.shape)) < limit
        return found


def _parts(linked: Flags) -> int:
    """How many parts a graph has that no link joins."""
    labels = np.arange(len(linked))
    linked = linked | np.eye(len(linked), dtype=np.bool_)
    while True:
        least = np.where(linked, labels[None, :], len(linked)).min(axis=1)
        if (least == labels).all():
            return int(np.unique(labels).size)
        labels = least
