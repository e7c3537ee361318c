"""Write layers of a model to a file, and load them into another: ``cut_learngene`` and ``inherit``.

Files are safetensors, so nothing in them is executed. A model is changed as a whole or not at all:
everything is checked before the first value is written.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from modelkin._whole_files import WholeFile, require_ordinary
from modelkin.core.learngenes import manifest
from modelkin.core.learngenes.manifest import LearngeneTensor
from modelkin.core.safetensors_header import LENGTH_BYTES, header_of
from modelkin.errors import InvalidLearngene, InvalidParameter, LearngeneMismatch
from modelkin.federation.learngenes.layers import CutLearngene, LayerChoice
from modelkin.torch.layout import parameters_of
from modelkin.torch.vector import is_sharded, join_names, wide_dtype

__all__ = ["CutLearngene", "Inherited", "cut_learngene", "inherit", "read_learngene"]

_DTYPES: Final = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.float8_e4m3fnuz: "F8_E4M3FNUZ",
    torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
}
"""The types of a learngene's tensors, and their names in safetensors."""


@dataclass(frozen=True, slots=True)
class Inherited:
    """The result of :func:`inherit`.

    Attributes:
        loaded: the names of the tensors that were loaded, in the model's order.
        left: the names of the model's other tensors, in the same order.
        kept: whether the loaded tensors are frozen.
        digest: ``sha256:`` and the digest of the file, in hex.
    """

    loaded: tuple[str, ...]
    left: tuple[str, ...]
    kept: bool
    digest: str


@torch.no_grad()
def cut_learngene(
    model: nn.Module,
    path: str | os.PathLike[str],
    *,
    depth: int | None = None,
    share: float | None = None,
    tensors: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    order: Sequence[str] = (),
    buffers: bool = False,
) -> CutLearngene:
    """Write some whole layers of a model to a safetensors file; by default all but the head.

    A layer is a module that owns tensors. Layers are in the order of the model's parameters, and
    the last one counts as the head.

    Args:
        model: any model, in any precision; it is not changed.
        path: the file's path. An old file is replaced when the new one is whole.
        depth: the number of layers from the input on, but never the head.
        share: a share of the bytes of all layers, above 0 and at most 1: as many layers from the
            input on as fit, but never the head.
        tensors: shell patterns of the names of tensors in their place; ``["*"]`` for the whole
            model.
        exclude: shell patterns of names to leave out of the choice.
        order: shell patterns of layers, from the input on, where the model registers them in
            another order; layers that match none come last.
        buffers: whether buffers of floats go with their layers. Statistics of batches say much
            about the data and fit it alone, so they stay private by default, as in FedBN. A module
            that owns buffers alone is then a layer, too.

    Raises:
        InvalidParameter: the choice leaves nothing, or a part of a layer; a tensor is sharded,
            without values, complex, quantised or not finite; ``path`` is not an ordinary file.
        InvalidLayout: see :func:`modelkin.torch.layout_of`.
        OSError: the file cannot be written.
    """
    choice = LayerChoice(depth, share, tensors, exclude, order)
    held = _state_tensors(model, buffers=buffers)
    sizes = {name: tensor.numel() * tensor.element_size() for name, tensor in held.items()}
    layers = choice.choose(sizes.items())
    chosen = {name: held[name] for layer in layers for name in layer.tensors}
    for name, tensor in chosen.items():
        _check_readable(name, tensor)
        if not _is_finite(tensor):
            raise InvalidParameter(
                f"{name!r} has a value that is NaN or infinite: the model has diverged",
                field="model",
            )
    target = Path(path)
    size, digest = _write(chosen, target)
    return CutLearngene(
        target,
        tuple(layer.name for layer in layers),
        tuple(chosen),
        size,
        sum(layer.size for layer in layers) / sum(sizes.values()),
        digest,
    )


