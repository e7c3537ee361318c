"""``Base`` with all tables in its metadata, whichever module they stand in."""

from __future__ import annotations

from app.stores.sql import event_tables, hook_tables
from app.stores.sql.tables import Base

__all__ = ["Base", "event_tables", "hook_tables"]
