"""Delete the rows of large deleted spaces batch by batch, between other writers."""

from __future__ import annotations

import logging
import threading
import time

from app.infra.db.database import Database
from app.models.spaces.repositories import spaces
from app.models.spaces.service import MAX_MODELS_AT_ONCE

__all__ = ["DeletedSpaces"]

log = logging.getLogger(__name__)


class DeletedSpaces:
    """Deletes the remaining rows of deleted spaces.

    Args:
        database: pruned.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def run_once(self, stopping: threading.Event) -> None:
        """Delete all of it, with a pause after each batch; end early when ``stopping`` is set.

        Raises:
            Unavailable: the database cannot be used now.
        """
        with self._database.reading() as session:
            retired = spaces.retired_spaces(session)
        for space_id in retired:
            done = False
            while not done and not stopping.is_set():
                begun = time.monotonic()
                with self._database.writing() as session:
                    done = spaces.delete_retired(session, space_id, MAX_MODELS_AT_ONCE)
                stopping.wait(time.monotonic() - begun)
            if done:
                log.info("the rows of the deleted space %d are gone", space_id)
