"""``Base`` with all tables in its metadata, whatever their module."""

from __future__ import annotations

from app.infra.db.tables import (
    anatomies,
    blobs,
    catalog,
    clusterings,
    findings,
    fingerprints,
    hubs,
    index,
    jobs,
    learngenes,
    maps,
    merges,
    public,
    reports,
    tenants,
    webhooks,
    weights,
)
from app.infra.db.tables.base import Base

__all__ = [
    "Base",
    "anatomies",
    "blobs",
    "catalog",
    "clusterings",
    "findings",
    "fingerprints",
    "hubs",
    "index",
    "jobs",
    "learngenes",
    "maps",
    "merges",
    "public",
    "reports",
    "tenants",
    "webhooks",
    "weights",
]
