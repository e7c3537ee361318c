"""Importance from a checkpoint alone, |w| or |w - base|, and the supports that it selects.

Tensors are read in stretches into one buffer, and ``core.selection.streaming`` selects from them:
the memory does not grow with the checkpoint. It never uses the network.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np

from modelkin._whole_files import WholeFile, require_ordinary
from modelkin.checkpoints.adapters import Adapter, LowRankTensor
from modelkin.checkpoints.files import Checkpoint
from modelkin.checkpoints.header import bad_checkpoint
from modelkin.checkpoints.pieces import pieces_by_tensor
from modelkin.checkpoints.rounding import changes
from modelkin.checkpoints.tensors import StoredTensor
from modelkin.core.adapters import DEFAULT_FRACTION
from modelkin.core.importance import Importance, Origin
from modelkin.core.layout import Layout
from modelkin.core.matching.correspondence import correspond
from modelkin.core.quoting import quote
from modelkin.core.selection.rule import SelectionRule
from modelkin.core.selection.streaming import (
    Chunks,
    Floats,
    LocatedSelection,
    locate,
    select_from_chunks,
    selected_indices,
)
from modelkin.core.support import Support
from modelkin.core.weights import WeightsDigest
from modelkin.errors import InvalidParameter, SpaceMismatch
from modelkin.wire.streaming import stream_support

__all__ = [
    "CHUNK_SIZE",
    "PassObserver",
    "WrittenSupport",
    "check_base",
    "default_rule",
    "digest_of_base",
    "importance_chunks",
    "magnitudes",
    "select_from_checkpoint",
    "weights_digest",
    "write_support",
]

CHUNK_SIZE: Final = 1 << 21
"""Parameters a chunk: 8 MiB of float32, so that the fixed cost of a histogram is small."""

PassObserver = Callable[[Iterable[Floats]], Iterable[Floats]]
"""Wraps the chunks of a pass, to count them on their way to the selection."""


@dataclass(frozen=True, slots=True)
class WrittenSupport:
    """The result of :func:`write_support`.

    Attributes:
        num_parameters: M.
        k: K.
        digest: ``"sha256:..."``, as ``Support.digest``.
        coverage: the share of all importance on the support.
        size: the size of the file, in bytes.
    """

    num_parameters: int
    k: int
    digest: str
    coverage: float
    size: int


def importance_chunks(checkpoint: Checkpoint, base: Checkpoint | None = None) -> Chunks:
    """Passes over |w|, or over |w - base| with a base, in layout order.

    Differences are taken in float32, or in float64 if one side is F64, and rounded to float32.
    Where a tensor is stored more coarsely than in the base, a difference is the least that gives
    its value: rounding by at most half a step of its dtype counts as 0.

    Args:
        checkpoint: the model, or an adapter, whose importance is |BA| with a base and without one.
        base: the model that it was made from, of the same names and shapes; dtypes may differ. The
            base of an adapter must have the tensors that the adapter targets. A base that lacks a
            small part of the model gives the chunks of what both have: see ``Checkpoint.beside``.

    Returns:
        A function as ``core.selection.streaming.Chunks``: its chunks share one buffer. It raises
        InvalidCheckpoint for an infinite or NaN weight, with its tensor, and for a file that ends
        early.

    Raises:
        SpaceMismatch: the base has other tensors; names them.
    """
    bases: list[StoredTensor | None] = [None] * len(checkpoint.tensors)
    if base is not None:
        check_base(checkpoint, base)
    if base is not None and not isinstance(checkpoint, Adapter):
        checkpoint, base = checkpoint.beside(base)
        bases = list(base.tensors)

    def chunks() -> Iterator[Floats]:
        buffer, filled = np.empty(CHUNK_SIZE, np.float32), 0
        for tensor, other in zip(checkpoint.tensors, bases, strict=True):
            for values in magnitudes(tensor, other):
                part = values
                while part.size:
                    taken = min(part.size, CHUNK_SIZE - filled)
                    buffer[filled : filled + taken] = part[:taken]
                    part, filled = part[taken:], filled + taken
                    if filled == CHUNK_SIZE:
                        yield buffer
                        filled = 0
        if filled:
            yield buffer[:filled]

    return chunks


def select_from_checkpoint(
    checkpoint: Checkpoint,
    base: Checkpoint | None = None,
    rule: SelectionRule | None = None,
    observer: PassObserver | None = None,
    base_digest: str | None = None,
) -> Support:
    """The support of a checkpoint, with its K indices in memory and its origin.

    Args:
        checkpoint: the model.
        base: for |w - base|; without it the importance is |w|.
        rule: how K is chosen; by default 5% of M, or 10% of an adapter's.
        observer: wraps the chunks of every pass.
        base_digest: the result of ``digest_of_base(base, checkpoint)`` where the caller knows it;
            by default it is computed, in one more pass over the base.

    Raises:
        InvalidCheckpoint, SpaceMismatch: as :func:`importance_chunks`.
        InvalidImportance: all of it is zero.
        OSError: a file cannot be read.
    """
    chunks = _observe(importance_chunks(checkpoint, base), observer)
    whole, checkpoint = checkpoint, _compared(checkpoint, base)
    rule = default_rule(checkpoint, base) if rule is None else rule
    support = select_from_chunks(chunks, checkpoint.num_parameters, rule)
    if base is not None:
        base_digest = base_digest or digest_of_base(base, whole)
        importance = Importance.of("delta", base_digest, checkpoint.origin_note)
    else:
        importance = Importance.of(checkpoint.kind, note=checkpoint.origin_note)
    support = support.with_origin(Origin(importance, checkpoint.layout))
    return support if checkpoint is whole else support.reordered(whole.layout)


def _compared(checkpoint: Checkpoint, base: Checkpoint | None) -> Checkpoint:
    """The checkpoint, or what of it a base has too, where that is less."""
    if base is None or isinstance(checkpoint, Adapter):
        return checkpoint
    both, _ = checkpoint.beside(base)
    return checkpoint if both.num_parameters == checkpoint.num_parameters else both


def default_rule(checkpoint: Checkpoint, base: Checkpoint | None = None) -> SelectionRule:
    """The rule that chooses K where nothing is asked for: 5% of M, or 10% of an adapter's.

    It takes 2^25 entries at most, as a service that follows a hub does.
    """
    if isinstance(checkpoint, Adapter):
        return SelectionRule.default(checkpoint.num_parameters, DEFAULT_FRACTION)
    kind = "weight" if base is None else "delta"
    return SelectionRule.of(checkpoint.num_parameters, kind=kind)


def write_support(
    path: str | Path,
    checkpoint: Checkpoint,
    base: Checkpoint | None = None,
    rule: SelectionRule | None = None,
    observer: PassObserver | None = None,
) -> WrittenSupport:
    """Write the support of a checkpoint in the native format; its indices are never in memory.

    Args:
        path: the file. It is written under another name and then renamed, so it is never partial.
            Meanwhile its folder needs about a byte an index more.
        checkpoint: the model.
        base: for |w - base|; without it the importance is |w|.
        rule: how K is chosen; by default 5% of M, or 10% of an adapter's.
        observer: wraps the chunks of every pass.

    Raises:
        InvalidCheckpoint, SpaceMismatch: as :func:`importance_chunks`.
        InvalidImportance: all of it is zero.
        InvalidParameter: ``path`` is one of the files to read, or not an ordinary file.
        OSError: a file cannot be read or written.
    """
    target = Path(path)
    _check_target(target, checkpoint, base)
    chunks = _observe(importance_chunks(checkpoint, base), observer)
    rule = default_rule(_compared(checkpoint, base), base) if rule is None else rule
    selection = locate(chunks, _compared(checkpoint, base).num_parameters, rule)
    with WholeFile(target) as whole:
        if _compared(checkpoint, base) is checkpoint:
            digest = _write(whole.file, chunks, selection, target.parent)
        else:  # the indices move around the gaps, in memory
            support = select_from_checkpoint(
                checkpoint, base, rule, observer, base_digest="sha256:0"
            )
            digest = support.digest
            whole.file.write(support.to_bytes())
        size = whole.file.tell()
        whole.finish()
    m = checkpoint.num_parameters
    return WrittenSupport(m, selection.k, digest, selection.coverage, size)


def weights_digest(checkpoint: Checkpoint, layout: Layout | None = None) -> str:
    """The digest by which a base is recognised: of names, shapes and values as float32.

    It is that of ``modelkin.torch.weights_digest`` for the same weights, whatever their order,
    dtype and shards. The files are read once, in stretches.

    Args:
        checkpoint: the base.
        layout: only the tensors that it names count, in any order; None for all.

    Returns:
        ``sha256:`` and 64 hex digits.

    Raises:
        SpaceMismatch: a tensor of the layout is missing, or of another shape; names it.
        InvalidCheckpoint: a file ends early.
        OSError: a file cannot be read.
    """
    _require_weights(checkpoint)
    found = correspond(checkpoint.layout, layout or checkpoint.layout)
    if not found.complete:
        raise SpaceMismatch(f"{checkpoint.name} lacks a part of the layout: {found.difference()}")
    digest = WeightsDigest()
    for spec, pieces in pieces_by_tensor(checkpoint.tensors, found):
        stretches = (stretch for piece in pieces for stretch in piece.stretches())
        digest.add(spec.name, spec.shape, stretches)
    return digest.result()


def digest_of_base(base: Checkpoint, checkpoint: Checkpoint, layout: Layout | None = None) -> str:
    """The :func:`weights_digest` of a base, of the tensors that a checkpoint has.

    Those that an adapter targets have the names and shapes that the adapter gives them.

    Args:
        base: the base.
        checkpoint: what is compared with it.
        layout: the same tensors as a space names them; None for the checkpoint's own names.

    Raises: as :func:`weights_digest`.
    """
    if not isinstance(checkpoint, Adapter):
        both = correspond(base.layout, layout or checkpoint.layout)
        return weights_digest(base, both.common)
    _require_weights(base)
    digest = WeightsDigest()
    targets = checkpoint.targets_in(base)
    for spec, tensor in zip(checkpoint.layout.tensors, targets, strict=True):
        digest.add(spec.name, spec.shape, tensor.stretches())
    return digest.result()


def _write(file: BinaryIO, chunks: Chunks, selection: LocatedSelection, folder: Path) -> str:
    with tempfile.TemporaryFile(dir=folder) as spool:
        parts = selected_indices(chunks, selection)
        streamed = stream_support(parts, selection.num_parameters, selection.k, spool)
        for piece in streamed.pieces:
            file.write(piece)
    return streamed.digest


def _check_target(target: Path, checkpoint: Checkpoint, base: Checkpoint | None) -> None:
    """Refuse to replace a link, a device, a folder, or a file that is read."""
    require_ordinary(target)
    if not target.exists():
        return
    tensors = checkpoint.tensors + (base.tensors if base else ())
    for source in {tensor.path for tensor in tensors}:
        if target.samefile(source):
            raise InvalidParameter(
                f"{target} is the checkpoint itself: give another name", field="path"
            )


def _observe(chunks: Chunks, observer: PassObserver | None) -> Chunks:
    return chunks if observer is None else lambda: observer(chunks())


def magnitudes(tensor: StoredTensor, base: StoredTensor | None, first: int = 0) -> Iterator[Floats]:
    """Yield |w| or |w - base| of one tensor, stretch by stretch, all finite.

    Args:
        first: the place of its first value in the tensor that errors name.
    """
    if isinstance(tensor, LowRankTensor):
        yield from tensor.magnitudes()
        return
    others = iter(()) if base is None else base.stretches()
    begin = first
    for values in tensor.stretches():
        with np.errstate(over="ignore", invalid="ignore"):  # infinities and NaN are refused below
            found = np.abs(values) if base is None else changes(values, next(others), tensor, base)
            sizes = found.astype(np.float32, copy=False)
        # The bits of finite magnitudes are below those of infinity and NaN.
        if sizes.view(np.uint32).max() >= 0x7F800000:
            raise _not_finite(tensor, begin, sizes, base)
        begin += sizes.size
        yield sizes


def _not_finite(
    tensor: StoredTensor, begin: int, magnitudes: Floats, base: StoredTensor | None
) -> Exception:
    at = begin + int(np.argmin(np.isfinite(magnitudes)))
    what = "a weight" if base is None else "a difference"
    return bad_checkpoint(
        tensor.path.name,
        f"tensor {quote(tensor.name)} has {what} that is infinite or NaN as float32, "
        f"at element {at}",
    )


def check_base(checkpoint: Checkpoint, base: Checkpoint) -> None:
    """Check that names and shapes agree.

    Raises:
        SpaceMismatch: they do not; lists the first few.
        InvalidParameter: the base is an adapter.
    """
    _require_weights(base)
    if isinstance(checkpoint, Adapter):
        checkpoint.targets_in(base)
        return
    found = correspond(base.layout, checkpoint.layout)
    if not found.fits:
        raise SpaceMismatch(
            f"{base.name} is not a base of {checkpoint.name}, its tensors differ: "
            f"{found.difference('the base', 'the checkpoint')}"
        )


def _require_weights(base: Checkpoint) -> None:
    if isinstance(base, Adapter):
        raise InvalidParameter(
            f"{base.name} is an adapter, and a base has weights: give the model that the adapter "
            f"was trained on",
            field="base",
        )
