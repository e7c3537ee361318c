"""UpscalerJS: ESRGAN networks of three sizes, each trained for four scales.

Models of one size differ in their last layers alone, and are compared without these.
"""

from __future__ import annotations

from typing import Final

from studies.cells import Figures
from studies.hub import Hub
from studies.real.checkpoints import common
from studies.real.packages import Packages
from studies.real.readers.cursor import Tensors
from studies.real.readers.tfjs import read_tfjs
from studies.real.strangers import compare_strangers

__all__ = ["NAME", "figures"]

NAME: Final = "upscalerjs"
_SIZES: Final = ("slim", "medium", "thick")
_SCALES: Final = ("x2", "x3", "x4", "x8")


def figures(packages: Packages, hub: Hub) -> Figures:
    """S, kappa and cosine of all pairs of scales, for each size and at each K."""
    found: Figures = {}
    for size in _SIZES:
        models = {scale: _model(packages, size, scale) for scale in _SCALES}
        found |= compare_strangers(f"{size}, {', '.join(_SCALES)}", common(models), hub)
    return found


def _model(packages: Packages, size: str, scale: str) -> Tensors:
    folder = f"package/models/{scale}/"
    files = packages.members(
        f"@upscalerjs/esrgan-{size}", "1.0.0", lambda name: name.startswith(folder)
    )
    parts = {path.removeprefix(folder): data for path, data in files.items()}
    return read_tfjs(parts["model.json"], parts)
