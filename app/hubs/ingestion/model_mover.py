"""``ModelMover``: what was stored of a model before, and has another name or space by now."""

from __future__ import annotations

from app.hubs.ingestion.component_changes import ComponentChange
from app.hubs.ingestion.stored_models import StoredModel
from app.hubs.records import ImportanceName
from app.hubs.service import OpenSource
from app.infra.db.database import Writer
from app.models.catalog.repositories import models
from app.models.catalog.writer import ModelWriter

__all__ = ["ModelMover"]


class ModelMover:
    """Renames and deletes stored supports, in the transaction that ends a sync."""

    def __init__(self, models: ModelWriter) -> None:
        self._models = models

    def move(
        self, session: Writer, source: OpenSource, change: ComponentChange
    ) -> list[tuple[ImportanceName, str]]:
        """Give the stored supports of a component its present name.

        A support that belongs to another space by now, or to none, goes with the policy of the
        source, unless it stays anyway. Returns the spaces where such supports are left.
        """
        kept = {space.id for space in change.targets.values()}
        left: list[tuple[ImportanceName, str]] = []
        for importance, one in (each for held in change.past for each in held):
            is_left = one.space.id not in kept
            if is_left and source.on_delete == "remove" and not change.stays:
                self._models.delete(session, one.space, one.model.name)
                continue
            self._rename(session, one, change.name)
            if is_left:
                left.append((importance, one.space.name))
        return left

    def _rename(self, session: Writer, held: StoredModel, name: str) -> None:
        """Give a stored model its present name; delete it if a model has that name already."""
        if held.model.name == name:
            return
        if models.find_model(session, held.space, name) is None:
            self._models.rename(session, held.space, held.model.name, name)
        else:
            self._models.delete(session, held.space, held.model.name)
