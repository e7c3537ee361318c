"""LoRA adapters as differences of weights: |ΔW| = (α/r) |BA| of the tensors that one targets.

An adapter holds two factors of each difference, and its configuration their scale. Here both are
checked, and the product is formed block by block, from arrays alone: ``modelkin.checkpoints`` reads
the factors from a file, ``modelkin.torch`` from a model, and all three give the same bits.

Source: Hu et al., LoRA: Low-Rank Adaptation of Large Language Models (2021), section 4.1.
"""

from __future__ import annotations

from modelkin.core.adapters.config import (
    CONFIG_NAME,
    DEFAULT_FRACTION,
    MAX_CONFIG_BYTES,
    AdapterConfig,
)
from modelkin.core.adapters.factors import factor_of, has_factors, low_rank_updates
from modelkin.core.adapters.updates import ArrayFactor, Factor, LowRankUpdate

__all__ = [
    "CONFIG_NAME",
    "DEFAULT_FRACTION",
    "MAX_CONFIG_BYTES",
    "AdapterConfig",
    "ArrayFactor",
    "Factor",
    "LowRankUpdate",
    "factor_of",
    "has_factors",
    "low_rank_updates",
]
