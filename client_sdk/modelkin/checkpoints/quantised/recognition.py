"""Which tensors of a checkpoint are quantised, and by which scheme: names and statements say it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from modelkin.checkpoints.quantised import (
    awq,
    bitsandbytes,
    compressed,
    fours,
    gptq,
    mlx,
    scaled,
    unread,
)
from modelkin.checkpoints.quantised.contents import Contents, Found
from modelkin.checkpoints.quantised.statement import read_statement
from modelkin.checkpoints.quantised.tensor import bytes_of
from modelkin.checkpoints.tensors import StoredTensor
from modelkin.errors import InvalidCheckpoint

__all__ = ["Recognition", "recognise"]

_FAMILIES: Final[tuple[Callable[[Contents], None], ...]] = (
    unread.find_comfy,
    gptq.find,
    awq.find,
    bitsandbytes.find,
    scaled.find_scb,
    mlx.find,
    fours.find_blocks,
    fours.find_packed,
    compressed.find,
    fours.find,
    scaled.find,
    unread.find_rotated,
    unread.find,
)
"""Each takes its tensors, by their names, types and sizes; later ones see what is left."""

_ASIDE: Final = (
    *("input_scale", "scale_input", "output_scale", "activation_scale", "qscale_act"),
    *("k_scale", "v_scale", "q_scale", "kv_scale", "input_global_scale", "input_zero_point"),
    *("scaled_fp8", "weight_format"),
)
"""The ends of names beside quantised tensors that say nothing of weights."""


@dataclass(frozen=True, slots=True)
class Recognition:
    """The tensors of a checkpoint.

    Attributes:
        stored: all names, as they are stored.
        plain: those that are as they are stored, by name.
        found: the quantised ones, by the names that they had before.
    """

    stored: Collection[str]
    plain: Mapping[str, StoredTensor]
    found: Mapping[str, Found]

    @property
    def names(self) -> list[str]:
        """The names of all tensors, before quantisation and as they are stored."""
        return [*dict.fromkeys((*self.stored, *self.found))]

    def divide(self, excluded: set[str]) -> tuple[dict[str, StoredTensor], set[str]]:
        """All tensors by their names, sorted, and the names of those that are left out.

        Args:
            excluded: names; a quantised tensor goes with any of its parts. One that cannot be read
                goes as the bytes of its parts, by which exact copies are known.

        Raises:
            InvalidCheckpoint: a tensor that is not left out is quantised by a scheme that is not
                read, or damaged.
        """
        tensors, gone = dict(self.plain), excluded & self.plain.keys()
        for name, found in self.found.items():
            left_out = name in excluded or any(part.name in excluded for part in found.parts)
            try:
                tensors[name] = found.make()
            except InvalidCheckpoint:
                if not left_out:
                    raise
                parts = {part.name: bytes_of(part) for part in found.parts}
                tensors |= parts
                gone |= parts.keys()
            else:
                gone |= {name} if left_out else set()
        return dict(sorted(tensors.items())), gone


def recognise(named: Mapping[str, StoredTensor], beside: Iterable[Path] = ()) -> Recognition:
    """Find the quantised tensors of a checkpoint.

    Args:
        named: its tensors.
        beside: the small files in its folder, of which configurations are read.

    Raises:
        OSError: a file cannot be read.
    """
    contents = Contents(named, read_statement(beside))
    for find in _FAMILIES:
        find(contents)
    if contents.found:
        for name in named:
            last = name.rpartition(".")[2]
            if last in _ASIDE or last.endswith(tuple(f"_{each}" for each in _ASIDE)):
                contents.taken.add(name)
    plain = {name: tensor for name, tensor in named.items() if name not in contents.taken}
    return Recognition(named.keys(), plain, contents.found)
