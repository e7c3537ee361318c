"""The rule by which a checkpoint goes to one of several spaces, for hubs and the clients alike.

A space of the same parameters comes first. Otherwise the checkpoint joins the space of which it has
the largest share, if that is enough to be compared with the models there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from modelkin.core.layout import Layout
from modelkin.core.matching.correspondence import MIN_PART, correspond

__all__ = ["NO_FIT", "SAME", "Fit", "best_fit", "fit_of"]


class Fit(NamedTuple):
    """How a checkpoint fits a space.

    Attributes:
        is_same: whether the two have the same parameters.
        share: the share of the space that the checkpoint has; 0 where it is too little.
    """

    is_same: bool
    share: float


SAME: Final = Fit(True, 1.0)
NO_FIT: Final = Fit(False, 0.0)


def fit_of(layout: Layout, of_space: Layout) -> Fit:
    """How a checkpoint of this layout fits a space of that one."""
    # Sizes alone rule out most spaces, and names are dear to compare.
    if not MIN_PART <= layout.num_parameters / of_space.num_parameters <= 1 / MIN_PART:
        return NO_FIT
    if layout.digest == of_space.digest:
        return SAME
    found = correspond(layout, of_space)
    return Fit(found.equal, found.share) if found.fits else NO_FIT


def best_fit(fits: Sequence[Fit]) -> int | None:
    """The place of the space that a checkpoint goes to: the first of the best; None if none fits.

    Args:
        fits: of the spaces, the oldest first.
    """
    best = max(range(len(fits)), key=lambda at: (fits[at].is_same, fits[at].share), default=None)
    return None if best is None or not fits[best].share else best
