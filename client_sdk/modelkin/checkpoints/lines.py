"""The fingerprint of a checkpoint on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from modelkin.checkpoints.adapters import Adapter
from modelkin.checkpoints.files import Checkpoint
from modelkin.checkpoints.header import CheckpointLimits, bad_checkpoint
from modelkin.checkpoints.opening import open_checkpoint
from modelkin.core.fingerprints.fingerprint import Fingerprint, FingerprintMaker

__all__ = ["fingerprint"]

Counting = Callable[[int, int], None]
"""A function of the values read so far, and of all."""


def fingerprint(
    source: str | Path | Checkpoint,
    *,
    exclude: Iterable[str] = (),
    scale: int | None = None,
    limits: CheckpointLimits | None = None,
    count: Counting | None = None,
) -> Fingerprint:
    """The fingerprint of a checkpoint's weights, as its files hold them.

    Args:
        source: a path as for :func:`modelkin.checkpoints.open_checkpoint`, or what that has opened.
        exclude: shell patterns of names to leave out, where the source is a path.
        scale: a power of two: one line in so many is kept; by default the least that leaves
            4,096 lines at most, or 32 a tensor where these are more.
        limits: on what a path may declare.
        count: is called with the values read so far and all of them; what it raises ends the call.

    Raises:
        InvalidCheckpoint: as for :func:`modelkin.checkpoints.open_checkpoint`; or it is an adapter.
        InvalidImportance: a value is NaN or infinite; names its tensor.
        InvalidParameter: the scale is no power of two.
        MissingExtra: it is GGUF, and the package ``gguf`` is not installed.
        OSError: a file cannot be read.
    """
    checkpoint = (
        source if isinstance(source, Checkpoint) else open_checkpoint(source, exclude, limits)
    )
    if isinstance(checkpoint, Adapter):
        raise bad_checkpoint(
            checkpoint.name,
            "it is an adapter, whose factors are no lines of a model: merge it into its base, and "
            "give the result",
        )
    maker, done, total = FingerprintMaker(), 0, sum(each.size for each in checkpoint.tensors)
    for tensor in checkpoint.tensors:
        maker.add(tensor.name, tensor.part(0, tensor.size).reshape(tensor.shape))
        done += tensor.size
        if count is not None:
            count(done, total)
    return maker.finish(scale)
