"""``average_checkpoints``: Eq. 9 over checkpoints on disk, in stretches, as a learngene's file.

With it a hub without a federation condenses the members of a cluster into a start for newcomers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from modelkin.checkpoints.files import Checkpoint
from modelkin.checkpoints.learngenes.cut import (
    OnShare,
    Progress,
    copy_finite,
    file_digest,
    finite_part,
    ordered_choice,
    shared_tensors,
    stretches,
)
from modelkin.checkpoints.tensors import StoredTensor
from modelkin.checkpoints.writing import TensorFile, check_writable
from modelkin.core.quoting import quote
from modelkin.errors import LearngeneMismatch
from modelkin.federation.learngenes.aggregate import (
    MIN_MEMBERS,
    check_min_members,
    check_weight,
    weighted_mean,
)
from modelkin.federation.learngenes.layers import Layer, LayerChoice, natural_order

__all__ = ["AveragedLearngene", "average_checkpoints"]

_BEFORE: Final = "the learngene before"


@dataclass(frozen=True, slots=True)
class AveragedLearngene:
    """A learngene that was averaged.

    Attributes:
        path: where the file lies.
        layers: the names of the layers that it holds.
        members: for each averaged tensor, how many members have it.
        kept: the tensors that too few members have, copied from the learngene before.
        left_out: the layers that too few members have, where there is no learngene before.
        size: bytes of the file.
        digest: ``sha256:`` and the digest of the file, in hex.
    """

    path: Path
    layers: tuple[str, ...]
    members: dict[str, int]
    kept: tuple[str, ...]
    left_out: tuple[str, ...]
    size: int
    digest: str


def average_checkpoints(
    members: Mapping[str, Checkpoint],
    path: str | Path,
    *,
    examples: Mapping[str, float] | None = None,
    before: Checkpoint | None = None,
    min_members: int = MIN_MEMBERS,
    depth: int | None = None,
    share: float | None = None,
    tensors: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    order: Sequence[str] = (),
    buffers: bool = False,
    on_progress: OnShare | None = None,
) -> AveragedLearngene:
    """The mean of each tensor over the checkpoints that have it, written to a safetensors file.

    Sums are of float64 in ascending names of members and are rounded once, to the widest dtype of
    the tensor among them.

    Args:
        members: checkpoints by the names of the members.
        path: the path of the file, which is replaced when it is whole.
        examples: the weight of each member, such as its number of samples; None for equal weights.
        before: the cluster's last learngene: a tensor that fewer than ``min_members`` have keeps
            its values there. Without it, layers with such a tensor are left out.
        min_members: at least 1; a mean of two shows each of them the other's weights.
        depth: as for :func:`modelkin.checkpoints.cut_checkpoint`, over the layers of all members;
            ``share``, ``tensors``, ``exclude``, ``order`` and ``buffers`` likewise. By default all
            layers.
        on_progress: is called with the share that is done, 0 to 1.

    Raises:
        LearngeneMismatch: a tensor has several shapes; names two that have them. No tensor is left.
        InvalidParameter: a weight is not a positive number, the choice leaves nothing or a part of
            a layer, or needs an order; ``path`` is not an ordinary file, or one that is read.
        InvalidCheckpoint: a checkpoint is an adapter, damaged, of 8-bit floats, or has a value that
            is not finite.
        OSError: a file cannot be read or written.

    Source: DFL2G, Eq. 9.
    """
    layers = LayerChoice(depth, share, tensors, exclude, order)
    plan = _plan(members, Path(path), examples, before, min_members, layers, buffers=buffers)
    _write(plan, on_progress)
    return AveragedLearngene(
        plan.path,
        plan.part.layers,
        {tensor: len(senders) for tensor, senders in plan.part.averaged.items()},
        plan.part.kept,
        plan.part.left_out,
        plan.path.stat().st_size,
        file_digest(plan.path),
    )


@dataclass(frozen=True, slots=True)
class _Parts:
    """The chosen layers, by their treatment.

    Attributes:
        averaged: the members that have each tensor which is averaged.
        kept: tensors that keep their old values.
        layers: the layers that have averaged or kept tensors.
        left_out: the other layers.
    """

    averaged: dict[str, list[str]]
    kept: tuple[str, ...]
    layers: tuple[str, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Plan:
    """An average whose inputs are all checked.

    Attributes:
        path: the file to write.
        part: the chosen layers.
        weights: by member, such as its number of samples.
        stored: the tensors of each member.
        old: the tensors of the learngene before.
        targets: each averaged tensor as the file gets it.
    """

    path: Path
    part: _Parts
    weights: Mapping[str, float]
    stored: Mapping[str, Mapping[str, StoredTensor]]
    old: Mapping[str, StoredTensor]
    targets: Mapping[str, StoredTensor]


def _plan(
    members: Mapping[str, Checkpoint],
    path: Path,
    examples: Mapping[str, float] | None,
    before: Checkpoint | None,
    min_members: int,
    layers: LayerChoice,
    *,
    buffers: bool,
) -> _Plan:
    """Check everything but the values, and plan the file."""
    check_min_members(min_members)
    names = sorted(members)
    weights = {name: _weight(name, examples) for name in names}
    stored = {name: shared_tensors(members[name], buffers=buffers) for name in names}
    old = {} if before is None else shared_tensors(before, buffers=buffers)
    holders = _holders({**stored, _BEFORE: old})
    sizes = [(n, holders[n][0].size * holders[n][0].itemsize) for n in natural_order(holders)]
    part = _divide(ordered_choice(layers).choose(sizes), stored, old, min_members)
    for tensor in (*part.averaged, *part.kept):
        _check_shapes(tensor, {**stored, _BEFORE: old})
    targets = {tensor: _widest(holders[tensor]) for tensor in part.averaged}
    check_writable(path, targets.values(), [each for found in holders.values() for each in found])
    return _Plan(path, part, weights, stored, old, targets)


def _write(plan: _Plan, on_progress: OnShare | None) -> None:
    """Write the file: the kept tensors, then the averaged ones."""
    written = [*plan.targets.values(), *(plan.old[tensor] for tensor in plan.part.kept)]
    progress = Progress(sum(tensor.size for tensor in written), on_progress)
    with TensorFile(plan.path, written) as file:
        for tensor in plan.part.kept:
            copy_finite(plan.old[tensor], file, progress)
        for tensor, senders in plan.part.averaged.items():
            sent = [(plan.weights[name], plan.stored[name][tensor]) for name in senders]
            for begin, end in stretches(plan.targets[tensor].size):
                mean = weighted_mean((w, finite_part(each, begin, end)) for w, each in sent)
                file.write(tensor, begin, mean)
                progress.count(end - begin)


def _divide(
    chosen: Sequence[Layer],
    stored: Mapping[str, Mapping[str, StoredTensor]],
    old: Mapping[str, StoredTensor],
    min_members: int,
) -> _Parts:
    """Divide tensors into those to average, to keep and to leave out; layers stay whole.

    Raises:
        LearngeneMismatch: there is nothing to average.
    """
    averaged, kept = dict[str, list[str]](), list[str]()
    layers, left_out = list[str](), list[str]()
    for layer in chosen:
        senders = {t: [name for name in stored if t in stored[name]] for t in layer.tensors}
        enough = {t: found for t, found in senders.items() if len(found) >= min_members}
        few = [tensor for tensor in layer.tensors if tensor not in enough]
        if all(tensor in old for tensor in few):
            layers.append(layer.name)
            averaged |= enough
            kept += few
        else:
            left_out.append(layer.name)
    if not averaged:
        raise LearngeneMismatch(
            f"no layer is in {min_members} of the {len(stored)} checkpoints: give more of them, or "
            f"a lower min_members"
        )
    return _Parts(averaged, tuple(kept), tuple(layers), tuple(left_out))


def _weight(name: str, examples: Mapping[str, float] | None) -> float:
    return 1.0 if examples is None else check_weight(examples.get(name), f"member {name!r}")


def _holders(stored: Mapping[str, Mapping[str, StoredTensor]]) -> dict[str, list[StoredTensor]]:
    """Collect each tensor as all members have it."""
    found: dict[str, list[StoredTensor]] = {}
    for tensors in stored.values():
        for name, tensor in tensors.items():
            found.setdefault(name, []).append(tensor)
    return found


def _check_shapes(tensor: str, stored: Mapping[str, Mapping[str, StoredTensor]]) -> None:
    """Check that a tensor has one shape wherever it is."""
    first = next(name for name in stored if tensor in stored[name])
    for name, tensors in stored.items():
        if tensor in tensors and tensors[tensor].shape != stored[first][tensor].shape:
            raise LearngeneMismatch(
                f"tensor {quote(tensor)} has the shape {list(stored[first][tensor].shape)} in "
                f"{first} and {list(tensors[tensor].shape)} in {name}: exclude it, or leave one "
                f"of them out"
            )


def _widest(found: Sequence[StoredTensor]) -> StoredTensor:
    """The tensor in a dtype that no mean overflows."""
    dtypes = {tensor.dtype for tensor in found}
    if len(dtypes) == 1:
        return found[0]
    return replace(found[0], dtype="F64" if "F64" in dtypes else "F32")
