"""The factors of an adapter by their names, paired and checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from modelkin.core.adapters.config import AdapterConfig
from modelkin.core.adapters.updates import MAX_KEPT, Factor, LowRankUpdate
from modelkin.errors import InvalidCheckpoint

__all__ = ["FactorName", "factor_of", "has_factors", "low_rank_updates"]

_PREFIX: Final = "base_model.model."
_LINEAR: Final = re.compile(r"(.+)\.lora_([AB])(?:\.([^.]+))?\.weight")
_EMBEDDING: Final = re.compile(r"(.+)\.lora_embedding_([AB])(?:\.([^.]+))?")
_OTHERS: Final = {
    "lora_magnitude_vector": "it is of DoRA (use_dora), whose differences are not BA",
    ".lora_B.": "the factors have biases (lora_bias)",
    ".modules_to_save.": "it is of a module that was trained whole (modules_to_save)",
}


@dataclass(frozen=True, slots=True)
class FactorName:
    """The parts of the name of a factor.

    Attributes:
        module: the name of the module in the base.
        side: ``"A"`` or ``"B"``.
        embedding: whether it is of an embedding.
        adapter: the name of the adapter, which PEFT leaves out of files.
    """

    module: str
    side: str
    embedding: bool
    adapter: str | None


def factor_of(name: str) -> FactorName | None:
    """Read the name of a tensor as that of a factor; None if it is not one.

    Args:
        name: as PEFT saves it, or as the model itself has it, with the adapter's name in it.
    """
    for expression, embedding in ((_LINEAR, False), (_EMBEDDING, True)):
        found = expression.fullmatch(name)
        if found is not None:
            return FactorName(found[1].removeprefix(_PREFIX), found[2], embedding, found[3])
    return None


def has_factors(names: Mapping[str, object]) -> bool:
    """Whether a tensor among these is a factor of an adapter."""
    return any(factor_of(name) is not None for name in names)


def low_rank_updates(
    factors: Mapping[str, Factor], config: AdapterConfig, where: str
) -> tuple[LowRankUpdate, ...]:
    """The differences of an adapter, sorted by the names of the base's tensors.

    Args:
        factors: all tensors of the adapter, by name.
        config: the configuration of the adapter.
        where: the name of the file or model for errors.

    Raises:
        InvalidCheckpoint: a tensor that is not a factor, a factor without the other, shapes that do
            not fit, a rank other than the configuration's, factors of two adapters, or no factor.
    """
    pairs = _pairs(factors, where)
    config.require_patterns_for(pairs)
    updates = [_update(module, sides, config, where) for module, sides in pairs.items()]
    return tuple(sorted(updates, key=lambda update: update.name))


_Sides = dict[str, tuple[Factor, bool]]
"""The factors A and B of a module, and whether it is an embedding."""


def _pairs(factors: Mapping[str, Factor], where: str) -> dict[str, _Sides]:
    """The factors by module and side."""
    pairs: dict[str, _Sides] = {}
    first: FactorName | None = None
    for name, factor in factors.items():
        found = factor_of(name)
        if found is None:
            raise _no_factor(where, name)
        first = first or found
        if found.adapter != first.adapter:
            raise InvalidCheckpoint(
                f"{where}: it holds several adapters, {name[:100]!a} is of another: save one alone"
            )
        sides = pairs.setdefault(found.module, {})
        if found.side in sides:
            raise InvalidCheckpoint(
                f"{where}: {found.module!a} has two factors {found.side}: save the adapter again"
            )
        sides[found.side] = factor, found.embedding
    if not pairs:
        raise InvalidCheckpoint(
            f"{where}: it holds no factors lora_A and lora_B: save the adapter again"
        )
    return pairs


def _update(module: str, sides: _Sides, config: AdapterConfig, where: str) -> LowRankUpdate:
    """Check the two factors of a difference, and put them together."""
    for side in "AB":
        if side not in sides:
            raise InvalidCheckpoint(
                f"{where}: {module!a} has no lora_{side}: the file is incomplete, save it again"
            )
    (a, embedding), (b, b_embedding) = sides["A"], sides["B"]
    if embedding != b_embedding:
        raise InvalidCheckpoint(
            f"{where}: {module!a} has one factor as a layer and one as an embedding: save it again"
        )
    config.require_target(module)
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise InvalidCheckpoint(
            f"{where}: the factors of {module!a} have shapes {list(a.shape)} and {list(b.shape)}, "
            f"as those of a convolution: only linear layers and embeddings can be compared; merge "
            f"the adapter into its base (merge_and_unload) and give the merged model with its base"
        )
    if a.shape[0] != b.shape[1]:
        raise InvalidCheckpoint(
            f"{where}: lora_A {list(a.shape)} and lora_B {list(b.shape)} of {module!a} do not fit: "
            f"A has the rank {a.shape[0]} and B {b.shape[1]}; save the adapter again"
        )
    rank = config.rank_of(module)
    if a.shape[0] != rank:
        raise InvalidCheckpoint(
            f"{where}: the factors of {module!a} have the rank {a.shape[0]}, its configuration "
            f"says {rank} (r or rank_pattern): give the configuration that was saved with the file"
        )
    if not (a.shape[1] and b.shape[0]):
        raise InvalidCheckpoint(f"{where}: the factors of {module!a} are empty: save it again")
    transposed = embedding or config.transposed
    update = LowRankUpdate(f"{module}.weight", a, b, config.scale_of(module), transposed)
    if update.rank * update.shape[1] > MAX_KEPT:
        raise InvalidCheckpoint(
            f"{where}: the factors of {module!a}, of rank {update.rank} over {update.shape[1]} "
            f"columns, are beyond the {MAX_KEPT} entries that are kept: give the merged model"
        )
    return update


def _no_factor(where: str, name: str) -> InvalidCheckpoint:
    why = next((why for part, why in _OTHERS.items() if part in name), None)
    return InvalidCheckpoint(
        f"{where}: tensor {name[:100]!a} is not a factor lora_A or lora_B"
        f"{f', {why}' if why else ''}: merge the adapter into its base (merge_and_unload) and give "
        f"the merged model with its base"
    )
