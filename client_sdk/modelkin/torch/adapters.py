"""Supports of LoRA adapters in memory: PEFT models, or the state dicts that PEFT saves.

The factors are copied to this machine's memory, and the products are formed there, by the same code
as for adapters on disk. So an adapter has the same support in memory and on disk, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from modelkin.core.adapters import (
    DEFAULT_FRACTION,
    AdapterConfig,
    ArrayFactor,
    Factor,
    LowRankUpdate,
    factor_of,
    low_rank_updates,
)
from modelkin.core.importance import Importance, Origin, with_origin
from modelkin.core.layout import Layout
from modelkin.core.selection.rule import SelectionRule
from modelkin.core.selection.streaming import Floats, select_from_chunks
from modelkin.core.support import Support
from modelkin.errors import InvalidParameter
from modelkin.torch.vector import is_sharded, wide_dtype

__all__ = ["adapter_importance", "select_adapter_support"]

_MARK: Final = "lora_"
"""Part of the names of all tensors that belong to an adapter."""


def adapter_importance(
    model: nn.Module | Mapping[str, Tensor], config: Any = None, *, adapter: str = "default"
) -> Tensor:
    """|ΔW| = (α/r) |BA| of every parameter that a LoRA adapter targets.

    The result takes 4 bytes a parameter; :func:`select_adapter_support` needs only a block of it.

    Args:
        model: a PEFT model, or a state dict with its factors, on any device. Only the tensors of an
            adapter are read.
        config: the fields of ``adapter_config.json`` or PEFT's ``LoraConfig``; by default the
            configuration of the model.
        adapter: the adapter's name, if the model has several.

    Returns:
        float32 of shape ``(M,)`` in this machine's memory, where M counts the parameters of the
        targeted tensors alone, in the order of their names in the base.

    Raises:
        InvalidCheckpoint: another adapter than LoRA, a variant whose differences are not BA, or
            factors that do not fit; names the field and its value.
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


def _updates_of(model: Any, config: Any, adapter: str) -> tuple[LowRankUpdate, ...]:
    named = model.state_dict() if isinstance(model, nn.Module) else model
    if not isinstance(named, Mapping):
        raise InvalidParameter(
            f"model must be a model or a state dict, not a {type(model).__name__}", field="model"
        )
    factors: dict[str, Factor] = {
        name: _factor(name, tensor)
        for name, tensor in named.items()
        if _MARK in name and _adapter_in(name) in (None, adapter)
    }
    where = f"the adapter {adapter!a} of this {type(model).__name__}"
    return low_rank_updates(factors, AdapterConfig.of(_fields(model, config, adapter)), where)


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


def _adapter_in(name: str) -> str | None:
    """The adapter's name in the name of a factor, or None."""
    found = factor_of(name)
    return None if found is None else found.adapter


@torch.no_grad()
def _factor(name: str, tensor: Tensor) -> ArrayFactor:
    if is_sharded(tensor) or not tensor.is_floating_point():
        raise InvalidParameter(
            f"{name!a} is {'sharded' if is_sharded(tensor) else tensor.dtype}: gather or "
            f"dequantise it first",
            field="model",
        )
    return ArrayFactor(tensor.detach().to("cpu", wide_dtype(tensor)).numpy())


def _blocks(updates: tuple[LowRankUpdate, ...]) -> Iterator[Floats]:
    for update in updates:
        yield from update.magnitudes()


def _size(update: LowRankUpdate) -> int:
    return update.shape[0] * update.shape[1]


def _origin(updates: tuple[LowRankUpdate, ...]) -> Origin:
    layout = Layout.of((update.name, update.shape) for update in updates)
    return Origin(Importance.of("delta"), layout)
