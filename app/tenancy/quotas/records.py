"""Records of quotas: plain frozen values, safe to hand to any thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal, get_args

__all__ = ["BOUNDS", "QUOTAS", "QuotaName", "Quotas"]

QuotaName = Literal[
    "spaces",
    "models",
    "support_bytes",
    "queued_jobs",
    "sources",
    "subscriptions",
    "merges",
    "reporters",
    "events",
    "deliveries",
]
QUOTAS: Final[tuple[QuotaName, ...]] = get_args(QuotaName)
BOUNDS: Final = frozenset({"events", "deliveries"})
"""Quotas beyond which the oldest are deleted and nothing is refused. They always have a number."""


@dataclass(frozen=True, slots=True)
class Quotas:
    """What a tenant may have of each thing; None for any number.

    Attributes:
        support_bytes: of stored supports, those of kept revisions included.
        queued_jobs: jobs that wait or run, but for the syncs of its sources and the service's own.
        merges: that have not ended.
        reporters: of K*, in all spaces.
        events: those that are kept, and as many events of each of its sources.
        deliveries: those that are kept.
    """

    spaces: int | None = None
    models: int | None = None
    support_bytes: int | None = None
    queued_jobs: int | None = None
    sources: int | None = None
    subscriptions: int | None = None
    merges: int | None = None
    reporters: int | None = None
    events: int | None = None
    deliveries: int | None = None

    def with_overrides(self, overrides: Mapping[str, Any] | None) -> Quotas:
        """These quotas, with those of one tenant in place of some; unknown names are ignored."""
        if not overrides:
            return self
        known = {field.name for field in fields(self)}
        return replace(self, **{name: overrides[name] for name in known & overrides.keys()})

    def of(self, name: QuotaName) -> int | None:
        """The quota of this name."""
        quota: int | None = getattr(self, name)
        return quota
