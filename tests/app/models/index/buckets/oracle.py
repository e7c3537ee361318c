"""A reference for buckets that is obviously right: a dict of models and their keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from app.models.index.buckets.protocol import (
    BANDING_VERSION,
    BucketCandidates,
    Buckets,
    BucketState,
)

Keys = npt.NDArray[np.uint64]
EPOCH = 0x7EDC_BA98_7654_3210
EVERYTHING = 1 << 30


def keys(*values: int) -> Keys:
    """Keys in the form that a bucket store takes."""
    return np.array(values, np.uint64)


def spread(model_id: int, bands: int = 8) -> Keys:
    """Keys of a model that shares half of its buckets with its neighbours by id."""
    rng = np.random.default_rng(model_id)
    own = rng.integers(0, 1 << 64, bands // 2, np.uint64)
    shared = np.random.default_rng([1, 1 + model_id // 5]).integers(
        0, 1 << 64, bands // 2, np.uint64
    )
    return np.concatenate([own, shared])


def expected(
    models: Mapping[int, Iterable[int]], query: Iterable[int], *, cap: int, limit: int
) -> tuple[list[int], bool]:
    """The ids and ``truncated`` that ``candidates`` must return."""
    sizes = Counter(key for own in models.values() for key in set(own))
    chosen, entries, truncated = set(), 0, False
    for size, key in sorted((sizes[key], key) for key in set(query) if sizes[key]):
        entries += size
        if size > cap or entries > limit:
            truncated = True
        else:
            chosen.add(key)
    return sorted(m for m, own in models.items() if chosen & set(own)), truncated


def plain(found: BucketCandidates) -> tuple[list[int], bool]:
    """A result in the form of :func:`expected`."""
    return found.ids.tolist(), found.truncated


def state(version: int, *, epoch: int = EPOCH) -> BucketState:
    """A state of the tests' epoch."""
    return BucketState(epoch, version, BANDING_VERSION)


def ids_in(buckets: Buckets, space: int, *query: int) -> list[int]:
    """The models in some buckets, none left out."""
    ids: list[int] = buckets.candidates(space, keys(*query), EVERYTHING).ids.tolist()
    return ids
