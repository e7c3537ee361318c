"""``cut_checkpoint``: some layers of a checkpoint on disk, byte for byte, as a learngene's file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from modelkin.checkpoints.adapters import Adapter
from modelkin.checkpoints.files import Checkpoint
from modelkin.checkpoints.header import bad_checkpoint
from modelkin.checkpoints.tensors import ComputedTensor, StoredTensor
from modelkin.checkpoints.writing import TensorFile, check_target
from modelkin.core.quoting import quote
from modelkin.errors import InvalidParameter
from modelkin.federation.learngenes.layers import CutLearngene, LayerChoice, natural_order

__all__ = [
    "STRETCH",
    "OnShare",
    "Progress",
    "copy_finite",
    "cut_checkpoint",
    "file_digest",
    "finite_part",
    "ordered_choice",
    "shared_tensors",
    "stretches",
]

OnShare: TypeAlias = Callable[[float], None]
"""A function that receives the share that is done, 0 to 1."""

STRETCH: Final = 1 << 20
"""Values in memory at a time: 8 MiB of float64."""

_STATISTICS: Final = ("running_mean", "running_var")
"""Torch's names for the statistics of batches; a file does not say which tensors are buffers."""


def cut_checkpoint(
    checkpoint: Checkpoint,
    path: str | Path,
    *,
    depth: int | None = None,
    share: float | None = None,
    tensors: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    order: Sequence[str] = (),
    buffers: bool = False,
    on_progress: OnShare | None = None,
) -> CutLearngene:
    """Write some whole layers of a checkpoint to a safetensors file.

    The file has the same bytes as one that ``modelkin.torch.cut_learngene`` cuts from the model.

    Args:
        checkpoint: a checkpoint of weights, as ``open_checkpoint`` opens it.
        path: the path of the file, which is replaced when it is whole.
        depth: how many layers from the input on, but never the last; with ``order``.
        share: the share of the bytes of all layers: as many layers from the input on as fit; with
            ``order``.
        tensors: shell patterns of the names of tensors in their place.
        exclude: shell patterns of names to leave out; alone it leaves out of all layers.
        order: shell patterns of layers, from the input on; layers that match none come last. Files
            list tensors by name, so they do not say which layer is the first.
        buffers: whether statistics of batches, tensors named ``running_mean`` or ``running_var``,
            go with their layers.
        on_progress: is called with the share that is done, 0 to 1.

    Raises:
        InvalidParameter: the choice leaves nothing or a part of a layer, or needs an order;
            ``path`` is not an ordinary file, or the checkpoint itself.
        InvalidCheckpoint: the checkpoint is an adapter, quantised, damaged, or has a value that is
            not finite.
        OSError: a file cannot be read or written.
    """
    choice = LayerChoice(depth, share, tensors, exclude, order)
    if tensors is None and not (exclude or order or depth or share):
        raise InvalidParameter(
            "say which layers: tensors, exclude, or depth or share with order", field="tensors"
        )
    stored = shared_tensors(checkpoint, buffers=buffers)
    sizes = {name: tensor.size * tensor.itemsize for name, tensor in stored.items()}
    layers = ordered_choice(choice).choose(sizes.items())
    chosen = [stored[name] for layer in layers for name in layer.tensors]
    target = Path(path)
    check_target(target, checkpoint.tensors)
    progress = Progress(sum(tensor.size for tensor in chosen), on_progress)
    with TensorFile(target, chosen) as file:
        for tensor in chosen:
            copy_finite(tensor, file, progress)
    return CutLearngene(
        target,
        tuple(layer.name for layer in layers),
        tuple(tensor.name for tensor in chosen),
        target.stat().st_size,
        sum(layer.size for layer in layers) / sum(sizes.values()),
        file_digest(target),
    )


class Progress:
    """A counter of values on their way, which reports the share of all.

    Args:
        total: values in all.
        report: where it goes, or None.
    """

    def __init__(self, total: int, report: OnShare | None) -> None:
        self._total, self._report, self._done = max(1, total), report, 0

    def count(self, values: int) -> None:
        """Count values that are done."""
        self._done += values
        if self._report is not None:
            self._report(self._done / self._total)


def copy_finite(tensor: StoredTensor, file: TensorFile, progress: Progress) -> None:
    """Copy a tensor byte for byte.

    Raises:
        InvalidCheckpoint: a value is NaN or infinite, or the file ends early.
    """
    for begin, end in stretches(tensor.size):
        finite_part(tensor, begin, end)
        progress.count(end - begin)
    file.copy(tensor)


def shared_tensors(checkpoint: Checkpoint, *, buffers: bool) -> dict[str, StoredTensor]:
    """The tensors of a checkpoint that a learngene may have, in natural order of their names.

    Raises:
        InvalidCheckpoint: the checkpoint is an adapter, or quantised.
    """
    if isinstance(checkpoint, Adapter):
        raise bad_checkpoint(
            checkpoint.name,
            "it is an adapter, and neither a part nor a mean of its factors is one of what it "
            "does: merge it into its base first",
        )
    for tensor in checkpoint.tensors:
        if isinstance(tensor, ComputedTensor):
            raise bad_checkpoint(
                tensor.path.name,
                f"tensor {quote(tensor.name)} is {tensor.dtype}, too coarse for a learngene or an "
                f"average: give the checkpoint before quantisation",
            )
    found = {tensor.name: tensor for tensor in checkpoint.tensors}
    if not buffers:
        found = {n: t for n, t in found.items() if n.rpartition(".")[2] not in _STATISTICS}
    return {name: found[name] for name in natural_order(found)}


def ordered_choice(choice: LayerChoice) -> LayerChoice:
    """A choice for tensors without an order of their own: all layers where it needs none.

    Raises:
        InvalidParameter: it has a depth or a share and no order.
    """
    if choice.tensors is not None or choice.order:
        return choice
    for field in ("depth", "share"):
        if getattr(choice, field) is not None:
            raise InvalidParameter(
                f"{field} needs order: files list tensors by name, and do not say which layer is "
                f"the first",
                field="order",
            )
    return replace(choice, tensors=("*",))


def stretches(size: int) -> Iterator[tuple[int, int]]:
    """The first element of each stretch of a tensor and the first one after it."""
    return ((begin, min(size, begin + STRETCH)) for begin in range(0, size, STRETCH))


def finite_part(tensor: StoredTensor, begin: int, end: int) -> npt.NDArray[np.floating]:
    """Elements of a tensor, as :meth:`StoredTensor.part`.

    Raises:
        InvalidCheckpoint: one is NaN or infinite, or the file ends early.
    """
    values: npt.NDArray[np.floating] = tensor.part(begin, end)
    if not np.isfinite(values).all():
        raise bad_checkpoint(
            tensor.path.name, f"tensor {quote(tensor.name)} has a value that is NaN or infinite"
        )
    return values


def file_digest(path: Path) -> str:
    """``sha256:`` and the digest of a file's bytes, in hex."""
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
