"""The rule by which a checkpoint goes to one of several spaces, for hubs and the clients alike.

A space of the same parameters comes first. Otherwise the checkpoint joins the space of which it has
the largest share, if that is enough to be compared with the models there.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from modelkin.core.layout import Layout
from modelkin.core.matching.correspondence import MIN_PART, correspond

__all__ = ["NO_FIT", "SAME", "Fit", "best_fit", "fit_of", "free_name", "space_name"]

_MAX_NAME: Final = 80
"""Characters of the name of a new space, which leaves room for a number."""


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


def space_name(*models: str) -> str:
    """The name of a new space after the first of some models whose name has a letter or digit."""
    return next(filter(None, map(_slug, models)), "models")


def free_name(name: str, is_taken: Callable[[str], bool]) -> str:
    """A name, or the name with the first number from 2 on, that is not taken."""
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    return next(each for each in itertools.chain([name], numbered) if not is_taken(each))


def _slug(name: str) -> str:
    """The name of a model as that of a space."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9._]+", "-", plain).strip("-._")
    return slug[:_MAX_NAME].rstrip("-._")
