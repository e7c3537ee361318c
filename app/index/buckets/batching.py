"""What all bucket stores share: a step checked and normalised, and the choice of what to read.

Pure: arrays in, arrays out. It never computes a key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["CAP", "MOST_AT_ONCE", "Changes", "Step", "choose", "gather", "in_steps"]

Keys = npt.NDArray[np.uint64]

CAP = 10_000
"""Entries beyond which a bucket is never read: it says nothing of who is kin."""
MOST_AT_ONCE = 1_000
"""Models in one step, where a store does not want fewer."""


@dataclass(frozen=True, slots=True)
class Changes:
    """A step as stores apply it.

    Attributes:
        upserts: the keys of each model, distinct, ascending, big-endian uint64 as bytes.
        removals: ids, none of them among ``upserts``.
    """

    upserts: dict[int, bytes]
    removals: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One piece of a space's history, to be applied as a whole.

    Attributes:
        since, until: from which version to which.
        upserts: ids and band values, little-endian, of the models that are new or changed.
        removals: ids of those that are gone, or in no bucket any more.
    """

    since: int
    until: int
    upserts: tuple[tuple[int, bytes], ...]
    removals: tuple[int, ...]


def gather(
    upserts: Iterable[tuple[int, Keys]], removals: Iterable[int], *, at_once: int = MOST_AT_ONCE
) -> Changes:
    """Check and normalise what :meth:`app.index.buckets.protocol.Buckets.apply` is given.

    Args:
        at_once: models in a step, at most.

    Raises:
        ValueError: too many models at once, or keys that are no one-dimensional uint64 array.
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
    if len(kept) + len(gone) > at_once:
        raise ValueError(
            f"{len(kept) + len(gone)} models in one step, and {at_once} is the most: "
            f"cut it with in_steps"
        )
    return Changes(kept, gone)


def choose(
    sizes: npt.NDArray[np.int64], *, cap: int, limit: int
) -> tuple[npt.NDArray[np.intp], bool]:
    """Which buckets a query reads: the smallest first, whole, while they fit.

    Args:
        sizes: entries of each bucket, shape ``(b,)``.
        cap: the largest bucket that is read.
        limit: entries read at most.

    Returns:
        The positions of the buckets to read, and whether any other holds something.
    """
    order = np.argsort(sizes, kind="stable")
    ascending = sizes[order]
    fits = (ascending <= cap) & (np.cumsum(ascending) <= limit)
    return order[fits & (ascending > 0)], bool((~fits & (ascending > 0)).any())


def in_steps(
    changes: Iterable[tuple[int, int, bytes | None]],
    since: int,
    until: int,
    *,
    at_once: int = MOST_AT_ONCE,
) -> Iterator[Step]:
    """Cut a space's history into steps that each lead from one version to another.

    A version is never cut in two, so that a store that stops between steps is at a version.

    Args:
        changes: version, model id and band values, None where no bucket is to hold the model,
            ascending by version.
        since, until: the versions that the whole history leads from and to.
        at_once: models in a step, at most.

    Raises:
        ValueError: one version alone changed more models than fit into a step.
    """
    pending: list[tuple[int, int, bytes | None]] = []
    for change in changes:
        if len(pending) == at_once:
            step, pending = _cut(pending, since, change[0])
            since = step.until
            yield step
        pending.append(change)
    yield _step(pending, since, until)


def _cut(
    pending: Sequence[tuple[int, int, bytes | None]], since: int, coming: int
) -> tuple[Step, list[tuple[int, int, bytes | None]]]:
    """A step of what is certainly whole, and the rest: the version of ``coming`` is not."""
    whole = [change for change in pending if change[0] < coming]
    if not whole:
        raise ValueError(f"version {coming} changed more than {len(pending)} models at once")
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
