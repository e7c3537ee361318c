"""Importances that a checkpoint alone gives, |w| and |w - base|, and the supports they select.

Tensors are read in stretches into one buffer and selected by ``core.streaming``: what is in memory
does not grow with the checkpoint. It never touches the network.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from modelkin.checkpoints.dtypes import decode
from modelkin.checkpoints.files import Checkpoint, StoredTensor
from modelkin.checkpoints.header import bad_checkpoint, shown
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
from modelkin.errors import InvalidParameter, SpaceMismatch
from modelkin.wire.streaming import stream_support

__all__ = [
    "CHUNK",
    "Watch",
    "WrittenSupport",
    "importance_chunks",
    "select_from_checkpoint",
    "write_support",
]

CHUNK: Final = 1 << 21
"""Parameters a chunk: 8 MiB of float32, over which the histograms' fixed cost is little."""

_STRETCH = 1 << 18
"""Parameters read at a time, small enough that the conversions stay in the cache."""

Watch = Callable[[Iterable[Floats]], Iterable[Floats]]
"""Stands between a pass and its reader and hands the chunks on, to count them."""


@dataclass(frozen=True, slots=True)
class WrittenSupport:
    """What :func:`write_support` wrote.

    Attributes:
        num_parameters: M.
        k: K.
        digest: ``"sha256:..."``, as ``Support.digest``.
        coverage: the share of all importance that the support holds.
        size: bytes.
    """

    num_parameters: int
    k: int
    digest: str
    coverage: float
    size: int


def importance_chunks(checkpoint: Checkpoint, base: Checkpoint | None = None) -> Chunks:
    """Begins passes over |w|, or over |w - base| where a base is given, in layout order.

    Differences are taken in float32, in float64 where one side is F64, and rounded to float32.

    Args:
        checkpoint: the model.
        base: what it was made from, of the same names and shapes; dtypes may differ.

    Returns:
        A function as ``core.streaming.Chunks``: its chunks share one buffer. It raises
        InvalidCheckpoint for an infinite or NaN weight, with its tensor, and for a file that ends
        early.

    Raises:
        SpaceMismatch: the base has other tensors; says which.
    """
    if base is not None:
        _check_base(checkpoint, base)
    bases = [None] * len(checkpoint.tensors) if base is None else list(base.tensors)

    def chunks() -> Iterator[Floats]:
        buffer, filled = np.empty(CHUNK, np.float32), 0
        for tensor, other in zip(checkpoint.tensors, bases, strict=True):
            for values in _magnitudes(tensor, other):
                part = values
                while part.size:
                    taken = min(part.size, CHUNK - filled)
                    buffer[filled : filled + taken] = part[:taken]
                    part, filled = part[taken:], filled + taken
                    if filled == CHUNK:
                        yield buffer
                        filled = 0
        if filled:
            yield buffer[:filled]

    return chunks


def select_from_checkpoint(
    checkpoint: Checkpoint,
    base: Checkpoint | None = None,
    rule: SelectionRule | None = None,
    watch: Watch | None = None,
) -> Support:
    """The support of a checkpoint, with its K indices in memory; else as :func:`write_support`."""
    chunks = _watched(importance_chunks(checkpoint, base), watch)
    return select_from_chunks(chunks, checkpoint.num_parameters, rule)


def write_support(
    path: str | Path,
    checkpoint: Checkpoint,
    base: Checkpoint | None = None,
    rule: SelectionRule | None = None,
    watch: Watch | None = None,
) -> WrittenSupport:
    """Writes the support of a checkpoint in the native format; its indices are never in memory.

    Args:
        path: the file, written beside and then put in place whole: it is never half a support.
            While it is made, its folder holds about a byte an index more.
        checkpoint: the model.
        base: for |w - base|; without it the importance is |w|.
        rule: how K is chosen; the default of ``select_support`` where left out.
        watch: sees the chunks of every pass.

    Raises:
        InvalidCheckpoint, SpaceMismatch: as :func:`importance_chunks`.
        InvalidImportance: all of it is zero.
        InvalidParameter: ``path`` is one of the files to be read, or no ordinary file.
        OSError: a file cannot be read or written.
    """
    target = Path(path)
    _check_target(target, checkpoint, base)
    chunks = _watched(importance_chunks(checkpoint, base), watch)
    selection = locate(chunks, checkpoint.num_parameters, rule)
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            digest = _write(file, chunks, selection, target.parent)
            size = file.tell()
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
    return WrittenSupport(selection.num_parameters, selection.k, digest, selection.coverage, size)


