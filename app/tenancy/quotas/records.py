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
    "fingerprints",
    "fingerprint_bytes",
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
    """The most that a tenant may have of each thing; None for any number.

    Attributes:
        support_bytes: bytes of stored supports, also of kept revisions.
        fingerprint_bytes: bytes of the payloads of its fingerprints.
        queued_jobs: jobs that wait or run, but for the syncs of its sources and the service's own.
        merges: merges that have not ended.
        reporters: reporters of K*, in all spaces.
        events: events that are kept; the same number again for each source.
        deliveries: deliveries that are kept.
    """

    spaces: int | None = None
    models: int | None = None
    support_bytes: int | None = None
    fingerprints: int | None = None
    fingerprint_bytes: int | None = None
    queued_jobs: int | None = None
    sources: int | None = None
    subscriptions: int | None = None
    merges: int | None = None
    reporters: int | None = None
    events: int | None = None
    deliveries: int | None = None

    def with_overrides(self, overrides: Mapping[str, Any] | None) -> Quotas:
        """Return these quotas with the overrides of one tenant; unknown names are ignored."""
        if not overrides:
            return self
        known = {field.name for field in fields(self)}
        return replace(self, **{name: overrides[name] for name in known & overrides.keys()})

    def of(self, name: QuotaName) -> int | None:
        """The quota of this name."""
        quota: int | None = getattr(self, name)
        return quota
