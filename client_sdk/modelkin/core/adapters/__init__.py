"""Adapters as differences of weights: |ΔW| = (α/r) |BA| of the tensors that one targets.

An adapter holds factors of each difference, and a scale beside them or in a configuration. Here
both are checked, and the product is formed block by block, from arrays alone:
``modelkin.checkpoints`` reads the factors from a file, ``modelkin.torch`` from a model, and all
three give the same bits. LoHa and LoKr are other products of factors.

Source: Hu et al., LoRA: Low-Rank Adaptation of Large Language Models (2021), section 4.1.
"""

from __future__ import annotations

from modelkin.core.adapters.config import (
    CONFIG_NAME,
    DEFAULT_FRACTION,
    MAX_CONFIG_BYTES,
    AdapterConfig,
)
from modelkin.core.adapters.factors import Configs, adapter_updates, needs_config
from modelkin.core.adapters.names import has_factors, is_of_adapter, part_of
from modelkin.core.adapters.spellings import component_of, flat_name, module_of
from modelkin.core.adapters.updates import (
    ArrayFactor,
    Factor,
    LowRankUpdate,
    StoredScale,
    Update,
    matrix_shape,
    scale_of,
)

__all__ = [
    "CONFIG_NAME",
    "DEFAULT_FRACTION",
    "MAX_CONFIG_BYTES",
    "AdapterConfig",
    "ArrayFactor",
    "Configs",
    "Factor",
    "LowRankUpdate",
    "StoredScale",
    "Update",
    "adapter_updates",
    "component_of",
    "flat_name",
    "has_factors",
    "is_of_adapter",
    "matrix_shape",
    "module_of",
    "needs_config",
    "part_of",
    "scale_of",
]
