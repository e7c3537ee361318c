"""LSH buckets in the memory of one process: the reference that other stores are compared with."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from app.models.index.buckets.batching import (
    MAX_BUCKET_SIZE,
    MAX_STEP_SIZE,
    NormalizedStep,
    choose_buckets,
    normalize_step,
)
from app.models.index.buckets.protocol import (
    BANDING_VERSION,
    BucketCandidates,
    BucketSizes,
    BucketState,
)

__all__ = ["MemoryBuckets"]


@dataclass(slots=True)
class _Space:
    state: BucketState
    keys_of: dict[int, tuple[int, ...]] = field(default_factory=dict)
    members: dict[int, set[int]] = field(default_factory=dict)

    def put(self, model_id: int, keys: Iterable[int]) -> None:
        self.take_out(model_id)
        self.keys_of[model_id] = tuple(keys)
        for key in self.keys_of[model_id]:
            self.members.setdefault(key, set()).add(model_id)

    def take_out(self, model_id: int) -> None:
        for key in self.keys_of.pop(model_id, ()):
            bucket = self.members[key]
            bucket.discard(model_id)
            if not bucket:
                del self.members[key]


class MemoryBuckets:
    """The :class:`app.models.index.buckets.protocol.Buckets` of one process.

    Args:
        cap: a bucket with more entries is never read.
    """

    max_step_size = MAX_STEP_SIZE

    def __init__(self, *, cap: int = MAX_BUCKET_SIZE) -> None:
        self._cap = cap
        self._lock = threading.Lock()
        self._spaces: dict[int, _Space] = {}

    def state(self, space_id: int) -> BucketState | None:
        with self._lock:
            space = self._spaces.get(space_id)
            return None if space is None else space.state

    def apply(
        self,
        space_id: int,
        epoch: int,
        since: int,
        until: int,
        upserts: Iterable[tuple[int, npt.NDArray[np.uint64]]],
        removals: Iterable[int],
    ) -> bool:
        changes = normalize_step(upserts, removals)
        before = BucketState(epoch, since, BANDING_VERSION)
        with self._lock:
            space = self._spaces.get(space_id)
            if (space.state != before) if space is not None else since != 0:
                return False
            space = self._spaces.setdefault(space_id, _Space(before))
            self._change(space, changes)
            space.state = BucketState(epoch, until, BANDING_VERSION)
        return True

    def candidates(
        self, space_id: int, keys: npt.NDArray[np.uint64], limit: int
    ) -> BucketCandidates:
        distinct = np.unique(keys).tolist()
        with self._lock:
            space = self._spaces.get(space_id)
            if space is None:
                return BucketCandidates(np.empty(0, np.int64), False, None)
            buckets = [space.members.get(key, set()) for key in distinct]
            sizes = np.array([len(bucket) for bucket in buckets], np.int64)
            chosen, truncated = choose_buckets(sizes, cap=self._cap, limit=limit)
            found = set().union(*(buckets[i] for i in chosen))
            state = space.state
        return BucketCandidates(np.sort(np.fromiter(found, np.int64)), truncated, state)

    def members(self, space_id: int, ids: Sequence[int]) -> dict[int, bytes]:
        with self._lock:
            space = self._spaces.get(space_id)
            held = {} if space is None else space.keys_of
            return {i: np.array(sorted(held[i]), ">u8").tobytes() for i in ids if i in held}

    def sizes(self, space_id: int) -> BucketSizes | None:
        with self._lock:
            space = self._spaces.get(space_id)
            if space is None:
                return None
            entries = sum(len(bucket) for bucket in space.members.values())
            return BucketSizes(len(space.keys_of), entries, space.state)

    def drop(self, space_id: int) -> None:
        with self._lock:
            self._spaces.pop(space_id, None)

    def sweep(self, models: int = 200) -> int:
        del models  # dropping a space frees its memory at once
        return 0

    def ping(self) -> None:
        """Do nothing: the store is in this process."""

    def close(self) -> None:
        with self._lock:
            self._spaces.clear()

    @staticmethod
    def _change(space: _Space, changes: NormalizedStep) -> None:
        for model_id in changes.removals:
            space.take_out(model_id)
        for model_id, keys in changes.upserts.items():
            space.put(model_id, np.frombuffer(keys, ">u8").tolist())
