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
from typing import Final

import numpy as np
import numpy.typing as npt

from app.fingerprints.finding.merging import first_to_merge, merge, merged
from app.fingerprints.finding.records import Feed
from app.fingerprints.finding.segment_file import Damaged
from app.fingerprints.finding.segment_store import NOTHING_STORED, SegmentStore, Stored
from app.fingerprints.finding.segments import Segment, segment_of
from app.fingerprints.finding.snapshot import Snapshot, retired
from app.infra.deadlines import Deadline
from app.infra.errors import Unavailable

__all__ = ["TAIL_ENTRIES", "TenantIndex"]

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

TAIL_ENTRIES: Final = 1 << 20
"""Entries of a tail that becomes a segment: those of 1,500 fingerprints, 13 MB."""
_RETRY_DELAY_S: Final = 60.0
"""Seconds after a failed write during which no other write is tried."""
_MOST_OPENINGS: Final = 5
"""Manifests that are tried while another process replaces them."""

log = logging.getLogger(__name__)


class TenantIndex:
    """The growing index of a tenant, in one process.

    Args:
        store: its folder, which other processes may share.
        tail_entries: the entries from which on the tail becomes a segment.
    """

    def __init__(self, store: SegmentStore, *, tail_entries: int = TAIL_ENTRIES) -> None:
        self._store = store
        self._tail_entries = tail_entries
        self._lock = threading.RLock()
        self._stored = NOTHING_STORED
        self._refused: Stored | None = None
        self._least = 0
        self._frozen = 0
        self._snapshot = Snapshot(0, (), ())
        self._failed_at: float | None = None
        self._adopt(store.read())

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
        if self._snapshot.version >= version:
            return self._snapshot
        if not self._lock.acquire(timeout=min(deadline.left(), threading.TIMEOUT_MAX)):
            raise Unavailable("the finding index is being built by another request: try again")
        try:
            if self._snapshot.version < version:
                self._follow(feed, version, deadline)
            snapshot = self._snapshot
        finally:
            self._lock.release()
        if self._is_untidy():
            on_growth()
        return snapshot

    def tidy(self) -> bool:
        """Write a tail that has grown as a segment, and merge segments; False if it cannot be now.

        Another process may be doing it, or the disk may be full: answers are right nevertheless.
        """
        if self._failed_at is not None and time.monotonic() < self._failed_at + _RETRY_DELAY_S:
            return False
        try:
            with self._store.changing() as alone:
                self._adopt_newer()
                if alone:
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
            self._refused = self._stored
            try:
                with self._store.changing() as alone:
                    if alone and self._store.read() == self._stored:
                        self._store.discard()
            except OSError as error:
                log.warning("a damaged finding index cannot be deleted: %s", error.strerror)
            self._reset()

    def __len__(self) -> int:
        return sum(int(np.count_nonzero(each)) for each in self._snapshot.alive)

    @property
    def entries(self) -> tuple[int, int]:
        """The entries of the segments on the disk, and of the tail."""
        sizes = [segment.entries for segment in self._snapshot.segments]
        on_disk = len(self._stored.names)
        return sum(sizes[:on_disk]), sum(sizes[on_disk:])

    # --- following the feed -------------------------------------------------------------------

    def _follow(self, feed: Feed, version: int, deadline: Deadline) -> None:
        self._adopt_newer()
        since = self._snapshot.version
        if since >= version:
            return
        if 0 < since < feed.compacted_version:
            self._least = feed.compacted_version
            self._reset()
            since = 0
        if since:
            self._append(segment_of((), feed.removed_since(since)), since)
        for page in feed.changed_since(since):
            self._append(segment_of(page), max(each.version for each in page))
            if deadline.passed():
                raise Unavailable(
                    "the finding index is being built, and goes on from here at the next request: "
                    "try again"
                )
            if self.entries[1] >= self._tail_entries and not self._frozen:
                self.tidy()
        self._append(segment_of(()), version)

    def _append(self, new: Segment, version: int) -> None:
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
        first = first_to_merge(sizes, [0] * len(sizes))
        if first is not None:
            first += fixed
            gone = _removed(segments[first:])
            segments[first:] = [merge(segments[first:], alive[first:], gone)]
            alive[first:] = [np.ones(segments[-1].members.size, np.bool_)]
        self._snapshot = Snapshot(version, tuple(segments), tuple(alive))

    def _reset(self) -> None:
        self._stored, self._frozen, self._snapshot = NOTHING_STORED, 0, Snapshot(0, (), ())

    # --- the folder ---------------------------------------------------------------------------

    def _adopt_newer(self) -> None:
        with self._lock:
            stored = self._store.read()
            is_other = stored not in (self._stored, self._refused)
            if is_other and stored.version >= max(self._stored.version, self._least):
                self._adopt(stored)

    def _adopt(self, stored: Stored) -> None:
        """Take up what another process has stored, and keep the tail that is newer."""
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
        tail, living = before.segments[first:], before.alive[first:]
        newer = [
            alive & (segment.members["version"] > stored.version)
            for segment, alive in zip(tail, living, strict=True)
        ]
        segments = [*opened, merge(tail, newer, _removed(tail))] if tail else opened
        self._stored, self._frozen = stored, 0
        version = max(before.version, stored.version)
        self._snapshot = Snapshot(version, tuple(segments), _alive(segments))

    def _write_tail(self) -> None:
        """Write the tail as a segment, if it has grown. The caller has the folder alone."""
        with self._lock:
            now, first = self._snapshot, len(self._stored.names)
            if sum(segment.entries for segment in now.segments[first:]) < self._tail_entries:
                return
            self._frozen = len(now.segments) - first
        self._replace(now, first, len(now.segments), now.version)

    def _merge_some(self) -> bool:
        """Merge the segments that are due; False if none are. The caller has the folder alone."""
        with self._lock:
            now, count = self._snapshot, len(self._stored.names)
        stored = now.segments[:count]
        dead = [
            segment.entries * int(alive.size - np.count_nonzero(alive)) // max(1, alive.size)
            for segment, alive in zip(stored, now.alive, strict=False)
        ]
        first = first_to_merge([segment.entries for segment in stored], dead)
        if first is None:
            return False
        self._replace(now, first, count, self._stored.version)
        return True

    def _replace(self, now: Snapshot, first: int, end: int, version: int) -> None:
        """Write one segment in the place of some, which others go on to read meanwhile."""
        try:
            some, alive = now.segments[first:end], now.alive[first:end]
            gone = _held(now.segments[:first], _removed(some))
            name = self._store.write(merged(some, alive, gone))
            new = self._store.open(name)
        except BaseException:
            self._frozen = 0
            raise
        with self._lock:
            self._frozen = 0
            present = self._snapshot
            if present.segments[first:end] != some:
                return  # it started again meanwhile; what was written counts for nothing
            names = (*self._stored.names[:first], name)
            self._store.publish(version, names)
            self._stored = Stored(version, names)
            segments = (*present.segments[:first], new, *present.segments[end:])
            changed = np.concatenate([np.empty(0, np.int64), *map(_changed, segments[first + 1 :])])
            [living] = retired([new], [np.ones(new.members.size, np.bool_)], changed)
            living_now = (*present.alive[:first], living, *present.alive[end:])
            self._snapshot = Snapshot(present.version, segments, living_now)

    def _is_untidy(self) -> bool:
        return self.entries[1] >= self._tail_entries

    def adopt(self) -> None:
        """Take up what another process has stored, so that it can delete what it replaced."""
        self._adopt_newer()


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
