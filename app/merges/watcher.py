"""``MergeWatcher``: follows merges for many streams with one query."""

from __future__ import annotations

from app.jobs.watcher import Watcher
from app.merges.records import MergeRecord

__all__ = ["MergeWatcher"]


class MergeWatcher(Watcher[MergeRecord]):
    """Polls the followed merges of one process."""
