"""Islands: discs without overlap, the large ones in the middle, the others in rings around them."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["pack_islands"]

Floats = npt.NDArray[np.float64]

_GAP: Final = 1.0
"""The gap between two islands; a model alone is an island of radius 0.6."""
_RADIUS: Final = 0.6
_MAX_SPIRAL: Final = 200
"""The largest islands, each of which takes the first free place along a spiral."""
_CANDIDATES: Final = 4_000
_GOLDEN_ANGLE: Final = np.pi * (3 - np.sqrt(5))


def pack_islands(sizes: npt.NDArray[np.int64]) -> tuple[Floats, Floats]:
    """The centres and radii of islands with room for so many models, an area each.

    Args:
        sizes: shape ``(p,)``, 1 and more.

    Returns:
        Centres, shape ``(p, 2)``, and radii, shape ``(p,)``.
    """
    radii = _RADIUS * np.sqrt(sizes)
    order = np.argsort(-radii, kind="stable")
    centres = np.zeros((sizes.size, 2))
    large, small = order[:_MAX_SPIRAL], order[_MAX_SPIRAL:]
    _spiral(centres, radii, large)
    _rings(centres, radii, small, _extent(centres, radii, large))
    return centres, radii


def _spiral(centres: Floats, radii: Floats, large: npt.NDArray[np.int64]) -> None:
    """Place islands at the free place that is nearest to the middle."""
    extent = 2.2 * float(np.sqrt(np.sum((radii[large] + _GAP) ** 2)))
    turn = np.arange(_CANDIDATES)
    far, angle = extent * np.sqrt(turn / _CANDIDATES), turn * _GOLDEN_ANGLE
    candidates = np.stack([far * np.cos(angle), far * np.sin(angle)], axis=1)
    free = np.full(_CANDIDATES, np.inf)  # up to the rim of the nearest island
    for count, island in enumerate(large.tolist()):
        fits = np.flatnonzero(free >= radii[island] + _GAP)
        if fits.size:
            centres[island] = candidates[fits[0]]
        else:
            centres[island, 0] = _extent(centres, radii, large[:count]) + radii[island] + _GAP
        rim = np.hypot(*(candidates - centres[island]).T) - radii[island]
        free = np.minimum(free, rim)


def _rings(centres: Floats, radii: Floats, small: npt.NDArray[np.int64], extent: float) -> None:
    """Place islands around all others, ring by ring."""
    while small.size:
        radius = float(radii[small[0]])
        ring = extent + _GAP + radius
        room = max(1, int(2 * np.pi * ring / (2 * radius + _GAP)))
        some, small = small[:room], small[room:]
        angle = 2 * np.pi * np.arange(some.size) / some.size
        centres[some] = np.stack([ring * np.cos(angle), ring * np.sin(angle)], axis=1)
        extent = ring + radius


def _extent(centres: Floats, radii: Floats, placed: npt.NDArray[np.int64]) -> float:
    if not placed.size:
        return 0.0
    return float(np.max(np.hypot(*centres[placed].T) + radii[placed]))
