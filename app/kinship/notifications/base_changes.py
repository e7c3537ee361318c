"""``BaseChanges``: check models again if their declared base has come or changed.

The base may cause a contradiction: it came after the models that declare it, or its content
changed. So each of these models gets an event, which checks its lineage.
"""

from __future__ import annotations

from typing import Final

from app.infra.db.database import Reader, Writer
from app.kinship.repository import ids_declaring
from app.models.catalog import events
from app.models.catalog.records import ModelRecord
from app.models.catalog.repositories import models
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import spaces
from app.webhooks.outbox import SUPPORT_STORED, Outbox
from app.webhooks.repositories import events as event_repository
from app.webhooks.repositories.events import Event

__all__ = ["MAX_CHECKED", "BaseChanges"]

MAX_CHECKED: Final = 1000
"""Models that are checked again after a change of their base: the first that were stored."""


class BaseChanges:
    """Writes the events that check models again."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def is_due_later(self, session: Reader, event: Event, model: ModelRecord) -> bool:
        """Whether a waiting event of the base will have this model checked, so this event need not.

        Args:
            session: a session of any kind.
            event: an event about the model.
            model: a model with a declared base.
        """
        space = spaces.find_space_by_id(session, event.space_id)
        if space is None:
            return False
        return any(
            event_repository.is_pending(session, event.space_id, base, SUPPORT_STORED)
            and model.id in _checked_ids(session, space, base)
            for base in model.bases
        )

    def write(self, session: Writer, event: Event, base: ModelRecord) -> None:
        """Write the events of the models that declare a base whose content is new."""
        if event.type != SUPPORT_STORED or event_repository.is_followed(session, event):
            return
        space = spaces.find_space_by_id(session, event.space_id)
        if space is None:
            return
        ids = _checked_ids(session, space, base.name)
        found = models.models_by_id(session, ids)
        events.bases_changed(self._outbox, session, space, [found[i] for i in ids if i in found])


def _checked_ids(session: Reader, space: SpaceRecord, base: str) -> list[int]:
    """The ids of the models that a change of their base has checked."""
    return sorted(ids_declaring(session, space, [base]))[:MAX_CHECKED]
