"""A snapshot of a tenant's finding index: some segments, and what of them is alive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from app.fingerprints.finding.ranking import Chance
from app.fingerprints.finding.records import Keys
from app.fingerprints.finding.segments import Segment

__all__ = ["Holders", "Snapshot", "retired"]

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Holders:
    """Who holds some keys.

    Attributes:
        at: the place of the key among those that were looked up, shape ``(n,)``.
        slots: the slot of the holder of each.
        more: whether a key has more holders than are listed, a flag a key.
    """

    at: Ints
    slots: Ints
    more: Flags


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The index at one version of the feed. A slot is the number of a member of all segments.

    Attributes:
        needed: the version that it has to reach before it is asked: a later one while it is built.
        segments: the oldest first.
        alive: the living members of each. A fingerprint has one living member at most.
    """

    version: int
    needed: int
    segments: tuple[Segment, ...]
    alive: tuple[Flags, ...]

    @cached_property
    def _first(self) -> Ints:
        """The first slot of each segment, and the end of all."""
        return np.cumsum([0, *(segment.members.size for segment in self.segments)])

    @cached_property
    def _ranks(self) -> list[tuple[int, int]]:
        """The least and the greatest rank of each segment."""
        ranks = [segment.members["rank"] for segment in self.segments]
        return [(int(each[0]), int(each[-1])) if each.size else (0, 0) for each in ranks]

    @cached_property
    def _by_rank(self) -> list[int]:
        """The segments that have any members, the one with the least rank first."""
        some = [place for place, segment in enumerate(self.segments) if segment.members.size]
        return sorted(some, key=lambda place: self._ranks[place])

    def is_at(self, version: int) -> bool:
        """Whether it has all that a transaction sees at a version of the feed."""
        return self.version >= max(version, self.needed)

    def holders(self, keys: Keys, most: int) -> Holders:
        """The first holders of each key, by rank.

        Args:
            keys: distinct, ascending.
            most: how many are listed of a key.
        """
        more, asked = np.zeros(keys.size, np.bool_), np.arange(keys.size)
        at, slots = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        reached = -(1 << 63)
        for place in self._by_rank:
            segment, (least, last) = self.segments[place], self._ranks[place]
            if least > reached:  # none here comes before any so far, so these lists are full
                asked = asked[~more[asked]]
            hits = segment.holders(keys[asked], self.alive[place], most)
            more[asked[hits.more]] = True
            at.append(asked[hits.at])
            slots.append(self._first[place] + hits.ordinals)
            reached = max(reached, last)
        places, found = self._in_order(np.concatenate(at), np.concatenate(slots))
        counts = np.bincount(places, minlength=keys.size)
        nth = np.arange(places.size) - np.repeat(np.cumsum(counts) - counts, counts)
        return Holders(places[nth < most], found[nth < most], more | (counts > most))

    def _in_order(self, places: Ints, slots: Ints) -> tuple[Ints, Ints]:
        """Holders by the place of the key, and among those of a key by rank."""
        held = np.zeros(int(self._first[-1]), np.bool_)
        held[slots] = True
        distinct = np.flatnonzero(held)
        order = np.lexsort((distinct, self._of_members("rank", distinct)))
        number = np.empty(distinct.size, np.int64)
        number[order] = np.arange(distinct.size)
        # To sort words is much faster than to sort by two columns.
        words = np.sort(places << 32 | number[np.searchsorted(distinct, slots)])
        return words >> 32, distinct[order][words & 0xFFFFFFFF]

    def ids(self, slots: Ints) -> Ints:
        """The fingerprints of some slots."""
        return self._of_members("id", slots)

    def versions(self, slots: Ints) -> Ints:
        """The versions of the feed with the last changes of these fingerprints."""
        return self._of_members("version", slots)

    def scales(self, slots: Ints) -> Ints:
        """The binary logarithms of the scales of their finding keys."""
        return self._of_members("scale", slots)

    def lines_in_common(self, chance: Chance, slots: Ints) -> npt.NDArray[np.float64]:
        """How many lines strangers are expected to have in common with each, before any sample."""
        found = np.zeros(slots.size)
        for segment, mine, ordinals in self._by_segment(slots):
            owner, lines = segment.lines_of(ordinals)
            found[mine] = chance.lines_in_common(owner, lines, ordinals.size)
        return found

    def _of_members(self, field: str, slots: Ints) -> Ints:
        found = np.zeros(slots.size, np.int64)
        for segment, mine, ordinals in self._by_segment(slots):
            found[mine] = segment.members[field][ordinals]
        return found

    def _by_segment(self, slots: Ints) -> list[tuple[Segment, Ints, Ints]]:
        """The segments of some slots, with the places of those of each, and their ordinals."""
        source = np.searchsorted(self._first, slots, "right") - 1
        parts = []
        for at in np.unique(source).tolist():
            mine = np.flatnonzero(source == at)
            parts.append((self.segments[at], mine, slots[mine] - self._first[at]))
        return parts


def retired(segments: Sequence[Segment], alive: Sequence[Flags], ids: Ints) -> tuple[Flags, ...]:
    """The living members of segments, without those of fingerprints that changed or are gone."""
    left = list(alive)
    for at, segment in enumerate(segments):
        ordinals = segment.find(ids)
        ordinals = ordinals[left[at][ordinals]]
        if ordinals.size:
            left[at] = left[at].copy()  # a published snapshot may be reading the other
            left[at][ordinals] = False
    return tuple(left)
