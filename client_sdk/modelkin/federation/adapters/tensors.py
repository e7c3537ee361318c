"""Adapters as the tensors that trainers save: read with their scales, and written in any rank."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from modelkin.core.adapters import (
    AdapterConfig,
    ArrayFactor,
    Factor,
    LowRankUpdate,
    StoredScale,
    adapter_updates,
    matrix_shape,
    needs_config,
    part_of,
    scale_of,
)
from modelkin.errors import InvalidParameter
from modelkin.federation.adapters.low_rank import Adapter, LowRank, Matrix
from modelkin.federation.adapters.means import of_rank

__all__ = [
    "Tensors",
    "check_ranks",
    "config_of",
    "ranks_of",
    "read_adapter",
    "resized",
    "targeted_values",
    "with_alphas",
    "without_alphas",
    "write_adapter",
]

Array: TypeAlias = npt.NDArray[Any]
Tensors: TypeAlias = Mapping[str, Array]


def read_adapter(tensors: Tensors, config: Any = None) -> dict[str, LowRank]:
    """The differences that a LoRA adapter makes, by the names of the base's tensors.

    Args:
        tensors: factors by the names of PEFT, diffusers or kohya's trainers, and their alphas.
        config: the fields of ``adapter_config.json``, or PEFT's ``LoraConfig``. Only factors as
            PEFT names them need one, for their scale, and only without an alpha beside them.

    Raises:
        InvalidCheckpoint: another adapter than LoRA, a factor without the other one, an empty one,
            or factors that do not fit each other or the configuration; names the tensor.
        InvalidParameter: there is no configuration, or a value is NaN, infinite or no float.
    """
    return {update.name: _low_rank(update) for update in _updates(tensors, config)}


def write_adapter(adapter: Adapter, like: Tensors, config: Any = None) -> dict[str, Array]:
    """An adapter by the names, ranks, scales and dtypes of another one, such as a client's own.

    A difference of a higher rank is cut to the best approximation of that rank. One of a lower rank
    keeps its product: what is left of A is drawn, the same on every machine, and what is left of B
    is zero, as a training begins. (Zeros in both would never be trained.)

    Args:
        adapter: the differences, of the tensors that ``like`` targets.
        like: the tensors of an adapter; their values do not matter, but for those of alphas.
        config: the configuration of ``like``; see :func:`read_adapter`.

    Raises:
        InvalidCheckpoint, InvalidParameter: see :func:`read_adapter`; or the adapters are of other
            tensors or shapes.
    """
    updates = _updates(like, config)
    shapes = {update.name: update.shape for update in updates}
    if shapes != {name: each.shape for name, each in adapter.items()}:
        raise InvalidParameter(
            f"the adapter is of {_some(adapter)}, and not of {_some(shapes)}", field="like"
        )
    cut = of_rank(adapter, {update.name: update.rank for update in updates}).adapter
    found = {name: np.asarray(values) for name, values in like.items()}
    for update in updates:
        a, b = _factors(cut[update.name], update)
        for factor, values in ((_named(update.a), a), (_named(update.b), b)):
            found[factor.name] = values.reshape(factor.shape).astype(factor.values.dtype)
    return found


def check_ranks(tensors: Tensors) -> None:
    """Check that no difference has a higher rank than its shape, before its factors are copied.

    A larger one is no better, and the answer to it would be as large again.

    Raises:
        InvalidCheckpoint, InvalidParameter: see :func:`read_adapter`; or a rank is too high.
    """
    for update in _updates(tensors, None):
        if update.rank > min(update.shape):
            raise InvalidParameter(
                f"its {update.name[:200]!r} has rank {update.rank}, and a difference of shape "
                f"{list(update.shape)} has {min(update.shape)} at most: give it a lower r",
                field="adapter",
            )


def ranks_of(tensors: Tensors, config: Any = None) -> dict[str, int]:
    """The rank of each difference; raises as :func:`read_adapter`."""
    return {update.name: update.rank for update in _updates(tensors, config)}


def resized(
    tensors: Tensors, ranks: AdapterConfig | Mapping[str, int], config: Any = None
) -> dict[str, Array]:
    """Tensors of the same adapter in other ranks: zeros, and alphas of the same scale.

    Args:
        tensors: as for :func:`read_adapter`; ``config`` likewise.
        ranks: the rank of each difference, by the base's tensor or by a configuration.
    """
    found = {name: np.asarray(values) for name, values in tensors.items()}
    for update in _updates(tensors, config):
        a, b = _named(update.a), _named(update.b)
        rank = _rank(ranks, update.name, a.name)
        found[a.name] = np.zeros((rank, *a.shape[1:]), a.values.dtype)
        found[b.name] = np.zeros((len(b.values), rank, *b.shape[2:]), b.values.dtype)
        if isinstance(update.scale, StoredScale):
            alpha = _named(update.scale.alpha)
            found[alpha.name] = np.asarray(alpha.values * (rank / update.rank), np.float32)
    return found


def with_alphas(tensors: Tensors, config: Any) -> dict[str, Array]:
    """An adapter that says its scales itself, by an alpha beside each pair of factors.

    Raises:
        InvalidCheckpoint, InvalidParameter: see :func:`read_adapter`.
    """
    found = {name: np.asarray(values) for name, values in tensors.items()}
    for update in _updates(tensors, config):
        alpha = scale_of(update.scale, update.name) * update.rank
        found[_alpha_name(_named(update.a).name)] = np.array(alpha, np.float32)
    return found


def without_alphas(tensors: Tensors) -> dict[str, Array]:
    """An adapter as PEFT has it, whose configuration says its scales."""
    parts = {name: part_of(name) for name in tensors}
    return {
        name: np.asarray(values)
        for name, values in tensors.items()
        if (part := parts[name]) is None or part.algorithm is not None
    }


def config_of(config: Any) -> AdapterConfig:
    """A configuration of its fields, or of PEFT's ``LoraConfig``; raises InvalidCheckpoint."""
    if isinstance(config, AdapterConfig):
        return config
    to_dict = getattr(config, "to_dict", None)
    return AdapterConfig.of(config if to_dict is None else to_dict())


