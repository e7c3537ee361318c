"""The finding index in Redis, which all machines share: behind the feed, as that on a disk.

A question reads the shards of its keys, and from the database what changed since the version of the
one that is furthest behind. Threads in the background apply what the shards lack. Holders are
believed only as the database has them: at the version that their fingerprint has now.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Final

import numpy as np
import numpy.typing as npt

from app.fingerprints.finding.listing import Listing, Query
from app.fingerprints.finding.ranking import Chance
from app.fingerprints.finding.records import Feed
from app.fingerprints.finding.redis_shards import (
    RedisShards,
    ShardHolders,
    ShardState,
    are_later,
    holder_of,
)
from app.fingerprints.finding.segments import LINES
from app.infra import fail_points
from app.infra.deadlines import Deadline
from app.infra.errors import BackendUnavailable, Unavailable, explain

__all__ = ["SharedIndex"]

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_MOST_BEHIND: Final = 200
"""Changes that a question reads from the database, where a shard lacks them."""
_WAIT_S: Final = 0.3
"""Seconds that a question waits for shards that are further behind."""
_LEAST_ANSWERED: Final = 0.25
"""The part of the keys of which the holders must be known; with less, the disk answers instead."""
_MOST_CANDIDATES: Final = 1000
"""Those with the most keys in common, of which the rows are read."""
_MOST_STARTED: Final = 16
"""Shards that begin again at a time because of their past states."""
_PAST_ENTRIES: Final = 12
"""Entries of a shard for each fingerprint, from which on it begins again: at most 4 are of it."""
_MOST_READINGS: Final = 5
"""How often keys are read whose places past states take up."""

log = logging.getLogger(__name__)


class SharedIndex:
    """The shared finding indexes of all tenants.

    Args:
        shards: in Redis.
        reading: opens the feed of a tenant in a transaction of its own.
    """

    def __init__(
        self, shards: RedisShards, reading: Callable[[int], AbstractContextManager[Feed]]
    ) -> None:
        self._shards = shards
        self._reading = reading
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="finding-shards")
        self._lock = threading.Lock()
        self._following: dict[int, Future[None]] = {}
        self._closing = threading.Event()

    def listing(
        self, query: Query, feed: Feed, tenant_id: int, most: int, deadline: Deadline
    ) -> Listing | None:
        """The holders of keys, as the feed's transaction sees them.

        Of some keys they may be unknown; None if they are of nearly all.

        Args:
            most: how many are listed of a key.
        """
        try:
            found = self._shards.holders(tenant_id, query.keys, most)
            known = _known(found, feed)
            if not known.all() and self._follow_soon(tenant_id, deadline):
                found = self._shards.holders(tenant_id, query.keys, most)
                known = _known(found, feed)
            for _ in range(_MOST_READINGS):
                if known.mean() < _LEAST_ANSWERED:
                    return None
                listing, full, past = self._listing(query, found, known, feed, tenant_id)
                if not full.size:
                    break
                self._shards.forget(tenant_id, found, query.keys[full], past, most)
                found = self._shards.holders(tenant_id, query.keys, most)
                known = _known(found, feed)
        except BackendUnavailable:
            return None
        return listing

    def _listing(
        self, query: Query, found: ShardHolders, known: Flags, feed: Feed, tenant_id: int
    ) -> tuple[Listing, Ints, Ints]:
        """The listing of what was found, and past holders of keys that list no more."""
        states = (found.states.get(int(shard)) for shard in np.unique(found.shards[known]))
        behind = min((state.version for state in states if state is not None), default=0)
        if behind < feed.version:
            self._follow(tenant_id)
        at, holders = _with_tail(query, found, known, feed, behind)
        return _listing(query, feed, at, holders, found.more & known, known)

    def follow(self, tenant_id: int) -> None:
        """Apply what the shards lack, of all servers that answer.

        Raises:
            BackendUnavailable: no server answers.
        """
        states = self._shards.states(tenant_id)
        with self._reading(tenant_id) as feed:
            lost = [shard for shard, state in states.items() if not _can_follow(state, feed)]
            lost += _overgrown(states, feed)
            if lost:
                self._shards.start(tenant_id, lost, feed.version)
                states = self._shards.states(tenant_id)
            groups = defaultdict[int, dict[int, ShardState]](dict)
            for shard, state in states.items():
                if state is not None and state.version < feed.version:
                    groups[state.version][shard] = state
            for since, group in groups.items():
                self._apply(tenant_id, feed, since, group)
        if lost:
            self._shards.sweep(tenant_id)

    def close(self) -> None:
        """Stop following, between two steps."""
        self._closing.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _apply(self, tenant_id: int, feed: Feed, since: int, states: dict[int, ShardState]) -> None:
        until = since
        for page in feed.changed_since(since):
            if self._closing.is_set() or not states:
                return
            until = max(each.version for each in page)
            with fail_points.around("buckets"):
                states = self._shards.apply(tenant_id, states, page, until, feed.version)
        if until < feed.version and states:
            self._shards.apply(tenant_id, states, (), feed.version, feed.version)

    def _follow_soon(self, tenant_id: int, deadline: Deadline) -> bool:
        """Whether the shards were brought up to date while a question may wait."""
        following = self._follow(tenant_id)
        if following is None:
            return False
        try:
            following.result(min(_WAIT_S, deadline.left()))
        except (TimeoutError, CancelledError, Unavailable):
            return False
        return True

    def _follow(self, tenant_id: int) -> Future[None] | None:
        with self._lock:
            running = self._following.get(tenant_id)
            if running is not None:
                return running
            try:
                running = self._pool.submit(self.follow, tenant_id)
            except RuntimeError:  # the service stops
                return None
            self._following[tenant_id] = running
        running.add_done_callback(lambda done: self._ended(tenant_id, done))
        return running

    def _ended(self, tenant_id: int, done: Future[None]) -> None:
        with self._lock:
            self._following.pop(tenant_id, None)
        if not done.cancelled() and (error := done.exception()) is not None:
            if isinstance(error, Unavailable):
                log.info("the shared finding index is not kept up now: %s", explain(error))
            else:
                log.error("the shared finding index cannot follow its feed", exc_info=error)


def _can_follow(state: ShardState | None, feed: Feed) -> bool:
    """Whether a shard can go on from its version: it knows of all removals, or of no model yet."""
    return state is not None and (state.version == 0 or state.version >= feed.compacted_version)


def _overgrown(states: dict[int, ShardState | None], feed: Feed) -> list[int]:
    """Some shards that mostly hold past states of fingerprints."""
    most = 1000 + _PAST_ENTRIES * feed.fingerprints
    return [shard for shard, each in states.items() if each is not None and each.entries > most][
        :_MOST_STARTED
    ]


def _known(found: ShardHolders, feed: Feed) -> Flags:
    """Of which keys the holders are known, but for a few changes; a flag a key."""
    good = [
        shard
        for shard, state in found.states.items()
        if state is not None
        and _can_follow(state, feed)
        and state.needed <= max(feed.version, state.version)
        and state.version >= feed.version - _MOST_BEHIND
    ]
    return np.isin(found.shards, good)


def _with_tail(
    query: Query, found: ShardHolders, known: Flags, feed: Feed, behind: int
) -> tuple[Ints, Ints]:
    """The holders of the keys that are known, with those of recent changes, each once a key."""
    kept = known[found.at]
    at, holders = [found.at[kept]], [found.holders[kept]]
    if behind < feed.version:
        for page in feed.changed_since(behind):
            for each in page:
                places = np.flatnonzero(known & np.isin(query.keys, each.keys))
                at.append(places)
                holders.append(np.full(places.size, holder_of(each.id, each.version)))
    pairs = np.stack([np.concatenate(at), np.concatenate(holders)], axis=1)
    distinct = np.unique(pairs, axis=0)
    return distinct[:, 0], distinct[:, 1]


def _listing(
    query: Query, feed: Feed, at: Ints, holders: Ints, more: Flags, known: Flags
) -> tuple[Listing, Ints, Ints]:
    """The holders that the database has so, of those with the most keys.

    Also the places of the keys with more holders than were read, in which some are of the past; and
    these holders.
    """
    distinct, who, counts = np.unique(holders, return_inverse=True, return_counts=True)
    often = np.flatnonzero(counts > 1)
    often = often[np.argsort(-counts[often], kind="stable")][:_MOST_CANDIDATES]
    ids = distinct[often] >> 24
    described = feed.described(ids.tolist())
    present = [
        place
        for place, id_ in enumerate(ids.tolist())
        if (row := described.get(id_)) is not None
        and holder_of(id_, row.version) == distinct[often[place]]
    ]
    past = np.delete(distinct[often], present)
    past = past[~are_later(past, feed.version)]
    full = np.unique(at[more[at] & np.isin(holders, past)])
    kept, ids = often[present], ids[present]
    number = np.full(distinct.size, -1, np.int64)
    number[kept] = np.arange(kept.size)
    mine = number[who] >= 0
    rows = [described[id_] for id_ in ids.tolist()]
    lines = np.array([pair for row in rows for pair in row.lines.items()], LINES)
    owner = np.repeat(np.arange(kept.size), [len(row.lines) for row in rows])
    common = Chance.of(query.lines).lines_in_common(owner, lines, kept.size)
    scales = np.maximum(np.array([row.scale for row in rows], np.int64), query.scale)
    expected = common / np.exp2(scales)
    listing = Listing(at[mine], number[who[mine]], ids, None, expected, more, known)
    return listing, full, past
