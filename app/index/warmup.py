"""Loading at start: the indexes that queries will need, before these have to wait for them.

In the background, the largest first, as many as there is memory for. What is not loaded is built
when it is asked for, so that nothing depends on this but time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from app.errors import Unavailable
from app.index.change_feed import ChangeFeed
from app.index.registry import IndexRegistry
from app.index.space_index import Changed, bytes_of
from app.infra.db.database import Database
from app.spaces import repository as spaces
from app.spaces.records import SpaceRecord

__all__ = ["IndexWarmup", "WarmupProgress"]

T = TypeVar("T")

_PAUSE = 1.0
"""Seconds to leave a database alone that cannot be read."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WarmupProgress:
    """How far it is.

    Attributes:
        done: there is nothing left to load.
        spaces, models: to be loaded in all.
        spaces_loaded, models_loaded: of these.
    """

    done: bool = True
    spaces: int = 0
    spaces_loaded: int = 0
    models: int = 0
    models_loaded: int = 0


class IndexWarmup:
    """Loads the indexes of one process, once.

    Args:
        database: the truth.
        indexes: where they are kept.
    """

    def __init__(self, database: Database, indexes: IndexRegistry) -> None:
        self._database = database
        self._indexes = indexes
        self._progress = WarmupProgress()
        self._stopping = threading.Event()

    @property
    def progress(self) -> WarmupProgress:
        """How far it is; done before it is begun and where nobody begins it."""
        return self._progress

    def announce(self) -> None:
        """From now on it is not done, until :meth:`run` has ended."""
        self._progress = WarmupProgress(done=False)

    def run(self, stopping: threading.Event) -> None:
        """Load, until it is done or ``stopping`` is set. What fails for good ends it as well."""
        began = time.monotonic()
        self._stopping = stopping
        try:
            self._run()
        finally:
            self._progress = replace(self._progress, done=not stopping.is_set())
        loaded = self._progress
        if loaded.done and loaded.spaces:
            seconds = time.monotonic() - began
            what = loaded.models_loaded, loaded.spaces_loaded
            log.info("loaded the signatures of %d models in %d spaces in %.1f s", *what, seconds)

    def _run(self) -> None:
        wanted = self._insist(self._plan) or []
        models = sum(space.models for space in wanted)
        self._progress = WarmupProgress(False, spaces=len(wanted), models=models)
        for number, space in enumerate(wanted, start=1):
            before = self._progress.models_loaded
            if self._insist(partial(self._load, space)) is None:
                return
            loaded = before + space.models
            self._progress = replace(self._progress, spaces_loaded=number, models_loaded=loaded)

    def _plan(self) -> list[SpaceRecord]:
        """The spaces to load: not those that are empty, nor those for which there is no room."""
        with self._database.reading() as session:
            found = spaces.all_spaces(session)
        found = sorted(found, key=lambda space: -bytes_of(space.signature, space.models))
        room, wanted = self._indexes.most, []
        for space in found:
            needed = bytes_of(space.signature, space.models)
            if 0 < needed <= room:
                wanted.append(space)
                room -= needed
        return wanted

    def _load(self, space: SpaceRecord) -> bool:
        """Load one; False where it was deleted meanwhile."""
        before = self._progress
        with self._database.reading() as session:
            now = spaces.find_space_by_id(session, space.id)
            if now is None:
                return False
            feed = _Counted(ChangeFeed(session, space.id), self._add)
            try:
                self._indexes.at(space.id, space.signature, now.version, feed)
            except Unavailable:
                self._progress = before
                raise
        return True

    def _add(self, models: int) -> None:
        if self._stopping.is_set():
            raise Unavailable("the service is stopping")
        loaded = min(self._progress.models_loaded + models, self._progress.models)
        self._progress = replace(self._progress, models_loaded=loaded)

    def _insist(self, action: Callable[[], T]) -> T | None:
        """What ``action`` answers, as soon as the database does; None when the service stops."""
        while not self._stopping.is_set():
            try:
                return action()
            except Unavailable as error:
                log.info("indexes cannot be loaded now: %s", error)
                self._stopping.wait(_PAUSE)
        return None


@dataclass(frozen=True, slots=True)
class _Counted:
    """A feed that tells how much of it was read."""

    feed: ChangeFeed
    add: Callable[[int], None]

    @property
    def horizon(self) -> int:
        return self.feed.horizon

    def changed(self, since: int) -> Iterable[Changed]:
        for changed in self.feed.changed(since):
            yield changed
            self.add(changed.ids.size)

    def removed(self, since: int) -> Iterable[int]:
        return self.feed.removed(since)
