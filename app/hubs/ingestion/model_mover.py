"""``ModelMover``: what was stored of a model before, and has another name or space by now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.hubs.ingestion.results import IngestResult
from app.hubs.ingestion.stored_models import Held, StoredModel
from app.hubs.ingestion.sync_results import SyncedModel
from app.hubs.records import ImportanceName
from app.infra.db.database import Writer
from app.models.catalog.repositories import models
from app.models.catalog.writer import ModelWriter
from app.models.spaces.records import SpaceRecord

__all__ = ["ModelMover"]


class ModelMover:
    """Renames and deletes stored supports, in the transaction that ends a sync."""

    def __init__(self, models: ModelWriter) -> None:
        self._models = models

    def move(
        self,
        session: Writer,
        part: SyncedModel,
        past: Sequence[Held],
        targets: Mapping[ImportanceName, SpaceRecord],
    ) -> dict[ImportanceName, str]:
        """Give the stored supports of a model its present name.

        A support that belongs to another space by now, or to none, stays where it is if the source
        keeps deleted models. Returns these spaces.
        """
        kept = {space.id for space in targets.values()}
        left: dict[ImportanceName, str] = {}
        for importance, one in (each for held in past for each in held):
            if one.space.id not in kept and part.made.source.on_delete == "remove":
                self._models.delete(session, one.space, one.model.name)
                continue
            self._rename(session, one, part.made.name)
            if one.space.id not in kept:
                left[importance] = one.space.name
        return left

    def leave(
        self,
        session: Writer,
        made: IngestResult,
        name: str,
        past: Sequence[Held],
        keep: bool,
    ) -> list[str]:
        """Delete what the repository has no longer, unless it is kept; return its spaces then.

        Args:
            name: the name that it has here now.
        """
        spaces_left = []
        for _, one in (each for held in past for each in held):
            if made.source.on_delete == "remove" and not keep:
                self._models.delete(session, one.space, one.model.name)
            else:
                self._rename(session, one, name)
                spaces_left.append(one.space.name)
        return spaces_left

    def _rename(self, session: Writer, held: StoredModel, name: str) -> None:
        """Give a stored model its present name; delete it if a model has that name already."""
        if held.model.name == name:
            return
        if models.find_model(session, held.space, name) is None:
            self._models.rename(session, held.space, held.model.name, name)
        else:
            self._models.delete(session, held.space, held.model.name)
