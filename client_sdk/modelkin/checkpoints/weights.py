"""The description of a checkpoint's weights, by which exact copies are found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy.typing as npt

from modelkin.checkpoints.files import Checkpoint
from modelkin.core.weights import Weights, WeightsDigest

__all__ = ["weights_of"]

Counting = Callable[[int], None]
"""A function of the values read so far."""


def weights_of(checkpoint: Checkpoint, count: Counting | None = None) -> Weights:
    """Describe the weights of a checkpoint: all its tensors of floats, also those left out.

    An adapter's are its factors. The files are read once, in stretches.

    Args:
        checkpoint: the checkpoint, as it was opened.
        count: is called as the values are read.

    Raises:
        InvalidCheckpoint: a file ends early.
        OSError: a file cannot be read.
    """
    digest, dtypes, done = WeightsDigest(), Counter[str](), 0

    def counted(stretches: Iterator[npt.NDArray[Any]]) -> Iterator[npt.NDArray[Any]]:
        nonlocal done
        for stretch in stretches:
            yield stretch
            done += stretch.size
            if count is not None:
                count(done)

    for tensor in checkpoint.stored:
        digest.add(tensor.name, tensor.shape, counted(tensor.stretches()))
        dtypes[tensor.dtype] += tensor.size
    files = {tensor.path for tensor in checkpoint.stored}
    return Weights(
        digest=digest.result(),
        tensors=digest.tensors,
        files=len(files),
        size=sum(file.stat().st_size for file in files),
        dtypes=dict(dtypes.most_common()),
    )