def inherit(
    model: nn.Module,
    path: str | os.PathLike[str],
    *,
    keep: bool = False,
    exclude: Iterable[str] = (),
    digest: str | None = None,
) -> Inherited:
    """Load a learngene into a model by names and shapes: all of it, or nothing.

    The other tensors stay as they are. Values are rounded if the model has another dtype.

    Args:
        model: a model with the learngene's layers, as you initialised it, on any device. Its other
            layers may be of any architecture.
        path: a safetensors file, as ``cut_learngene`` writes it.
        keep: whether the loaded tensors stay as they are: parameters are frozen
            (``requires_grad=False``), and modules with loaded buffers stay in evaluation mode, so
            that these buffers do not move either. Inherit before you make the optimizer.
        exclude: shell patterns of tensors of the file to leave out, such as ``"head.*"``.
        digest: the file's digest, as its manifest has it; None to accept any.

    Raises:
        LearngeneMismatch: the digest differs; the model lacks a tensor of the file or has it in
            another shape; nothing is left to load. The model is not changed.
        InvalidLearngene: the file is not safetensors, damaged, or has values that are not finite.
            The model is not changed.
        InvalidParameter: the model's own tensor is sharded, without values, complex or quantised.
        OSError: the file cannot be read.
    """
    if isinstance(exclude, str):
        raise InvalidParameter("exclude is one string; give a list of patterns", field="exclude")
    source = Path(path)
    tensors, found = read_learngene(source, digest)
    targets = _load_pairs(model, tensors, tuple(exclude), source.name)
    _load(targets)
    if keep:
        _keep(model, [target for target, _ in targets])
    loaded = {id(target) for target, _ in targets}
    own = _state_tensors(model, buffers=True)
    return Inherited(
        tuple(name for name, tensor in own.items() if id(tensor) in loaded),
        tuple(name for name, tensor in own.items() if id(tensor) not in loaded),
        keep,
        found,
    )


def read_learngene(path: Path, digest: str | None = None) -> tuple[dict[str, Tensor], str]:
    """The tensors of a learngene's file in this machine's memory, and the digest of the file.

    The file is read once, so the checked bytes are the ones that are used.

    Raises:
        LearngeneMismatch: the file has another digest than ``digest``.
        InvalidLearngene: the file is not safetensors, damaged, or has values that are not finite.
        InvalidParameter: the path is not of an ordinary file.
        OSError: the file cannot be read.
    """
    data = _bytes_of(path)
    found = manifest.digest_of(data)
    if digest is not None and digest != found:
        raise LearngeneMismatch(
            f"{path.name} has the digest {found}, and not {digest}: get it again"
        )
    try:
        length = manifest.header_bytes(bytes(data[:LENGTH_BYTES]), len(data))
        header = bytes(data[LENGTH_BYTES : LENGTH_BYTES + length])
        entries = manifest.tensors_of(header, len(data))
        manifest.check_finite(data, entries)
    except InvalidLearngene as error:
        raise InvalidLearngene(f"{path.name}: {error}", field=error.field) from None
    dtypes = {word: dtype for dtype, word in _DTYPES.items()}
    tensors = {}
    for entry in entries:
        part = memoryview(data)[entry.begin : entry.end]
        if entry.begin % dtypes[entry.dtype].itemsize:  # another writer may not align tensors
            part = memoryview(bytearray(part))
        tensors[entry.name] = (
            torch.frombuffer(part, dtype=dtypes[entry.dtype]).reshape(entry.shape)
            if part.nbytes
            else torch.empty(entry.shape, dtype=dtypes[entry.dtype])
        )
    return tensors, found


def _bytes_of(path: Path) -> bytearray:
    if path.exists() and not path.is_file():
        raise InvalidParameter(f"{path} is not an ordinary file", field="path")
    with path.open("rb") as file:
        data = bytearray(os.fstat(file.fileno()).st_size)
        read = file.readinto(data)
    return data[:read]


def _state_tensors(model: nn.Module, *, buffers: bool) -> dict[str, Tensor]:
    """Parameters, and buffers of floats that are saved, each under its first name, in order."""
    found: dict[str, Tensor] = dict(parameters_of(model))
    if not buffers:
        return found
    saved = model.state_dict(keep_vars=True)
    own = {n: b for n, b in model.named_buffers() if b.is_floating_point() and n in saved}
    every = {**found, **own}
    places = {name: at for at, name in enumerate(saved)}
    return dict(sorted(every.items(), key=lambda item: places.get(item[0], len(places))))


