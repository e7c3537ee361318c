"""Segments: the finding keys of some fingerprints, sorted, with who holds each.

An entry is a key and an ordinal, the place of its fingerprint among those of the segment. Entries
are sorted by both, and fingerprints by rank, so the holders of a key that are to be listed first
come first. Entries lie in blocks of a page; a directory has the first key of each. So a key that is
looked up touches one page or two, in memory and in a mapped file alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from app.fingerprints.finding.records import Changed, Damaged, Keys

__all__ = ["BLOCK", "BLOCK_ENTRIES", "LINES", "MEMBER", "Hits", "Segment", "segment_of"]

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Table = npt.NDArray[Any]

BLOCK_ENTRIES: Final = 340
BLOCK: Final = np.dtype(
    [
        ("keys", "<u8", BLOCK_ENTRIES),
        ("ordinals", "<u4", BLOCK_ENTRIES),
        ("place", "<u8"),
        ("sum", "<u8"),
    ]
)
"""A page of 4,096 bytes. Behind the last entry its keys are the greatest there can be."""
MEMBER: Final = np.dtype(
    [("id", "<i8"), ("rank", "<i8"), ("version", "<i8"), ("lines_end", "<i8"), ("scale", "<i8")]
)
"""A fingerprint of a segment. ``lines_end`` is where its lines end, and those of the next begin;
``scale`` is a binary logarithm."""
LINES: Final = np.dtype([("length", "<u4"), ("count", "<f4")])
"""How many lines of a length a fingerprint has; so many digits of a count suffice for chance."""
_KEYS_AT_A_TIME: Final = 128
"""Keys after which a large file gives its memory back: with each block that is read the kernel maps
what lies around it, half a megabyte at times."""
_BLOCK_WORDS: Final = BLOCK.itemsize // 8
_MOST_STEPS: Final = BLOCK_ENTRIES.bit_length()


@dataclass(frozen=True, slots=True)
class Hits:
    """The living holders of keys in one segment.

    Attributes:
        at: the place of the key among those that were looked up, ascending, shape ``(n,)``.
        ordinals: the holder of each, ascending among those of a key.
        more: whether a key has more holders than were asked for, a flag a key.
    """

    at: Ints
    ordinals: Ints
    more: Flags


@dataclass(frozen=True, eq=False)
class Segment:
    """Sorted entries of some fingerprints. Its arrays never change.

    Attributes:
        entries: how many there are.
        blocks: they, of ``BLOCK``.
        directory: the first key of each block.
        members: the fingerprints, of ``MEMBER``, by rank and id.
        lines: those of all members, of ``LINES``.
        by_id: the ordinals of the members by their ids.
        removed: ids of fingerprints that earlier segments may hold and that are gone, ascending.
        verify: a function that checks the blocks of these places before they are believed.
        expect: a function that has blocks from one place to another be read soon.
        give_back: a function that gives the memory of what was read back; None where it is small.
    """

    entries: int
    blocks: Table
    directory: Keys
    members: Table
    lines: Table
    by_id: npt.NDArray[np.uint32]
    removed: Ints
    verify: Callable[[Ints], None] = lambda _: None
    expect: Callable[[int, int], None] = lambda _, __: None
    give_back: Callable[[], None] | None = None

    @property
    def nbytes(self) -> int:
        """The bytes of its arrays, on the disk or in memory."""
        arrays = self.blocks, self.directory, self.members, self.lines, self.by_id, self.removed
        return sum(each.nbytes for each in arrays)

    @cached_property
    def ids(self) -> Ints:
        """The ids of the members, ascending."""
        ids: Ints = self.members["id"][self.by_id]
        return ids

    def find(self, ids: Ints) -> Ints:
        """The ordinals of the members among some fingerprints, in any order."""
        if not self.ids.size:
            return np.empty(0, np.int64)
        places = np.minimum(np.searchsorted(self.ids, ids), self.ids.size - 1)
        found: Ints = self.by_id[places[self.ids[places] == ids]].astype(np.int64)
        return found

    def holders(self, keys: Keys, alive: Flags, most: int) -> Hits:
        """The first living holders of each key.

        Args:
            keys: distinct, ascending.
            alive: whether each member is its fingerprint's present state.
            most: how many holders of a key are returned; others are left out.
        """
        if self.give_back is None:
            return self._holders(keys, alive, most)
        at, ordinals, more = [np.empty(0, np.int64)], [np.empty(0, np.int64)], list[Flags]()
        for begin in range(0, keys.size, _KEYS_AT_A_TIME):
            hits = self._holders(keys[begin : begin + _KEYS_AT_A_TIME], alive, most)
            at.append(hits.at + begin)
            ordinals.append(hits.ordinals)
            more.append(hits.more)
            self.give_back()
        none = np.empty(0, np.bool_)
        return Hits(np.concatenate(at), np.concatenate(ordinals), np.concatenate([none, *more]))

    def _holders(self, keys: Keys, alive: Flags, most: int) -> Hits:
        more = np.zeros(keys.size, np.bool_)
        found_at, found = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        begin = self._lower_bounds(keys)
        held = np.flatnonzero(self._keys_at(begin) == keys) if self.entries else found[0]
        width = most + 1
        while held.size:
            places = begin[held, None] + np.arange(width)
            self._verify_up_to(places[:, 0], places[:, -1])
            places = np.minimum(places, self.entries)
            same = self._keys_at(np.minimum(places, self.entries - 1)) == keys[held, None]
            same &= places < self.entries
            row, column = np.nonzero(same)
            ordinals = self._ordinals_at(places[row, column])
            living = alive[ordinals]
            if not living.all():
                row, ordinals = row[living], ordinals[living]
            counts = np.bincount(row, minlength=held.size)
            # A run of mostly dead entries is read on, until enough living ones are found.
            short = same[:, -1] & (counts <= most)
            nth = np.arange(row.size) - np.repeat(np.cumsum(counts) - counts, counts)
            kept = (nth < most) & ~short[row]
            found_at.append(held[row[kept]])
            found.append(ordinals[kept])
            more[held[counts > most]] = True
            held, width = held[short], 8 * width
        if len(found) == 2:
            return Hits(found_at[1], found[1], more)
        at, holders = np.concatenate(found_at), np.concatenate(found)
        order = np.argsort(at, kind="stable")
        return Hits(at[order], holders[order], more)

    def counts_of_lines(self, ordinals: Ints) -> Ints:
        """How many lines some members have, of ``LINES``."""
        counts: Ints = self.members["lines_end"][ordinals] - self._first_lines(ordinals)
        return counts

    def lines_of(self, ordinals: Ints) -> tuple[Ints, Table]:
        """The lines of some members: the place of the member in ``ordinals``, and the lines."""
        begin, counts = self._first_lines(ordinals), self.counts_of_lines(ordinals)
        owner = np.repeat(np.arange(ordinals.size), counts)
        nth = np.arange(owner.size) - np.repeat(np.cumsum(counts) - counts, counts)
        return owner, self.lines[begin[owner] + nth]

    def _first_lines(self, ordinals: Ints) -> Ints:
        ends = self.members["lines_end"]
        return np.where(ordinals > 0, ends[np.maximum(ordinals, 1) - 1], 0)

    def part(self, begin: int, end: int) -> tuple[Keys, npt.NDArray[np.uint32]]:
        """The keys and ordinals of the entries of a range."""
        first, last = begin // BLOCK_ENTRIES, -(-end // BLOCK_ENTRIES)
        self.expect(first, last)
        self.verify(np.arange(first, last))
        cut = slice(begin - first * BLOCK_ENTRIES, end - first * BLOCK_ENTRIES)
        blocks = self.blocks[first:last]
        keys, ordinals = blocks["keys"].ravel()[cut], blocks["ordinals"].ravel()[cut]
        if ordinals.size and int(ordinals.max()) >= self.members.size:
            raise Damaged("an entry names a fingerprint that the segment does not have")
        if self.give_back is not None:
            self.give_back()
        return keys, ordinals

    def end_of(self, key: np.uint64) -> int:
        """The place behind the last entry of a key, or of those before it."""
        block = int(np.searchsorted(self.directory, key, "right")) - 1
        if block < 0:
            return 0
        self.verify(np.array([block]))
        inside = int(np.searchsorted(self.blocks["keys"][block], key, "right"))
        return min(block * BLOCK_ENTRIES + inside, self.entries)

    def _lower_bounds(self, keys: Keys) -> Ints:
        """The place of the first entry of each key, or of those behind it."""
        if not self.entries:
            return np.zeros(keys.size, np.int64)
        block = np.maximum(np.searchsorted(self.directory, keys, "left") - 1, 0)
        self.verify(block)
        first = block * _BLOCK_WORDS
        low, high = np.zeros(keys.size, np.int64), np.full(keys.size, BLOCK_ENTRIES)
        for _ in range(_MOST_STEPS):
            middle = (low + high) >> 1
            # A place that is found already is behind the block at most, where a word is no key.
            less = (self._words[first + middle] < keys) & (low < high)
            low = np.where(less, middle + 1, low)
            high = np.where(less, high, middle)
        places: Ints = np.minimum(block * BLOCK_ENTRIES + low, self.entries)
        last = places[places < self.entries]
        self.verify(last // BLOCK_ENTRIES)
        return places

    def _verify_up_to(self, first: Ints, last: Ints) -> None:
        """Verify the blocks of ranges of places."""
        begin, end = first // BLOCK_ENTRIES, np.minimum(last, self.entries - 1) // BLOCK_ENTRIES
        for further in range(int((end - begin).max(initial=0)) + 1):
            self.verify(np.minimum(begin + further, end))

    @cached_property
    def _words(self) -> Keys:
        """The blocks as words: first the keys of a block, then its ordinals by two."""
        return self.blocks.view("<u8")

    @cached_property
    def _halves(self) -> npt.NDArray[np.uint32]:
        return self.blocks.view("<u4")

    def _keys_at(self, places: Ints) -> Keys:
        """The keys at places, whose blocks are verified; beyond the last, that of the last."""
        places = np.minimum(places, self.entries - 1)
        found: Keys = self._words[places + places // BLOCK_ENTRIES * (_BLOCK_WORDS - BLOCK_ENTRIES)]
        return found

    def _ordinals_at(self, places: Ints) -> Ints:
        block = places // BLOCK_ENTRIES
        halves = places + block * (2 * _BLOCK_WORDS - BLOCK_ENTRIES) + 2 * BLOCK_ENTRIES
        found: Ints = self._halves[halves].astype(np.int64)
        if found.size and int(found.max()) >= self.members.size:
            raise Damaged("an entry names a fingerprint that the segment does not have")
        return found


def segment_of(changed: Sequence[Changed], removed: Iterable[int] = ()) -> Segment:
    """A segment in memory of fingerprints that changed, each once, and of ids that are gone."""
    ordered = sorted(changed, key=lambda each: (each.rank, each.id))
    members = np.zeros(len(ordered), MEMBER)
    members["id"] = [each.id for each in ordered]
    members["rank"] = [each.rank for each in ordered]
    members["version"] = [each.version for each in ordered]
    members["scale"] = [each.scale for each in ordered]
    members["lines_end"] = np.cumsum([len(each.lines) for each in ordered], dtype=np.int64)
    lines = np.array([pair for each in ordered for pair in each.lines.items()], LINES)
    sizes = [each.keys.size for each in ordered]
    keys = np.concatenate([np.empty(0, np.uint64), *(each.keys for each in ordered)])
    ordinals = np.repeat(np.arange(len(ordered), dtype=np.uint32), sizes)
    order = np.argsort(keys, kind="stable")
    return from_arrays(keys[order], ordinals[order], members, lines, np.array([*removed], np.int64))


def from_arrays(
    keys: Keys, ordinals: npt.NDArray[np.uint32], members: Table, lines: Table, removed: Ints
) -> Segment:
    """A segment in memory of sorted entries."""
    blocks = blocks_of(keys, ordinals)
    by_id = np.argsort(members["id"], kind="stable").astype(np.uint32)
    directory = blocks["keys"][:, 0].copy()
    return Segment(
        keys.size, blocks, directory, members, lines, by_id, np.unique(removed).astype(np.int64)
    )


def blocks_of(keys: Keys, ordinals: npt.NDArray[np.uint32]) -> Table:
    """Sorted entries in blocks, the last of which may not be full."""
    full = -(-keys.size // BLOCK_ENTRIES) * BLOCK_ENTRIES
    blocks = np.zeros(full // BLOCK_ENTRIES, BLOCK)
    filled = np.full(full, np.iinfo(np.uint64).max)
    filled[: keys.size] = keys
    blocks["keys"] = filled.reshape(-1, BLOCK_ENTRIES)
    numbers = np.zeros(full, np.uint32)
    numbers[: keys.size] = ordinals
    blocks["ordinals"] = numbers.reshape(-1, BLOCK_ENTRIES)
    return blocks