def _write(file: BinaryIO, chunks: Chunks, selection: LocatedSelection, folder: Path) -> str:
    with tempfile.TemporaryFile(dir=folder) as spool:
        parts = selected_indices(chunks, selection)
        streamed = stream_support(parts, selection.num_parameters, selection.k, spool)
        for piece in streamed.pieces:
            file.write(piece)
    return streamed.digest


def _check_target(target: Path, checkpoint: Checkpoint, base: Checkpoint | None) -> None:
    """Refuses to replace a device, a folder, or what is about to be read."""
    if not target.exists():
        return
    if not target.is_file():
        raise InvalidParameter(f"{target} is no ordinary file: give another name", field="path")
    tensors = checkpoint.tensors + (base.tensors if base else ())
    for source in {tensor.path for tensor in tensors}:
        if target.samefile(source):
            raise InvalidParameter(
                f"{target} is the checkpoint itself: give another name", field="path"
            )


def _umask() -> int:
    """The mask of new files, which mkstemp does not heed; it can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _watched(chunks: Chunks, watch: Watch | None) -> Chunks:
    return chunks if watch is None else lambda: watch(chunks())


def _magnitudes(tensor: StoredTensor, base: StoredTensor | None) -> Iterator[Floats]:
    """|w| or |w - base| of one tensor, stretch by stretch, finite."""
    others = iter(()) if base is None else _values(base)
    for at, values in enumerate(_values(tensor)):
        with np.errstate(over="ignore", invalid="ignore"):  # what that makes is refused below
            changes = values if base is None else values - next(others)
            magnitudes = np.abs(changes).astype(np.float32, copy=False)
        # The bits of finite magnitudes are below those of infinity, which are below those of NaN.
        if magnitudes.view(np.uint32).max() >= 0x7F800000:
            raise _not_finite(tensor, at * _STRETCH, magnitudes, base)
        yield magnitudes


def _values(tensor: StoredTensor) -> Iterator[Any]:
    """A tensor's values, ``_STRETCH`` at a time; each read before the next is asked for."""
    buffer = np.empty(_STRETCH * tensor.itemsize, np.uint8)
    left = tensor.size * tensor.itemsize
    with tensor.path.open("rb", buffering=0) as file:
        file.seek(tensor.begin)
        while left:
            stretch = buffer[: min(left, buffer.size)]
            _read(file, stretch.data, tensor)
            left -= stretch.size
            yield decode(stretch, tensor.dtype)


def _read(file: Any, into: memoryview, tensor: StoredTensor) -> None:
    """Fills ``into``: the kernel may well give less at a time."""
    while into:
        got = file.readinto(into)
        if not got:
            raise bad_checkpoint(
                tensor.path.name, f"it ends within tensor {shown(tensor.name)}: it was cut short"
            )
        into = into[got:]


def _not_finite(
    tensor: StoredTensor, begin: int, magnitudes: Floats, base: StoredTensor | None
) -> Exception:
    at = begin + int(np.argmin(np.isfinite(magnitudes)))
    what = "a weight" if base is None else "a difference"
    return bad_checkpoint(
        tensor.path.name,
        f"tensor {shown(tensor.name)} has {what} that is infinite or NaN as float32, "
        f"at element {at}",
    )


def _check_base(checkpoint: Checkpoint, base: Checkpoint) -> None:
    """Names and shapes must agree; the message lists the first few that do not."""
    mine = {tensor.name: tensor.shape for tensor in checkpoint.tensors}
    theirs = {tensor.name: tensor.shape for tensor in base.tensors}
    groups = {
        "missing in the base": sorted(mine.keys() - theirs.keys()),
        "only in the base": sorted(theirs.keys() - mine.keys()),
        "of another shape": [
            f"{name} ({list(shape)}, in the base {list(theirs[name])})"
            for name, shape in mine.items()
            if name in theirs and theirs[name] != shape
        ],
    }
    wrong = [f"{_listed(names)} {what}" for what, names in groups.items() if names]
    if wrong:
        raise SpaceMismatch(
            f"{base.name} is no base of {checkpoint.name}, its tensors differ: {'; '.join(wrong)}"
        )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(islice(names, 3)) + more
