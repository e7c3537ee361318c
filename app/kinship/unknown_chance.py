"""Why an answer has no P: in words, the same for donors, assignments and lineages."""

from __future__ import annotations

from typing import Final

from app.models.spaces.records import SpaceRecord

__all__ = ["NOTHING", "NO_KAPPA", "why_no_p"]

NOTHING: Final = "nothing was measured that a P could be of"
_NO_LAYOUT: Final = "the space has no layout, so what chance gives in each tensor is not known"
_SUBSPACES: Final = "data subspaces have no tensors in which chance could be measured"
NO_KAPPA: Final = (
    "what chance gives the two is not known: a side sent a signature alone, or all it has is left "
    "out"
)


def why_no_p(space: SpaceRecord, *, known: bool) -> str | None:
    """The reason why something measured has no P; None where it has one.

    Args:
        known: whether it has one.
    """
    if known:
        return None
    if space.kind == "subspaces":
        return _SUBSPACES
    return _NO_LAYOUT if space.layout_digest is None else NO_KAPPA
