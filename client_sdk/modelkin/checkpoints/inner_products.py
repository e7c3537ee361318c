"""Whether a checkpoint is another one with a rotated residual stream, by its inner products."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from modelkin.checkpoints.adapters import Adapter
from modelkin.checkpoints.files import Checkpoint
from modelkin.checkpoints.header import CheckpointLimits, bad_checkpoint
from modelkin.checkpoints.opening import open_checkpoint
from modelkin.core.fingerprints import inner_products as core
from modelkin.core.fingerprints.inner_products import InnerProducts, Points

__all__ = ["inner_products", "points_of"]


def inner_products(
    source: str | Path | Checkpoint,
    other: str | Path | Checkpoint,
    *,
    exclude: Iterable[str] = (),
    limits: CheckpointLimits | None = None,
) -> InnerProducts:
    """Compare how the hidden units of two checkpoints lie to each other.

    A rotation of the residual stream, as some methods of quantisation begin with, leaves no line
    that :func:`modelkin.anatomy` could find, and all inner products. Other orders of the units
    remove these. So this is evidence for two files that the anatomy says nothing of, and is no
    verdict: see :class:`InnerProducts`.

    Args:
        source: a path as for :func:`modelkin.checkpoints.open_checkpoint`, or what that has opened.
        other: likewise.
        exclude: shell patterns of names to leave out, where it is a path.
        limits: on what a path may declare.

    Raises:
        InvalidCheckpoint: as for :func:`modelkin.checkpoints.open_checkpoint`; or it is an adapter.
        MissingExtra: it is GGUF, and the package ``gguf`` is not installed.
        OSError: a file cannot be read.
    """
    patterns = tuple(exclude)
    first, second = (points_of(each, patterns, limits) for each in (source, other))
    return core.inner_products(first, second)


def points_of(
    source: str | Path | Checkpoint,
    exclude: Iterable[str] = (),
    limits: CheckpointLimits | None = None,
) -> list[Points]:
    """How the lines of each tensor of a checkpoint lie to each other; as :func:`inner_products`."""
    opened = source if isinstance(source, Checkpoint) else open_checkpoint(source, exclude, limits)
    if isinstance(opened, Adapter):
        raise bad_checkpoint(
            opened.name, "it is an adapter: merge it into its base, and give the result"
        )
    found = (
        core.points_of_tensor(each.name, each.shape, each.part, each.step)
        for each in opened.tensors
    )
    return [each for each in found if each is not None]