def _load_pairs(
    model: nn.Module, tensors: dict[str, Tensor], exclude: Sequence[str], where: str
) -> list[tuple[Tensor, Tensor]]:
    """Pairs of a tensor of the model and its new value, in the model's dtype."""
    wanted = {n: t for n, t in tensors.items() if not any(fnmatchcase(n, p) for p in exclude)}
    if not wanted:
        raise LearngeneMismatch(f"{where}: nothing is left to load of its {len(tensors)} tensors")
    parameters_of(model)  # refuses lazy parameters without a shape
    # Second names of tied tensors, too: the file has one of them.
    own: dict[str, Tensor] = dict(model.named_parameters(remove_duplicate=False))
    saved = model.state_dict(keep_vars=True)
    own |= {n: b for n, b in model.named_buffers(remove_duplicate=False) if n in saved}
    _check_fit(wanted, own, where)
    staged, taken = [], dict[int, str]()
    for name, values in wanted.items():
        target = own[name]
        _check_readable(name, target)
        if id(target) in taken:
            raise LearngeneMismatch(
                f"{where}: it has both {taken[id(target)]!r} and {name!r}, which are one tensor of "
                f"the model"
            )
        taken[id(target)] = name
        rounded = values.to(target.dtype)
        if not _is_finite(rounded):
            raise LearngeneMismatch(
                f"{where}: tensor {name!r} has a value beyond {target.dtype}, which the model has"
            )
        staged.append((target, rounded))
    return staged


def _check_fit(tensors: dict[str, Tensor], own: dict[str, Tensor], where: str) -> None:
    if not any(name in own and own[name].shape == tensor.shape for name, tensor in tensors.items()):
        raise LearngeneMismatch(
            f"{where}: the model has none of its {len(tensors)} tensors by name and shape "
            f"({join_names(n[:80] for n in tensors)}): the two architectures share no layer"
        )
    unknown = [name for name in tensors if name not in own]
    if unknown:
        raise LearngeneMismatch(
            f"{where}: the model has no tensor {join_names(n[:80] for n in unknown)}: exclude "
            f"what does not belong to it"
        )
    shapes = [
        f"{name} {tuple(tensor.shape)} instead of {tuple(own[name].shape)}"
        for name, tensor in tensors.items()
        if tensor.shape != own[name].shape
    ]
    if shapes:
        raise LearngeneMismatch(
            f"{where}: tensors have other shapes than the model's: {join_names(shapes)}; exclude "
            f"them, or build the model as theirs"
        )


def _check_readable(name: str, tensor: Tensor) -> None:
    problem = None
    if is_sharded(tensor):
        problem = "sharded: gather the model first"
    elif tensor.is_meta:
        problem = "on the meta device, without values: materialise the model first"
    elif tensor.dtype not in _DTYPES:
        problem = f"{tensor.dtype}, and a learngene has real floats alone"
    if problem is not None:
        raise InvalidParameter(f"{name!r} of the model is {problem}", field="model")


@torch.no_grad()
def _load(targets: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Write the new values; restore the old ones after any error or interruption."""
    replaced: list[tuple[Tensor, Tensor]] = []
    try:
        for target, values in targets:
            replaced.append((target, target.detach().to("cpu", copy=True)))
            target.copy_(values)
    except BaseException:
        for target, old in replaced[:-1]:
            target.copy_(old)
        # The last one may have failed before it was written, and would fail again.
        with contextlib.suppress(RuntimeError):
            replaced[-1][0].copy_(replaced[-1][1])
        raise


def _keep(model: nn.Module, loaded: Sequence[Tensor]) -> None:
    """Freeze the loaded tensors."""
    inherited = {id(tensor) for tensor in loaded}
    for tensor in loaded:
        if isinstance(tensor, nn.Parameter):
            tensor.requires_grad_(False)
            tensor.grad = None  # an optimizer would still use it
    for module in model.modules():
        if any(id(buffer) in inherited for buffer in module.buffers(recurse=False)):
            module.register_forward_pre_hook(_stay_in_evaluation)


def _stay_in_evaluation(module: nn.Module, _: Any) -> None:
    """Set evaluation mode before a forward pass, since ``model.train()`` ends it; skip children."""
    module.training = False


def _write(tensors: dict[str, Tensor], target: Path) -> tuple[int, str]:
    """Write a file under another name, then rename it, so that it is never partial.

    Returns:
        The number of bytes, and the digest.
    """
    require_ordinary(target)
    declared = [
        LearngeneTensor(name, _DTYPES[tensor.dtype], tuple(tensor.shape))
        for name, tensor in tensors.items()
    ]
    entries, header = header_of(declared)
    digest, size = hashlib.sha256(), 0
    with WholeFile(target) as whole:
        for part in chain([header], (_raw(tensors[entry.name]) for entry in entries)):
            digest.update(part)
            size += whole.file.write(part)
        whole.finish()
    return size, f"sha256:{digest.hexdigest()}"


def _raw(tensor: Tensor) -> bytes:
    """The bytes of a tensor's values."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def _is_finite(tensor: Tensor) -> bool:
    return bool(torch.isfinite(tensor.to(wide_dtype(tensor))).all())