def targeted_values(tensors: Mapping[str, Any]) -> int:
    """How many values of a base an adapter changes: the length of its importance.

    Args:
        tensors: what has a ``shape``, by name. What is no factor of LoRA is not counted.
    """
    sides: dict[str, dict[str, int]] = {}
    for name, tensor in tensors.items():
        part = part_of(name)
        if part is not None and part.algorithm == "LoRA":
            height, width = matrix_shape(tuple(tensor.shape))
            size = width if part.role == "A" else height
            sides.setdefault(part.module.name, {})[part.role] = size
    return sum(side["A"] * side["B"] for side in sides.values() if len(side) == 2)


@dataclass(frozen=True, slots=True, eq=False)
class _NamedFactor(ArrayFactor):
    """A factor that knows the name of its tensor."""

    name: str


def _updates(tensors: Tensors, config: Any) -> list[LowRankUpdate]:
    """The differences of an adapter, unread; raises as :func:`read_adapter`."""
    if config is None and needs_config(tensors):
        raise InvalidParameter(
            "these factors have no alpha beside them: give config, the fields of "
            "adapter_config.json, for their scale",
            field="config",
        )
    factors: dict[str, Factor] = {name: _factor(name, values) for name, values in tensors.items()}
    configs = {} if config is None else {"": config_of(config)}
    updates = adapter_updates(factors, configs, "this adapter")
    found = [update for update in updates if isinstance(update, LowRankUpdate)]
    for update in updates:
        if not isinstance(update, LowRankUpdate):
            raise InvalidParameter(
                f"{update.name[:200]!r} is of {update.algorithm}: only LoRA's differences are "
                f"averaged by their factors",
                field="adapter",
            )
    return found


def _factor(name: str, values: Any) -> _NamedFactor:
    array = np.asarray(values)
    part = part_of(name)
    if array.dtype.kind not in ("f" if part is None or part.algorithm else "fiu"):
        raise InvalidParameter(
            f"tensor {name[:200]!r} is of {array.dtype}, not of floats", field="adapter"
        )
    with np.errstate(over="ignore"):
        finite = np.isfinite(array.astype(np.float32, copy=False)).all()
    if not finite:
        raise InvalidParameter(
            f"tensor {name[:200]!r} has a value that is NaN or infinite", field="adapter"
        )
    return _NamedFactor(array, name)


def _named(factor: Factor) -> _NamedFactor:
    assert isinstance(factor, _NamedFactor)  # as _updates made them
    return factor


def _rank(ranks: AdapterConfig | Mapping[str, int], tensor: str, factor: str) -> int:
    """The rank of the difference of a tensor, of whose factors one has this name."""
    if not isinstance(ranks, AdapterConfig):
        return ranks[tensor]
    part = part_of(factor)
    assert part is not None
    return ranks.rank_of(part.module.inner)


def _alpha_name(factor: str) -> str:
    """The name of the alpha beside a factor of this name."""
    part = part_of(factor)
    assert part is not None
    return f"{factor[: factor.rindex(part.word)].removesuffix('.')}.alpha"


def _low_rank(update: LowRankUpdate) -> LowRank:
    return LowRank(*update.matrices())


def _factors(cut: LowRank, update: LowRankUpdate) -> tuple[Matrix, Matrix]:
    """A and B of an update's rank and scale, of a difference of that rank or less."""
    a, b = (cut.b.T, cut.a.T) if update.transposed else (cut.a, cut.b)
    scale, missing = scale_of(update.scale, update.name), update.rank - cut.rank
    root = abs(scale) ** 0.5
    drawn = np.random.default_rng(zlib.crc32(update.name.encode()))
    bound = a.shape[1] ** -0.5  # as PEFT begins
    fresh = drawn.uniform(-bound, bound, (update.rank, a.shape[1]))[cut.rank :]
    unused = np.zeros((b.shape[0], missing))
    return np.vstack([a / root, fresh]), np.hstack([b * (np.sign(scale) / root), unused])


def _some(names: Mapping[str, Any]) -> str:
    return ", ".join(f"{name[:200]!r}" for name in sorted(names)[:3]) or "no tensor"
