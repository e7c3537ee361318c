"""Supports of adapters in memory: PEFT models, or the state dicts that trainers save.

The factors are copied to this machine's memory, and the products are formed there, by the same code
as for adapters on disk. So an adapter has the same support in memory and on disk, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from modelkin.core.adapters import (
    DEFAULT_FRACTION,
    AdapterConfig,
    ArrayFactor,
    Configs,
    Factor,
    Update,
    adapter_updates,
    is_of_adapter,
    needs_config,
    part_of,
)
from modelkin.core.importance import Importance, Origin, with_origin
from modelkin.core.layout import Layout
from modelkin.core.selection.rule import SelectionRule
from modelkin.core.selection.streaming import Floats, select_from_chunks
from modelkin.core.support import Support
from modelkin.errors import InvalidParameter
from modelkin.torch.vector import is_sharded, wide_dtype

__all__ = ["adapter_importance", "select_adapter_support"]


def adapter_importance(
    model: nn.Module | Mapping[str, Tensor], config: Any = None, *, adapter: str = "default"
) -> Tensor:
    """|ΔW| = (α/r) |BA| of every parameter that an adapter targets; LoHa's and LoKr's likewise.

    The result takes 4 bytes a parameter; :func:`select_adapter_support` needs only a block of it.

    Args:
        model: a PEFT model, or a state dict with factors by the names of PEFT, diffusers, kohya's
            trainers or LyCORIS, on any device. Only the tensors of an adapter are read.
        config: the fields of ``adapter_config.json`` or PEFT's ``LoraConfig``; by default the
            configuration of the model. Only factors as PEFT names them need one.
        adapter: the adapter's name, if the model has several.

    Returns:
        float32 of shape ``(M,)`` in this machine's memory, where M counts the parameters of the
        targeted tensors alone, in the order of their names in the base.

    Raises:
        InvalidCheckpoint: another adapter than LoRA, LoHa and LoKr, a variant whose differences
            are not BA, or factors that do not fit; names the field and its value.
        InvalidParameter: there is no configuration, or a factor is sharded or not of floats.
    """
    updates = _updates_of(model, config, adapter)
    vector = np.empty(sum(_size(update) for update in updates), np.float32)
    at = 0
    for block in _blocks(updates):
        vector[at : at + block.size] = block
        at += block.size
    return with_origin(torch.from_numpy(vector), _origin(updates))


def select_adapter_support(
    model: nn.Module | Mapping[str, Tensor],
    config: Any = None,
    *,
    adapter: str = "default",
    k: int | None = None,
    fraction: float | None = None,
    coverage: float | None = None,
    k_max: float | None = None,
) -> Support:
    """The support of :func:`adapter_importance`, with at most a block of importance in memory.

    Args:
        model: see :func:`adapter_importance`, also for ``config`` and ``adapter``.
        k: the number of parameters. Or give ``fraction`` of them, or ``coverage``, for the fewest
            with that share of all importance, at most ``k_max``; see ``select_support``. By
            default a tenth, 2^25 at most.

    Raises:
        InvalidImportance: every difference is zero, as before the training.
        InvalidCheckpoint, InvalidParameter: see :func:`adapter_importance`.
    """
    updates = _updates_of(model, config, adapter)
    m = sum(_size(update) for update in updates)
    if k is None and fraction is None and coverage is None and k_max is None:
        rule = SelectionRule.default(m, DEFAULT_FRACTION)
    else:
        rule = SelectionRule.of(m, k=k, fraction=fraction, coverage=coverage, k_max=k_max)
    return select_from_chunks(lambda: _blocks(updates), m, rule).with_origin(_origin(updates))


def _updates_of(model: Any, config: Any, adapter: str) -> tuple[Update, ...]:
    named = model.state_dict() if isinstance(model, nn.Module) else model
    if not isinstance(named, Mapping):
        raise InvalidParameter(
            f"model must be a model or a state dict, not a {type(model).__name__}", field="model"
        )
    factors: dict[str, Factor] = {
        name: _factor(name, named[name]) for name in _names_of(named, adapter)
    }
    where = f"the adapter {adapter!a} of this {type(model).__name__}"
    return adapter_updates(factors, _configs(model, config, adapter, factors), where)


def _names_of(named: Mapping[str, Any], adapter: str) -> list[str]:
    """The names of an adapter's tensors: its factors, and the alphas of their modules."""
    parts = {name: part_of(name) for name in named}
    modules = {part.module.name for part in parts.values() if part and part.algorithm}
    return [
        name
        for name, part in parts.items()
        if (part.adapter in (None, adapter) if part and part.algorithm else is_of_adapter(name))
        or (part and not part.algorithm and part.module.name in modules)
    ]


def _configs(model: Any, config: Any, adapter: str, factors: Mapping[str, Factor]) -> Configs:
    """The configuration of the factors; none where they need none."""
    if config is None and isinstance(model, Mapping) and factors and not needs_config(factors):
        return {}
    return {"": AdapterConfig.of(_fields(model, config, adapter))}


def _fields(model: Any, config: Any, adapter: str) -> Any:
    """The fields of the given configuration, or of the model's."""
    if config is None:
        held = getattr(model, "peft_config", None)
        if not isinstance(held, Mapping) or adapter not in held:
            raise InvalidParameter(
                f"this {type(model).__name__} has no configuration of an adapter {adapter!a}: give "
                f"config, the fields of its adapter_config.json",
                field="config",
            )
        config = held[adapter]
    to_dict = getattr(config, "to_dict", None)
    return config if to_dict is None else to_dict()


@torch.no_grad()
def _factor(name: str, tensor: Tensor) -> ArrayFactor:
    if is_sharded(tensor) or not tensor.is_floating_point():
        raise InvalidParameter(
            f"{name!a} is {'sharded' if is_sharded(tensor) else tensor.dtype}: gather or "
            f"dequantise it first",
            field="model",
        )
    return ArrayFactor(tensor.detach().to("cpu", wide_dtype(tensor)).numpy())


def _blocks(updates: tuple[Update, ...]) -> Iterator[Floats]:
    for update in updates:
        yield from update.magnitudes()


def _size(update: Update) -> int:
    return update.shape[0] * update.shape[1]


def _origin(updates: tuple[Update, ...]) -> Origin:
    layout = Layout.of((update.name, update.shape) for update in updates)
    return Origin(Importance.of("delta"), layout)
