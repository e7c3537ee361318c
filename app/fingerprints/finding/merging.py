"""Merges of segments: one that holds what is alive in several, in little memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from app.fingerprints.finding.records import Keys
from app.fingerprints.finding.segments import LINES, MEMBER, Segment, from_arrays

__all__ = ["Merged", "first_to_merge", "merge", "merged"]

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Ordinals = npt.NDArray[np.uint32]

_PART: Final = 1 << 20
"""Entries that are sorted at a time: 12 MiB, and as much again while they are."""


@dataclass(frozen=True, eq=False)
class Merged:
    """The members of a merge, and its entries, which are read once.

    Attributes:
        members: of ``MEMBER``, by rank and id.
        lines: of ``LINES``.
        removed: the ids that are gone, and that earlier segments may hold.
        parts: the entries in order.
    """

    members: npt.NDArray[Any]
    lines: npt.NDArray[Any]
    removed: Ints
    parts: Iterator[tuple[Keys, Ordinals]]


def merge(segments: Sequence[Segment], alive: Sequence[Flags], removed: Ints) -> Segment:
    """A segment in memory of what is alive in several."""
    found = merged(segments, alive, removed)
    parts = [(np.empty(0, np.uint64), np.empty(0, np.uint32)), *found.parts]
    keys, ordinals = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return from_arrays(keys, ordinals, found.members, found.lines, found.removed)


def merged(segments: Sequence[Segment], alive: Sequence[Flags], removed: Ints) -> Merged:
    """What is alive in several segments, a part at a time.

    Args:
        alive: the living members of each.
        removed: the ids that the merge has to go on to name as gone.
    """
    living = [np.flatnonzero(each) for each in alive]
    members = np.concatenate(
        [np.empty(0, MEMBER), *(s.members[o] for s, o in zip(segments, living, strict=True))]
    )
    source = np.repeat(np.arange(len(segments)), [each.size for each in living])
    ordinal = np.concatenate([np.empty(0, np.int64), *living])
    order = np.lexsort((members["id"], members["rank"]))
    numbers = np.empty(order.size, np.int64)
    numbers[order] = np.arange(order.size)
    maps = []
    for at, segment in enumerate(segments):
        number = np.full(segment.members.size, -1, np.int64)
        number[living[at]] = numbers[source == at]
        maps.append(number)
    members = members[order]
    lines, members["lines_end"] = _lines(segments, source[order], ordinal[order])
    return Merged(members, lines, removed, _entries(segments, maps))


def first_to_merge(sizes: Sequence[int], dead: Sequence[int], *, alike: int) -> int | None:
    """The first of the newest segments that are merged into one; None if they are well as they are.

    Of each size there are fewer than ``alike``, and an entry is written again whenever the whole
    has grown by as much. Where most of a segment is dead, it is made anew with all later ones.

    Args:
        sizes: the entries of each segment, the oldest first.
        dead: how many of them are of fingerprints that changed since, or are gone.
        alike: 2 or more; fewer are looked through sooner, and more are written less often.
    """
    later = 0
    found = None
    for at in range(len(sizes) - 1, -1, -1):
        if (later and later >= (alike - 1) * sizes[at]) or (sizes[at] and 2 * dead[at] > sizes[at]):
            found = at
        later += sizes[at]
    return found


def _lines(
    segments: Sequence[Segment], source: Ints, ordinal: Ints
) -> tuple[npt.NDArray[Any], Ints]:
    """The lines of members in their new order, and where those of each end."""
    counts = np.zeros(source.size, np.int64)
    taken = []
    for at, segment in enumerate(segments):
        mine = np.flatnonzero(source == at)
        owner, lines = segment.lines_of(ordinal[mine])
        counts[mine] = np.bincount(owner, minlength=mine.size)
        taken.append((mine[owner], lines))
    owners = np.concatenate([np.empty(0, np.int64), *(each[0] for each in taken)])
    lines = np.concatenate([np.empty(0, LINES), *(each[1] for each in taken)])
    return lines[np.argsort(owners, kind="stable")], np.cumsum(counts)


def _entries(segments: Sequence[Segment], maps: Sequence[Ints]) -> Iterator[tuple[Keys, Ordinals]]:
    """The entries of several segments in order, with new ordinals; those of -1 are left out."""
    begin = [0] * len(segments)
    step = max(1, _PART // max(1, len(segments)))
    while True:
        left = [at for at, segment in enumerate(segments) if begin[at] < segment.entries]
        if not left:
            return
        # Each part ends with a whole key, so no key is in two parts.
        bound = min(_key_at(segments[at], begin[at] + step - 1) for at in left)
        keys, ordinals = list[Keys](), list[Ints]()
        for at in left:
            end = segments[at].end_of(bound)
            if end > begin[at]:
                some, numbers = segments[at].part(begin[at], end)
                number = maps[at][numbers]
                keys.append(some[number >= 0])
                ordinals.append(number[number >= 0])
                begin[at] = end
        key, ordinal = np.concatenate(keys), np.concatenate(ordinals)
        order = np.argsort(key, kind="stable")  # it merges what is sorted already
        yield _by_ordinal(key[order], ordinal[order])


def _by_ordinal(keys: Keys, ordinals: Ints) -> tuple[Keys, Ordinals]:
    """Sorted keys, with their holders in order: few keys have some in several segments."""
    same = keys[1:] == keys[:-1]
    wrong = np.flatnonzero(same & (ordinals[1:] < ordinals[:-1]))
    if wrong.size:
        run = np.concatenate([[0], np.cumsum(~same)])
        chosen = np.zeros(int(run[-1]) + 1, np.bool_)
        chosen[run[wrong]] = True
        places = np.flatnonzero(chosen[run])
        ordinals[places] = ordinals[places[np.lexsort((ordinals[places], run[places]))]]
    return keys, ordinals.astype(np.uint32)


def _key_at(segment: Segment, place: int) -> np.uint64:
    place = min(place, segment.entries - 1)
    keys, _ = segment.part(place, place + 1)
    return np.uint64(keys[0])
