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
_PART_OF_MEMBERS: Final = 1 << 17


@dataclass(frozen=True, eq=False)
class Merged:
    """The members of a merge, and its entries and lines, which are read once.

    Attributes:
        members: of ``MEMBER``, by rank and id.
        removed: the ids that are gone, and that earlier segments may hold.
        parts: the entries in order.
        lines: how many lines the members have, of ``LINES``.
        parts_of_lines: they, in the order of the members.
    """

    members: npt.NDArray[Any]
    removed: Ints
    parts: Iterator[tuple[Keys, Ordinals]]
    lines: int
    parts_of_lines: Iterator[npt.NDArray[Any]]


def merge(segments: Sequence[Segment], alive: Sequence[Flags], removed: Ints) -> Segment:
    """A segment in memory of what is alive in several."""
    found = merged(segments, alive, removed)
    parts = [(np.empty(0, np.uint64), np.empty(0, np.uint32)), *found.parts]
    keys, ordinals = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    lines = np.concatenate([np.empty(0, LINES), *found.parts_of_lines])
    return from_arrays(keys, ordinals, found.members, lines, found.removed)


def merged(segments: Sequence[Segment], alive: Sequence[Flags], removed: Ints) -> Merged:
    """What is alive in several segments, a part at a time.

    Args:
        alive: the living members of each.
        removed: the ids that the merge has to go on to name as gone.
    """
    living = [np.flatnonzero(each) for each in alive]
    ends = np.cumsum([0, *(each.size for each in living)])
    columns = [
        np.concatenate(
            [
                np.empty(0, np.int64),
                *(s.members[name][o] for s, o in zip(segments, living, strict=True)),
            ]
        )
        for name in ("id", "rank")
    ]
    order = np.lexsort(columns)
    del columns
    numbers = np.empty(order.size, np.int64)
    numbers[order] = np.arange(order.size)
    del order
    members = np.empty(numbers.size, MEMBER)
    source = np.empty(numbers.size, np.uint16)
    ordinal = np.empty(numbers.size, np.uint32)
    maps = []
    for at, (segment, mine) in enumerate(zip(segments, living, strict=True)):
        places = numbers[ends[at] : ends[at + 1]]
        source[places], ordinal[places] = at, mine
        for begin in range(0, mine.size, _PART_OF_MEMBERS):  # a copy of all would double them
            part = slice(begin, begin + _PART_OF_MEMBERS)
            members[places[part]] = segment.members[mine[part]]
            members["lines_end"][places[part]] = segment.counts_of_lines(mine[part])
        number = np.full(segment.members.size, -1, np.int32)
        number[mine] = places
        maps.append(number)
        if segment.give_back is not None:
            segment.give_back()
    members["lines_end"] = np.cumsum(members["lines_end"])
    return Merged(
        members,
        removed,
        _entries(segments, maps),
        int(members["lines_end"][-1]) if members.size else 0,
        _lines(segments, source, ordinal),
    )


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
    segments: Sequence[Segment], source: npt.NDArray[np.uint16], ordinal: Ordinals
) -> Iterator[npt.NDArray[Any]]:
    """The lines of members in their new order, those of some members at a time."""
    for begin in range(0, source.size, _PART_OF_MEMBERS):
        part = slice(begin, begin + _PART_OF_MEMBERS)
        owners, found = [np.empty(0, np.int64)], [np.empty(0, LINES)]
        for at, segment in enumerate(segments):
            mine = np.flatnonzero(source[part] == at)
            owner, lines = segment.lines_of(ordinal[part][mine].astype(np.int64))
            owners.append(mine[owner])
            found.append(lines)
        yield np.concatenate(found)[np.argsort(np.concatenate(owners), kind="stable")]


def _entries(
    segments: Sequence[Segment], maps: Sequence[npt.NDArray[np.int32]]
) -> Iterator[tuple[Keys, Ordinals]]:
    """The entries of several segments in order, with new ordinals; those of -1 are left out."""
    begin = [0] * len(segments)
    step = max(1, _PART // max(1, len(segments)))
    while True:
        left = [at for at, segment in enumerate(segments) if begin[at] < segment.entries]
        if not left:
            return
        # Each part ends with a whole key, so no key is in two parts.
        bound = min(_key_at(segments[at], begin[at] + step - 1) for at in left)
        keys, ordinals = list[Keys](), list[npt.NDArray[np.int32]]()
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


def _by_ordinal(keys: Keys, ordinals: npt.NDArray[np.int32]) -> tuple[Keys, Ordinals]:
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
