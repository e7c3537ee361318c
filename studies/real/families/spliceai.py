"""SpliceAI: one network trained five times, from five seeds, on the same data.

The five agree in what they compute, and not in which parameters do it.
"""

from __future__ import annotations

from typing import Final

from studies.cells import Figures
from studies.hub import Hub
from studies.real.packages import Packages
from studies.real.readers.keras import read_keras
from studies.real.strangers import compare_strangers

__all__ = ["NAME", "figures"]

NAME: Final = "spliceai"
_FILES: Final = {f"spliceai/models/spliceai{seed}.h5": f"seed {seed}" for seed in range(1, 6)}


def figures(packages: Packages, hub: Hub) -> Figures:
    """S, kappa and cosine of all pairs of seeds, at each K."""
    files = packages.members("spliceai", "1.3.1", _FILES.__contains__)
    models = {_FILES[path]: read_keras(data) for path, data in files.items()}
    return compare_strangers("five seeds", models, hub)
