"""The finding index of one tenant: segments on the disk, and a tail in memory, behind its feed.

A process answers from the segments that the manifest names and from its own tail, which it reads
from the feed in the request's transaction. So processes and machines need no messages, and none
answers from a past state. A tail that has grown becomes a segment, and segments are merged; whoever
does that has the folder alone, and the others take up the new manifest when they come to it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from app.fingerprints.finding.merging import first_to_merge, merge, merged
from app.fingerprints.finding.records import Damaged, Feed, Sizes
from app.fingerprints.finding.segment_store import NOTHING_STORED, SegmentStore, Stored
from app.fingerprints.finding.segments import Segment, segment_of
from app.fingerprints.finding.snapshot import Snapshot, retired
from app.infra.deadlines import Deadline
from app.infra.errors import Unavailable

__all__ = ["RETRY_DELAY_S", "TAIL_ENTRIES", "TenantIndex"]

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

TAIL_ENTRIES: Final = 1 << 20
"""Entries of a tail that becomes a segment: those of 1,500 fingerprints, 13 MB."""
_ALIKE: Final = 4
"""Segments of one size on the disk that become one."""
RETRY_DELAY_S: Final = 60.0
"""Seconds after a failed write during which no other write is tried."""
_MOST_OPENINGS: Final = 5
"""Manifests that are tried while another process replaces them."""

_EMPTY: Final = Snapshot(0, 0, (), ())

log = logging.getLogger(__name__)


class TenantIndex:
    """The growing index of a tenant, in one process.

    Args:
        store: its folder, which other processes may share.
        tail_entries: the entries from which on the tail becomes a segment.
        retry_delay: seconds after a failed write during which no other write is tried.
    """

    def __init__(
        self,
        store: SegmentStore,
        *,
        tail_entries: int = TAIL_ENTRIES,
        retry_delay: float = RETRY_DELAY_S,
    ) -> None:
        self._store = store
        self._retry_delay = retry_delay
        self._tail_entries = tail_entries
        self._lock = threading.RLock()
        self._stored = NOTHING_STORED
        self._refused: Stored | None = None
        self._least = 0
        self._base = 0
        self._frozen = 0
        self._starts = 0
        self._snapshot = _EMPTY
        self._failed_at: float | None = None

    def snapshot_at(
        self, feed: Feed, deadline: Deadline, on_growth: Callable[[], None] = lambda: None
    ) -> Snapshot:
        """A snapshot at the feed's version or a later one; an index that is behind follows it.

        Args:
            on_growth: called where the tail has grown so much that :meth:`tidy` should be called.

        Raises:
            Unavailable: there was no time to build the index; what is built stays.
        """
        version = feed.version
        if self._snapshot.is_at(version):
            return self._snapshot
        if not self._lock.acquire(timeout=min(deadline.left(), threading.TIMEOUT_MAX)):
            raise Unavailable("the finding index is being built by another request: try again")
        try:
            if not self.adopt(version) and not self._snapshot.version:
                raise Unavailable("the finding index is being built by another process: try again")
            while not self._snapshot.is_at(version):
                self._follow(feed, version, deadline)
            snapshot = self._snapshot
        finally:
            self._lock.release()
        if self.is_untidy:
            on_growth()
        return snapshot

    def tidy(self) -> bool:
        """Write a tail that has grown as a segment, and merge segments; False if it cannot be now.

        Another process may be doing it, or the disk may be full: answers are right nevertheless.
        """
        if self._failed_at is not None and time.monotonic() < self._failed_at + self._retry_delay:
            return False
        try:
            with self._store.changing() as alone:
                self.adopt(max(self._snapshot.version, self._snapshot.needed))
                if alone and self._has_what_is_stored():
                    self._write_tail()
                    while self._merge_some():
                        pass
        except Damaged as error:
            log.warning("%s: the finding index of a tenant is built again", error)
            self.start_again()
            return False
        except OSError as error:
            if self._failed_at is None:
                log.warning(
                    "the finding index of a tenant cannot be written (%s): it is kept in memory, "
                    "and answers go on",
                    error.strerror,
                )
            self._failed_at = time.monotonic()
            return False
        if alone and self._failed_at is not None:
            self._failed_at = None
            log.info("the finding index of a tenant is written again")
        return alone

    def start_again(self) -> None:
        """Forget what is stored, which is damaged or of another database, and build it again."""
        with self._lock:
            self._refused = self._stored if self._stored.names else None
            try:
                with self._store.changing() as alone:
                    if alone and self._store.read() == self._stored:
                        self._store.discard()
            except OSError as error:
                log.warning("a damaged finding index cannot be deleted: %s", error.strerror)
            self._reset()

    def adopt(self, version: int | None = None) -> bool:
        """Take up what another process has stored: what it replaced takes room until then.

        Args:
            version: that of the feed as it is known here, by default that of the index.

        Returns:
            False if it is being built from a later state of the feed, so that it could not be
            completed here.
        """
        with self._lock:
            stored, known = self._store.read(), self._snapshot.version
            if stored in (self._stored, self._refused) or not self._is_later(stored):
                return True
            if stored.needed > (known if version is None else version):
                return False
            self._adopt(stored)
            return True

    @property
    def is_untidy(self) -> bool:
        """Whether :meth:`tidy` should be called: the tail has grown, or a write has failed."""
        return self.entries[1] >= self._tail_entries or self._failed_at is not None

    def __len__(self) -> int:
        return sum(int(np.count_nonzero(each)) for each in self._snapshot.alive)

    @property
    def sizes(self) -> Sizes:
        """How large it is, and how far it is."""
        now = self._snapshot
        nbytes = sum(segment.nbytes for segment in now.segments)
        return Sizes(now.version, len(self), len(now.segments), nbytes)

    @property
    def entries(self) -> tuple[int, int]:
        """The entries of the segments on the disk, and of the tail."""
        sizes = [segment.entries for segment in self._snapshot.segments]
        on_disk = len(self._stored.names)
        return sum(sizes[:on_disk]), sum(sizes[on_disk:])

    # --- following the feed -------------------------------------------------------------------

    def _follow(self, feed: Feed, version: int, deadline: Deadline) -> None:
        """Follow the feed to its version, or to where the index had to start again meanwhile."""
        if 0 < self._snapshot.version < feed.compacted_version:
            self._least = feed.compacted_version
            self._reset()
        since, starts = self._snapshot.version, self._starts
        if version < self._snapshot.needed:
            raise Unavailable("the finding index is being built by another request: try again")
        if since:
            self._append(segment_of((), feed.removed_since(since)), since, version)
        else:
            self._base = version
        for page in feed.changed_since(since):
            self._append(segment_of(page), max(each.version for each in page), version)
            if deadline.passed():
                raise Unavailable(
                    "the finding index is being built, and goes on from here at the next request: "
                    "try again"
                )
            if self.entries[1] >= self._tail_entries and not self._frozen:
                self.tidy()
            if self._starts != starts:
                return
        self._append(segment_of(()), version, version)

    def _append(self, new: Segment, version: int, needed: int) -> None:
        """Take a segment into the tail, and merge what is alike in size there."""
        now = self._snapshot
        changed = np.concatenate([new.members["id"], new.removed])
        segments = list(now.segments)
        alive = list(retired(now.segments, now.alive, changed))
        if new.members.size or new.removed.size:
            segments.append(new)
            alive.append(np.ones(new.members.size, np.bool_))
        fixed = len(self._stored.names) + self._frozen
        sizes = [segment.entries for segment in segments[fixed:]]
        first = first_to_merge(sizes, [0] * len(sizes), alike=2)
        if first is not None:
            first += fixed
            gone = _removed(segments[first:])
            segments[first:] = [merge(segments[first:], alive[first:], gone)]
            alive[first:] = [np.ones(segments[-1].members.size, np.bool_)]
        self._snapshot = Snapshot(version, needed, tuple(segments), tuple(alive))

    def _reset(self) -> None:
        """Start with nothing; snapshots that are asked keep their segments."""
        self._starts += 1
        self._stored, self._frozen, self._base = NOTHING_STORED, 0, 0
        self._snapshot = _EMPTY

    # --- the folder ---------------------------------------------------------------------------

    def _adopt(self, stored: Stored) -> None:
        """Take up what another process has stored, and keep the tail that goes on from there."""
        for _ in range(_MOST_OPENINGS):
            known = dict(zip(self._stored.names, self._snapshot.segments, strict=False))
            try:
                opened = [known.get(name) or self._store.open(name) for name in stored.names]
            except Damaged as error:
                again = self._store.read()
                if again == stored:
                    log.warning("%s: the finding index of a tenant is built again", error)
                    self._refused = stored
                    return
                stored = again  # another process has merged it meanwhile
                continue
            break
        else:
            return
        before, first = self._snapshot, len(self._stored.names)
        if stored.version < self._base:  # what was removed until then is not known to the tail
            before, first = _EMPTY, 0
        tail, living = before.segments[first:], before.alive[first:]
        newer = [
            alive & (segment.members["version"] > stored.version)
            for segment, alive in zip(tail, living, strict=True)
        ]
        segments = [*opened, merge(tail, newer, _removed(tail))] if tail else opened
        self._starts += 1
        self._stored, self._frozen = stored, 0
        version = max(before.version, stored.version)
        needed = max(before.needed, stored.needed)
        self._snapshot = Snapshot(version, needed, tuple(segments), _alive(segments))

    def _has_what_is_stored(self) -> bool:
        """Whether what is stored is what this index goes on from.

        If another process found damage, or a compacted feed, and has begun again, so does this one.
        """
        with self._lock:
            stored = self._store.read()
            if stored == self._stored:
                return True
            is_lost = stored == self._refused or not self._is_later(stored)
            if is_lost and not self._stored.names:
                return True  # this index began again itself, and takes the place of what is there
            if is_lost:
                self._reset()
            return False

    def _is_later(self, stored: Stored) -> bool:
        return stored.version >= max(self._stored.version, self._least)

    def _write_tail(self) -> None:
        """Write the tail as a segment, if it has grown. The caller has the folder alone."""
        with self._lock:
            now, first = self._snapshot, len(self._stored.names)
            if sum(segment.entries for segment in now.segments[first:]) < self._tail_entries:
                return
            self._frozen = len(now.segments) - first
        self._replace(now, first, len(now.segments), (now.version, now.needed))

    def _merge_some(self) -> bool:
        """Merge the segments that are due; False if none are. The caller has the folder alone."""
        with self._lock:
            now, count = self._snapshot, len(self._stored.names)
        stored = now.segments[:count]
        dead = [
            segment.entries * int(alive.size - np.count_nonzero(alive)) // max(1, alive.size)
            for segment, alive in zip(stored, _alive(stored), strict=True)
        ]
        first = first_to_merge([segment.entries for segment in stored], dead, alike=_ALIKE)
        if first is None:
            return False
        self._replace(now, first, count, (self._stored.version, self._stored.needed))
        return True

    def _replace(self, now: Snapshot, first: int, end: int, reached: tuple[int, int]) -> None:
        """Write one segment in the place of some, which others go on to read meanwhile."""
        try:
            some = now.segments[first:end]
            gone = _held(now.segments[:first], _removed(some))
            # What only later segments say is left to them: these may not count for a reader.
            name = self._store.write(merged(some, _alive(some), gone))
            new = self._store.open(name)
        except BaseException:
            self._frozen = 0
            raise
        with self._lock:
            self._frozen = 0
            present = self._snapshot
            if present.segments[first:end] != some:
                return  # it started again meanwhile; what was written counts for nothing
            stored = Stored(*reached, (*self._stored.names[:first], name))
            self._store.publish(stored)
            self._stored = stored
            segments = (*present.segments[:first], new, *present.segments[end:])
            changed = np.concatenate([np.empty(0, np.int64), *map(_changed, segments[first + 1 :])])
            [living] = retired([new], [np.ones(new.members.size, np.bool_)], changed)
            living_now = (*present.alive[:first], living, *present.alive[end:])
            self._snapshot = replace(present, segments=segments, alive=living_now)


def _removed(segments: Sequence[Segment]) -> Ints:
    return np.unique(np.concatenate([np.empty(0, np.int64), *(each.removed for each in segments)]))


def _changed(segment: Segment) -> Ints:
    """The fingerprints of which earlier segments hold a past state, or one that is gone."""
    changed: Ints = np.concatenate([segment.members["id"], segment.removed])
    return changed


def _held(segments: Sequence[Segment], ids: Ints) -> Ints:
    """Those of some fingerprints that segments hold."""
    found = [each.members["id"][each.find(ids)] for each in segments]
    return np.unique(np.concatenate([np.empty(0, np.int64), *found]))


def _alive(segments: Sequence[Segment]) -> tuple[Flags, ...]:
    """The living members of segments, each of which is newer than those before it."""
    alive: tuple[Flags, ...] = ()
    for at, segment in enumerate(segments):
        alive = retired(segments[:at], alive, _changed(segment))
        alive = (*alive, np.ones(segment.members.size, np.bool_))
    return alive
