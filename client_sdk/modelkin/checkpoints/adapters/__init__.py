"""Adapters on disk: those that are read as differences, and embeddings that are refused by name."""

from __future__ import annotations

from modelkin.checkpoints.adapters.low_rank import (
    ADAPTER_FILES,
    Adapter,
    LowRankTensor,
    adapter_of,
    is_adapter,
    targets_of,
)
from modelkin.checkpoints.adapters.textual_inversion import refuse_embedding

__all__ = [
    "ADAPTER_FILES",
    "Adapter",
    "LowRankTensor",
    "adapter_of",
    "is_adapter",
    "refuse_embedding",
    "targets_of",
]
