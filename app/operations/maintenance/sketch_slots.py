"""Room of removed models in the sketch cache: given back to the disk, 8 KiB each.

Ids of models only grow, and a slot goes by its id. So a space whose models come and go would have a
file that grows without end. After a start all slots of a space are compared with its models; from
then on the removals that its change log lists since the last round are enough.
"""

from __future__ import annotations

import logging
import threading

import numpy as np
from sqlalchemy import select

from app.infra.db.database import Database
from app.infra.db.tables.catalog import SpaceRow
from app.models.index.repositories import changes
from app.models.index.sketch_folder import SketchFolder

__all__ = ["SketchSlots"]

log = logging.getLogger(__name__)


class SketchSlots:
    """Gives back the slots of removed models, on this machine.

    Args:
        database: the database that names the models.
    """

    def __init__(self, database: Database, sketches: SketchFolder) -> None:
        self._database = database
        self._sketches = sketches
        self._done: dict[int, int] = {}

    def run_once(self, stopping: threading.Event) -> None:
        """Give back the slots of models that were removed since the last round.

        Raises:
            Unavailable: the database cannot be used now.
        """
        existing = self._sketches.space_ids()
        self._done = {space: self._done[space] for space in existing if space in self._done}
        for space_id in existing:
            if stopping.is_set():
                return
            try:
                self._give_back(space_id)
            except OSError as error:
                log.info("slots of space %d are not given back: %s", space_id, error.strerror)

    def _give_back(self, space_id: int) -> None:
        with self._database.reading() as session:
            m = session.scalar(select(SpaceRow.num_parameters).where(SpaceRow.id == space_id))
        if m is None:
            return
        file, done = self._sketches.apart(space_id, m), self._done.get(space_id)
        # Before the models: slots are written after a commit, so these have or had a model.
        filled = file.filled_ids() if done is None else None
        with self._database.reading() as session:
            last = changes.last_removal(session, space_id)
            if filled is not None:
                models = changes.present_ids(session, space_id)
                removed = np.setdiff1d(filled, models, assume_unique=True)
            else:
                gone = changes.removed_since(session, space_id, done or 0)
                removed = np.unique(np.array(gone, np.int64))
        file.give_back(removed)
        self._done[space_id] = last
