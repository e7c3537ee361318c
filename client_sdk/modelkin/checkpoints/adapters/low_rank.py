"""``Adapter``: an adapter on disk as a checkpoint of the differences that it makes.

Its tensors are those of the base that it targets, under their names there. Their values are
|ΔW| = (α/r) |BA|, or LoHa's or LoKr's: they are formed block by block from the factors in the file,
and are never whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modelkin.checkpoints.dtypes import FLOATS, INTEGERS, decode
from modelkin.checkpoints.files import Checkpoint
from modelkin.checkpoints.header import bad_checkpoint, read_metadata
from modelkin.checkpoints.tensors import StoredTensor
from modelkin.core.adapters import (
    CONFIG_NAME,
    MAX_CONFIG_BYTES,
    AdapterConfig,
    Configs,
    Factor,
    Update,
    adapter_updates,
    component_of,
    flat_name,
    has_factors,
    is_of_adapter,
    matrix_shape,
    module_of,
    needs_config,
    part_of,
)
from modelkin.core.foreign_json import decode_json, with_constants_as_texts
from modelkin.core.quoting import quote
from modelkin.errors import SpaceMismatch

__all__ = ["ADAPTER_FILES", "Adapter", "LowRankTensor", "adapter_of", "is_adapter", "targets_of"]

_WEIGHTS: Final = "adapter_model.safetensors"
ADAPTER_FILES: Final = (_WEIGHTS, "pytorch_lora_weights.safetensors")
"""The names that PEFT and diffusers give to the files of adapters."""
_METADATA: Final = "lora_adapter_metadata"
"""Where diffusers writes the configurations of all components into a header."""


@dataclass(frozen=True, slots=True)
class FileFactor:
    """A factor in a file."""

    tensor: StoredTensor

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    @property
    def dtype(self) -> str:
        return self.tensor.dtype

    def part(self, rows: slice, columns: slice) -> npt.NDArray[Any]:
        height, width = matrix_shape(self.shape)
        (top, bottom, _), (left, right, _) = rows.indices(height), columns.indices(width)
        raw = self.tensor.rectangle(width, slice(top, bottom), slice(left, right))
        return decode(raw.reshape(-1), self.dtype).reshape(bottom - top, right - left)


@dataclass(frozen=True, slots=True)
class LowRankTensor(StoredTensor):
    """A difference that an adapter makes, with the name of the tensor in the base.

    Its shape is that of the tensor, too; of a kernel that of a matrix with the same entries.

    Attributes:
        update: the update, by its factors.
    """

    update: Update

    def magnitudes(self) -> Iterator[npt.NDArray[np.float32]]:
        """Yield its magnitudes, flat, a block at a time; raises InvalidCheckpoint."""
        return self.update.magnitudes()


@dataclass(frozen=True)
class Adapter(Checkpoint):
    """The differences of an adapter, sorted by the names of the base's tensors.

    Attributes:
        config: the configuration beside the adapter; None where the file says all itself.
        algorithm: ``"LoRA"``, ``"LoHa"`` or ``"LoKr"``; several are joined by ``" and "``.
    """

    config: AdapterConfig | None
    algorithm: str

    @property
    def kind(self) -> str:
        return "delta"

    @property
    def base_name(self) -> str | None:
        """The name of the base, as far as the configuration has it."""
        return None if self.config is None else self.config.base

    @property
    def measure(self) -> str:
        """What its importance is, in a formula."""
        return "|BA|" if self.algorithm == "LoRA" else "|ΔW|"

    @property
    def notes(self) -> tuple[str, ...]:
        of = f" of {quote(self.base_name)}" if self.base_name else ""
        return (
            *self.remarks,
            f"it is a {self.algorithm} adapter{of}: its importance is {self.measure} of the "
            f"tensors that it targets, which compares with adapters of the same tensors alone",
        )

    def targets_in(self, base: Checkpoint) -> tuple[StoredTensor, ...]:
        """The tensors of a base that this adapter changes, in the order of its own.

        A base may be one component of a pipeline, whose tensors do not name it.

        Raises:
            SpaceMismatch: the base lacks a tensor, or has another shape; names the first.
        """
        held: dict[str, StoredTensor] = {}
        for tensor in base.tensors:
            module, dot, last = tensor.name.rpartition(".")
            held[_key(module_of(module).name + dot + last)] = tensor
        return tuple(_target_in(held, tensor, self, base) for tensor in self.tensors)


def _key(name: str) -> str:
    """A tensor's name in which all spellings agree, also those of CLIP's text encoders."""
    return flat_name(name).replace("text_model_", "")


def _target_in(
    held: Mapping[str, StoredTensor], target: StoredTensor, adapter: Adapter, base: Checkpoint
) -> StoredTensor:
    """The tensor that is a target of an adapter, among a base's by their keys."""
    inner = target.name.removeprefix(f"{component_of(target.name)}.")
    found = held.get(_key(target.name)) or held.get(_key(inner))
    if found is None:
        raise SpaceMismatch(
            f"the adapter {adapter.name} targets {quote(target.name)}, which its base "
            f"{base.name} does not have: give the base that it was trained on"
        )
    if matrix_shape(found.shape) != target.shape:
        remedy = (
            f"its {CONFIG_NAME} says fan_in_fan_out the wrong way round"
            if found.shape == target.shape[::-1]
            else "give the base that it was trained on"
        )
        raise SpaceMismatch(
            f"the adapter {adapter.name} has {quote(target.name)} with shape "
            f"{list(target.shape)}, its base {base.name} with {list(found.shape)}: {remedy}"
        )
    return found


