"""Models that are not kin: how near index overlaps and cosines say that they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from studies.cells import Figures
from studies.federations import Floats
from studies.hub import Hub
from studies.real.checkpoints import saved
from studies.real.kinship import cosines
from studies.real.readers.cursor import Tensors

__all__ = ["SHARES", "compare_strangers"]

SHARES: Final = (0.01, 0.05, 0.1, 0.2)


def compare_strangers(title: str, models: Mapping[str, Tensors], hub: Hub) -> Figures:
    """The range of S, kappa and cosine over all pairs, at each K."""
    found: Figures = {}
    with saved(models) as checkpoints:
        cosine = _range("cosine", cosines(checkpoints.vectors()))
        for share in SHARES:
            with checkpoints.pushed(hub, share) as space:
                found[f"{title}, K = {share:.0%}"] = {
                    "models": len(models),
                    "M": checkpoints.parameters,
                    **_range("S", space.matrix()),
                    **_range("kappa", space.matrix("kappa")),
                    **cosine,
                }
    return found


def _range(title: str, matrix: Floats) -> dict[str, float]:
    values = matrix[np.triu_indices(len(matrix), 1)]
    return {f"{title}, least": values.min(), f"{title}, greatest": values.max()}
