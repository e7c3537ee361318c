"""Edges of lineages: when lines in common make a model another one's base.

Equal lines have no direction, and one random seed makes some, too. So lines alone draw no edge: it
needs a declaration, a copy or a part, or lines enough and the older date.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

from modelkin.core.fingerprints.sources import Verdict

__all__ = ["EDGE_SHARE", "EdgeReason", "edge_reason"]

EDGE_SHARE: Final = 0.05
"""The least share of a model's lines that makes an older one its base. A heavy training leaves so
many; of a word table that many models have from elsewhere there are mostly fewer."""

EdgeReason = Literal["declared", "copy", "part", "lines"]
"""Why a lineage has an edge, see :func:`edge_reason`."""


def edge_reason(
    verdict: Verdict,
    share: float,
    *,
    declared: bool = False,
    published_at: datetime | None = None,
    base_published_at: datetime | None = None,
) -> EdgeReason | None:
    """Why a model that shares lines with another one is drawn as made from it; None where not.

    Args:
        verdict: what the model is to the other one.
        share: of the model's lines, those that the other one has.
        declared: whether the model names the other one as its base.
        published_at: when the model was published; None where that is unknown. The moment at which
            a service stored it is no such date.
        base_published_at: when the other one was.

    Returns:
        ``declared``; ``copy`` or ``part``, but of no younger model: it may have grown from this
        one; or ``lines``, of 5% or more in an older model.
    """
    if declared:
        return "declared"
    dated = published_at is not None and base_published_at is not None
    older = dated and base_published_at < published_at  # type: ignore[operator]
    younger = dated and not older
    if verdict in ("copy", "part"):
        return None if younger else verdict
    return "lines" if older and share >= EDGE_SHARE else None
