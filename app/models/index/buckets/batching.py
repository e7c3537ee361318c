"""Steps of a space's history and the choice of buckets to read, shared by all bucket stores.

Pure functions over arrays; they never compute a key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = [
    "MAX_BUCKET_SIZE",
    "MAX_STEP_SIZE",
    "NormalizedStep",
    "Step",
    "choose_buckets",
    "normalize_step",
    "split_into_steps",
]

Keys = npt.NDArray[np.uint64]

MAX_BUCKET_SIZE = 10_000
"""Entries beyond which a bucket is never read: a bucket this large says nothing about kinship."""
MAX_STEP_SIZE = 1_000
"""Models in one step, unless a store sets a smaller limit."""


@dataclass(frozen=True, slots=True)
class NormalizedStep:
    """A step, checked and in the form that stores apply.

    Attributes:
        upserts: the keys of each model, distinct, ascending, big-endian uint64 as bytes.
        removals: ids that are not among ``upserts``.
    """

    upserts: dict[int, bytes]
    removals: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One piece of a space's history, applied as a whole.

    Attributes:
        since, until: the versions before and after the step.
        upserts: ids and band values, little-endian, of new or changed models.
        removals: ids of the models that are gone, or are no longer in any bucket.
    """

    since: int
    until: int
    upserts: tuple[tuple[int, bytes], ...]
    removals: tuple[int, ...]


def normalize_step(
    upserts: Iterable[tuple[int, Keys]],
    removals: Iterable[int],
    *,
    max_step_size: int = MAX_STEP_SIZE,
) -> NormalizedStep:
    """Check and normalise the arguments of :meth:`app.models.index.buckets.protocol.Buckets.apply`.

    Args:
        max_step_size: models in a step, at most.

    Raises:
        ValueError: too many models at once, or keys that are not a one-dimensional uint64 array.
    """
    kept: dict[int, bytes] = {}
    for model_id, keys in upserts:
        if keys.dtype != np.uint64 or keys.ndim != 1:
            raise ValueError(
                f"the keys of model {model_id} must be uint64 of shape (bands,), not "
                f"{keys.dtype} of shape {keys.shape}"
            )
        kept[int(model_id)] = np.unique(keys).astype(">u8").tobytes()
    gone = tuple(dict.fromkeys(int(model_id) for model_id in removals))
    for model_id in gone:
        kept.pop(model_id, None)
    if len(kept) + len(gone) > max_step_size:
        raise ValueError(
            f"{len(kept) + len(gone)} models in one step, and {max_step_size} is the most: "
            f"split it with split_into_steps"
        )
    return NormalizedStep(kept, gone)


def choose_buckets(
    sizes: npt.NDArray[np.int64], *, cap: int, limit: int
) -> tuple[npt.NDArray[np.intp], bool]:
    """Choose the buckets that a query reads: the smallest first, whole, while they fit.

    Args:
        sizes: entries of each bucket, shape ``(b,)``.
        cap: the largest bucket that is read.
        limit: entries read at most.

    Returns:
        The positions of the buckets to read, and whether any other bucket has entries.
    """
    order = np.argsort(sizes, kind="stable")
    ascending = sizes[order]
    fits = (ascending <= cap) & (np.cumsum(ascending) <= limit)
    return order[fits & (ascending > 0)], bool((~fits & (ascending > 0)).any())


def split_into_steps(
    changes: Iterable[tuple[int, int, bytes | None]],
    since: int,
    until: int,
    *,
    max_step_size: int = MAX_STEP_SIZE,
) -> Iterator[Step]:
    """Split a space's history into steps that each lead from one version to another.

    A version is never split, so a store that stops between steps is at a known version.

    Args:
        changes: version, model id and band values, ascending by version. The values are
            ``None`` for a model that no bucket is to hold.
        since, until: the first and the last version of the whole history.
        max_step_size: the most models in a step.

    Raises:
        ValueError: a single version changed more models than fit into a step.
    """
    pending: list[tuple[int, int, bytes | None]] = []
    for change in changes:
        if len(pending) == max_step_size:
            step, pending = _cut(pending, since, change[0])
            since = step.until
            yield step
        pending.append(change)
    yield _step(pending, since, until)


def _cut(
    pending: Sequence[tuple[int, int, bytes | None]], since: int, next_version: int
) -> tuple[Step, list[tuple[int, int, bytes | None]]]:
    """A step of the complete versions, and the rest, which belongs to version ``next_version``."""
    whole = [change for change in pending if change[0] < next_version]
    if not whole:
        raise ValueError(f"version {next_version} changed more than {len(pending)} models at once")
    return _step(whole, since, whole[-1][0]), list(pending[len(whole) :])


def _step(changes: Iterable[tuple[int, int, bytes | None]], since: int, until: int) -> Step:
    upserts: list[tuple[int, bytes]] = []
    removals: list[int] = []
    for _, model_id, signature in changes:
        if signature is None:
            removals.append(model_id)
        else:
            upserts.append((model_id, signature))
    return Step(since, until, tuple(upserts), tuple(removals))
