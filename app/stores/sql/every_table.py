"""``Base`` with all tables in its metadata, whichever module they stand in."""

from __future__ import annotations

from app.stores.sql import (
    bucket_tables,
    clustering_tables,
    event_tables,
    hook_tables,
    job_tables,
)
from app.stores.sql.tables import Base

__all__ = [
    "Base",
    "bucket_tables",
    "clustering_tables",
    "event_tables",
    "hook_tables",
    "job_tables",
]
