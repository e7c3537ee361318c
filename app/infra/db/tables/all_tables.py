"""``Base`` with all tables in its metadata, whichever module they stand in."""

from __future__ import annotations

from app.infra.db.tables import clusterings, hubs, index, jobs, webhooks
from app.infra.db.tables.base import Base

__all__ = ["Base", "clusterings", "hubs", "index", "jobs", "webhooks"]
