"""Adapters of one task find each other, whatever they began with: by BA, and not by A and B."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import modelkin
from benchmarks.lora_tasks import PAIRS, RANK, SCALE, same_task_auc, trained
from modelkin.checkpoints import open_checkpoint, select_from_checkpoint
from tests.sdk.adapters.folders import adapter_folder, factors


def auc(supports: Sequence[modelkin.Support]) -> float:
    """How well S separates pairs of one task from pairs of two."""
    return same_task_auc([modelkin.similarity(supports[i], supports[j]) for i, j in PAIRS])


@pytest.mark.slow
def test_adapters_of_one_task_are_kin_by_their_product(tmp_path: Path) -> None:
    """Four tasks, three starts each: |BA| separates the tasks, |A| and |B| do not."""
    products, by_factors = [], []
    for number, layers in enumerate(trained()):
        fields: dict[str, Any] = {"target_modules": sorted(layers), "lora_alpha": SCALE * RANK}
        folder = adapter_folder(tmp_path / f"{number}", factors(layers), **fields)
        products.append(select_from_checkpoint(open_checkpoint(folder)))
        flat = [matrix.reshape(-1) for pair in layers.values() for matrix in pair]
        by_factors.append(modelkin.select_support(np.abs(np.concatenate(flat)), fraction=0.1))
    assert {0.1} == {round(support.density, 3) for support in products}
    assert auc(products) >= 0.9
    assert auc(by_factors) <= 0.8
