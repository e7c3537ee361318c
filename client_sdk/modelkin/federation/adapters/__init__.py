"""Means of LoRA adapters of any ranks: of the differences that they make, not of their factors.

``read_adapter`` takes factors and their scales from a state dict, ``stacked_mean`` is the exact
mean of many, ``mean_of_rank`` the best one of a rank with its error. ``write_adapter`` answers a
client in its own rank. All is numpy's; docs/federation.md has an example.

Sources: Hu et al., LoRA (2021), section 4.1; Wang et al., FLoRA (2024), section 3.2, for stacking.
"""

from __future__ import annotations

from modelkin.federation.adapters.low_rank import Adapter, LowRank
from modelkin.federation.adapters.means import (
    Approximation,
    mean_of_rank,
    odd_adapters,
    of_rank,
    stacked_mean,
)
from modelkin.federation.adapters.tensors import read_adapter, write_adapter

__all__ = [
    "Adapter",
    "Approximation",
    "LowRank",
    "mean_of_rank",
    "odd_adapters",
    "of_rank",
    "read_adapter",
    "stacked_mean",
    "write_adapter",
]
