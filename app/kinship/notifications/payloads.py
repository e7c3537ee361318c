"""The data of events that follow from others: neighbours that moved, and contradicted bases."""

from __future__ import annotations

from typing import Any, Final

from app.kinship.notifications.announcements import watches
from app.kinship.notifications.neighbor_changes import Change, ChangeSet
from app.models.spaces.records import SpaceRecord
from app.webhooks.repositories.subscriptions import Subscription
from modelkin.types.lineages import FingerprintLineage, Lineage

__all__ = ["mismatch_data", "neighbor_data", "threshold_of"]

_MAX_NEIGHBORS: Final = 100
"""Neighbours in one event; the event also says how many more there are."""


def mismatch_data(
    found: Lineage | FingerprintLineage, revision: int, url: str, similarity: float | None = None
) -> dict[str, Any]:
    """The data about a contradicted base, the same in a space and by lines alone.

    Args:
        revision: that of the model.
        url: where the lineage is.
        similarity: S of the base; None where that is not in the model's space.
    """
    return {
        "model": found.model,
        "revision": revision,
        "declared_base": found.declared_base,
        "declared_bases": [each.base_model for each in found.declared_bases],
        "reason": found.reason,
        "similarity": similarity,
        "share_of_lines": None if found.lines is None else found.lines.share_of_lines,
        "likely_base": found.likely_base,
        "summary": found.summary,
        "url": url,
    }


def threshold_of(subscription: Subscription) -> float:
    """The S that neighbours of a subscription cross."""
    assert subscription.threshold is not None
    return subscription.threshold


def neighbor_data(
    space: SpaceRecord, changes: ChangeSet, subscription: Subscription, *, whole: bool
) -> dict[str, Any] | None:
    """The data about the neighbours that crossed a threshold; None if none did.

    Args:
        changes: all neighbours of the model.
        subscription: the subscription with the threshold and filters.
        whole: whether the filters match the model itself, so that they need not match its
            neighbours.
    """
    threshold = threshold_of(subscription)
    crossed = [
        (item, way)
        for item in changes.items
        if (way := item.crossing(threshold))
        and (whole or watches(subscription, item.model, item.tags))
    ]
    if not crossed:
        return None
    return {
        "space": space.name,
        "model": changes.model.name,
        "revision": changes.model.revision,
        "previous_revision": changes.previous,
        "version": changes.model.version,
        "threshold": threshold,
        "changes": [_line(item, way) for item, way in crossed[:_MAX_NEIGHBORS]],
        "more": max(0, len(crossed) - _MAX_NEIGHBORS),
    }


def _line(item: Change, way: str) -> dict[str, Any]:
    return {
        "model": item.model,
        "crossed": way,
        "similarity": round(item.similarity, 6),
        "previous": None if item.previous is None else round(item.previous, 6),
        "estimate": item.estimate,
        "relation": item.relation,
    }
