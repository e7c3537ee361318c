"""``Adapter``: a LoRA adapter on disk as a checkpoint of the differences that it makes.

Its tensors are those of the base that it targets, under their names there. Their values are
|ΔW| = (α/r) |BA|: they are formed block by block from the factors in the file, and are never whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modelkin.checkpoints.dtypes import FLOATS
from modelkin.checkpoints.files import Checkpoint
from modelkin.checkpoints.header import bad_checkpoint
from modelkin.checkpoints.tensors import StoredTensor
from modelkin.core.adapters import (
    CONFIG_NAME,
    MAX_CONFIG_BYTES,
    AdapterConfig,
    Factor,
    LowRankUpdate,
    has_factors,
    low_rank_updates,
)
from modelkin.core.quoting import quote
from modelkin.errors import SpaceMismatch

__all__ = ["Adapter", "LowRankTensor", "adapter_of", "is_adapter", "targets_of"]

_WEIGHTS: Final = "adapter_model.safetensors"


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
        height, width = self.shape
        (top, bottom, _), (left, right, _) = rows.indices(height), columns.indices(width)
        if right - left == width:
            return self.tensor.part(top * width, bottom * width).reshape(-1, width)
        starts = range(top * width, bottom * width, width)
        return np.stack([self.tensor.part(at + left, at + right) for at in starts])


@dataclass(frozen=True, slots=True)
class LowRankTensor(StoredTensor):
    """A difference that an adapter makes, with the name and shape of the tensor in the base.

    Attributes:
        update: the update, by its factors.
    """

    update: LowRankUpdate

    def magnitudes(self) -> Iterator[npt.NDArray[np.float32]]:
        """Yield its magnitudes, flat, a block at a time; raises InvalidCheckpoint."""
        return self.update.magnitudes()


@dataclass(frozen=True)
class Adapter(Checkpoint):
    """The differences of a LoRA adapter, sorted by the names of the base's tensors.

    Attributes:
        config: the configuration of the adapter.
    """

    config: AdapterConfig

    @property
    def kind(self) -> str:
        return "delta"

    @property
    def notes(self) -> tuple[str, ...]:
        of = f" of {quote(self.config.base)}" if self.config.base else ""
        return (
            *self.remarks,
            f"it is a LoRA adapter{of}: its importance is |BA| of the tensors that it targets, "
            f"which compares with adapters of the same tensors alone",
        )

    def require_targets_in(self, base: Checkpoint) -> None:
        """Require that a base has the tensors that this adapter changes, in the same shapes.

        Raises:
            SpaceMismatch: the base lacks a tensor, or has another shape; names the first.
        """
        held = {tensor.name: tensor.shape for tensor in base.tensors}
        for tensor in self.tensors:
            if tensor.name not in held:
                raise SpaceMismatch(
                    f"the adapter {self.name} targets {quote(tensor.name)}, which its base "
                    f"{base.name} does not have: give the base that it was trained on"
                )
            if held[tensor.name] != tensor.shape:
                turned = held[tensor.name] == tensor.shape[::-1]
                remedy = (
                    f"its {CONFIG_NAME} says fan_in_fan_out the wrong way round"
                    if turned
                    else "give the base that it was trained on"
                )
                raise SpaceMismatch(
                    f"the adapter {self.name} has {quote(tensor.name)} with shape "
                    f"{list(tensor.shape)}, its base {base.name} with {list(held[tensor.name])}: "
                    f"{remedy}"
                )


def is_adapter(source: Path, named: Mapping[str, StoredTensor]) -> bool:
    """Whether a checkpoint is an adapter, by the name of its file or of its tensors."""
    return source.name == _WEIGHTS or has_factors(named)


def targets_of(
    source: Path, named: Mapping[str, StoredTensor]
) -> tuple[AdapterConfig, dict[str, LowRankTensor]]:
    """The configuration beside an adapter's file, and the differences of its targets by name.

    Args:
        source: the file; ``named`` its tensors.

    Raises:
        InvalidCheckpoint: there is no configuration, or it is not of LoRA, or does not fit the
            tensors.
        OSError: the configuration cannot be read.
    """
    beside = source.parent / CONFIG_NAME
    if not beside.is_file():
        raise bad_checkpoint(
            source.name,
            f"it holds the factors of an adapter, and no {CONFIG_NAME} lies beside it: put there "
            f"what PEFT saved with it",
        )
    with beside.open("rb") as file:
        config = AdapterConfig.from_json(file.read(MAX_CONFIG_BYTES + 1))
    for tensor in named.values():
        if tensor.dtype not in FLOATS:
            raise bad_checkpoint(
                source.name,
                f"tensor {quote(tensor.name)} is {tensor.dtype}: factors are floats, save the "
                f"adapter in half precision or more",
            )
    factors: dict[str, Factor] = {name: FileFactor(tensor) for name, tensor in named.items()}
    updates = low_rank_updates(factors, config, source.name)
    return config, {update.name: _tensor(update, source) for update in updates}


def adapter_of(
    path: str | Path,
    source: Path,
    config: AdapterConfig,
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
    return Adapter(Path(path), kept, (), tuple(sorted(excluded)), config)


def _tensor(update: LowRankUpdate, source: Path) -> LowRankTensor:
    return LowRankTensor(update.name, update.a.dtype, update.shape, source, 0, update)