def is_adapter(source: Path, named: Mapping[str, StoredTensor], excluded: set[str]) -> bool:
    """Whether a checkpoint is an adapter, by the name of its file or of its tensors.

    One of weights and factors is not where the factors are excluded.
    """
    if source.name in ADAPTER_FILES:
        return True
    left = [name for name in named if name not in excluded]
    return has_factors(left or named)


def targets_of(
    source: Path, named: Mapping[str, StoredTensor]
) -> tuple[AdapterConfig | None, dict[str, LowRankTensor]]:
    """The configuration beside an adapter's file, and the differences of its targets by name.

    Args:
        source: the file; ``named`` its tensors.

    Raises:
        InvalidCheckpoint: there is no configuration where one is needed, or it is of no adapter
            that is read, or does not fit the tensors.
        OSError: a file cannot be read.
    """
    _refuse_mixed(source, named)
    parts = {name: part_of(name) for name in named}
    configured = any(part is None or part.configured for part in parts.values())
    configs = _configs(source, named, configured)
    for name, tensor in named.items():
        part = parts[name]
        if part is None:  # refused by its name, below
            continue
        if tensor.dtype not in FLOATS and (part.algorithm or tensor.dtype not in INTEGERS):
            raise bad_checkpoint(
                source.name,
                f"tensor {quote(tensor.name)} is {tensor.dtype}: factors are floats, save the "
                f"adapter in half precision or more",
            )
    factors: dict[str, Factor] = {name: FileFactor(tensor) for name, tensor in named.items()}
    updates = adapter_updates(factors, configs, source.name)
    return configs.get(""), {update.name: _tensor(update, source) for update in updates}


def adapter_of(
    path: str | Path,
    source: Path,
    config: AdapterConfig | None,
    targets: Mapping[str, LowRankTensor],
    excluded: set[str],
) -> Adapter:
    """The adapter of these differences without the excluded ones.

    Raises:
        InvalidCheckpoint: none is left.
    """
    kept = tuple(tensor for name, tensor in targets.items() if name not in excluded)
    if not kept:
        raise bad_checkpoint(
            source.name, f"exclude leaves out all {len(excluded)} tensors that it targets"
        )
    algorithms = " and ".join(sorted({tensor.update.algorithm for tensor in kept}))
    return Adapter(Path(path), kept, (), tuple(sorted(excluded)), config, algorithms)


def _configs(source: Path, named: Mapping[str, StoredTensor], configured: bool) -> Configs:
    """The configurations of an adapter: of the file beside it, else of its own metadata.

    Args:
        configured: whether its factors have names that PEFT gives them.
    """
    beside = source.parent / CONFIG_NAME
    if (configured or source.name == _WEIGHTS) and beside.is_file():
        with beside.open("rb") as file:
            return {"": AdapterConfig.from_json(file.read(MAX_CONFIG_BYTES + 1))}
    own = _configs_in(source)
    if not own and (needs_config(named) or source.name == _WEIGHTS):
        raise bad_checkpoint(
            source.name,
            f"it holds the factors of an adapter, and no {CONFIG_NAME} lies beside it: put there "
            f"what PEFT saved with it",
        )
    return own


def _configs_in(source: Path) -> Configs:
    """The configurations that diffusers wrote into a header, by component."""
    text = read_metadata(source).get(_METADATA)
    if not text:
        return {}
    where = f"{source.name}, {_METADATA}"
    if len(text) > MAX_CONFIG_BYTES:
        raise bad_checkpoint(where, f"it has more than the {MAX_CONFIG_BYTES} bytes that are read")
    try:
        fields = decode_json(with_constants_as_texts(text.encode()), dict[str, Any])
    except ValueError as error:
        raise bad_checkpoint(where, f"it is no object of JSON: {error}") from None
    found: dict[str, dict[str, Any]] = {}
    for name, value in fields.items():
        component = component_of(name) or ""
        found.setdefault(component, {})[name.removeprefix(f"{component}.")] = value
    return {name: AdapterConfig.of(fields, where) for name, fields in found.items()}


def _refuse_mixed(source: Path, named: Mapping[str, StoredTensor]) -> None:
    """Refuse a model that holds adapters beside its own weights."""
    weights = [name for name in named if part_of(name) is None and not is_of_adapter(name)]
    if source.name in ADAPTER_FILES or 2 * len(weights) < len(named):
        return
    factors = next(name for name in named if is_of_adapter(name))
    raise bad_checkpoint(
        source.name,
        f"it holds the factors of adapters, such as {quote(factors)}, beside {len(weights)} other "
        f"tensors, such as {quote(weights[0])}: exclude the factors, to compare the weights alone",
    )


def _tensor(update: Update, source: Path) -> LowRankTensor:
    return LowRankTensor(update.name, update.dtype, update.shape, source, 0, update)
