"""Earlier revisions of a declared base: those that a model may be made from.

A base may have changed since a model was made from it. A model of a hub may pin the revision of its
base, and the hub's base records which of its revisions here has which revision of the hub.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from app.hubs.ingestion.stored_models import hub_of
from app.infra.db.database import Reader
from app.infra.errors import RevisionNotFound, SupportMissing, Unavailable
from app.models.catalog.reader import ModelReader, Subject
from app.models.catalog.records import ModelRecord
from app.models.catalog.repositories import revisions
from app.models.catalog.revisions import RevisionService
from app.models.spaces.origins import NOTHING_STATED
from app.models.spaces.records import SpaceRecord

__all__ = ["BaseRevisions", "Pin", "pin_of"]

_MAX_COMPARED: Final = 20
"""Earlier revisions that are read: the first, and the newest others."""


@dataclass(frozen=True, slots=True)
class Pin:
    """The revision of its base that a model names.

    Attributes:
        text: the hub's name of the revision.
        number: the number of the base's revision here; None where it is not known.
    """

    text: str
    number: int | None


class BaseRevisions:
    """Reads earlier revisions as subjects of a comparison.

    Args:
        reader: makes subjects.
        revisions: reads the supports that are kept.
    """

    def __init__(self, reader: ModelReader, revisions: RevisionService) -> None:
        self._reader = reader
        self._revisions = revisions

    def earlier(
        self, session: Reader, space: SpaceRecord, base: ModelRecord, number: int | None
    ) -> Iterator[tuple[int, Subject]]:
        """Yield the past revisions of a base whose supports can be read.

        Args:
            session: a session of any kind.
            base: the declared base, as it is now.
            number: the only wanted revision; None for all.
        """
        kept = [one for one in revisions.kept_revisions(session, base) if one < base.revision]
        wanted = kept if number is None else [one for one in kept if one == number]
        if len(wanted) > _MAX_COMPARED:
            wanted = [wanted[0], *wanted[1 - _MAX_COMPARED :]]
        origin = replace(NOTHING_STATED, blinding=space.blinding)
        for one in wanted:
            try:
                support = self._revisions.support(session, space, base.name, one)
            except (RevisionNotFound, SupportMissing, Unavailable):
                continue
            yield one, self._reader.given_subject(session, space, support, origin)


def pin_of(model: ModelRecord, base: ModelRecord) -> Pin | None:
    """The revision of its base that a model pins; None where it pins none."""
    hub = hub_of(model)
    several = hub.get("base_revisions")
    pinned = hub.get("base_revision") if len(model.bases) == 1 else None
    if isinstance(several, dict):
        pinned = several.get(base.name, pinned)
    if not isinstance(pinned, str):
        return None
    contents = hub_of(base).get("contents")
    number = contents.get(pinned) if isinstance(contents, dict) else None
    return Pin(pinned, number if isinstance(number, int) else None)
