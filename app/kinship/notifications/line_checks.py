"""``LineChecks``: check lineages again where fingerprints, their statements or their kin are new.

A base of another layout may come after the models that declare it, and so may the models that
contradict it. Models of spaces get an event there, which checks them; all others are checked here,
for subscriptions to all spaces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import quote

from app.fingerprints.service import FingerprintService
from app.infra.db.database import Database, Reader, Writer
from app.infra.errors import FingerprintNotFound
from app.kinship.lines.service import FingerprintLineageService
from app.kinship.notifications.announcements import Notice, watches
from app.kinship.notifications.payloads import mismatch_data
from app.kinship.repository import ids_across_spaces
from app.models.catalog import events
from app.models.catalog.records import ModelRecord
from app.models.catalog.repositories import models
from app.models.catalog.repositories.candidates import candidates_by_name
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import spaces
from app.tenancy.auth.tenants import get_tenant
from app.webhooks.outbox import LINEAGE_MISMATCH, Outbox
from app.webhooks.repositories.events import Event
from app.webhooks.repositories.subscriptions import Subscription
from modelkin.types.lineages import FingerprintLineage

__all__ = ["MAX_CHECKED", "LineChecks"]

MAX_CHECKED: Final = 200
"""Models that are checked again after a change of their base: the first that were stored."""


class LineChecks:
    """Checks the lineages that an event about lines may have changed.

    Args:
        database: the database of events.
        fingerprints: the stored fingerprints.
        lineages: judges their bases.
        outbox: gets the events of models of spaces.
    """

    def __init__(
        self,
        database: Database,
        fingerprints: FingerprintService,
        lineages: FingerprintLineageService,
        outbox: Outbox,
    ) -> None:
        self._database = database
        self._fingerprints = fingerprints
        self._lineages = lineages
        self._outbox = outbox

    def notices(self, event: Event, here: Sequence[Subscription]) -> list[Notice]:
        """The notices about models of no space whose declared bases lines contradict."""
        interested = [each for each in here if LINEAGE_MISMATCH in each.events]
        if not interested:
            return []
        found = list[Notice]()
        with self._database.reading() as session:
            names = self._names(session, event)
        for name in names:
            watching = [each for each in interested if watches(each, name, ())]
            lineage = self._lineage(event, name) if watching else None
            if lineage is not None and lineage[0].verdict == "mismatch":
                url = f"/v1/fingerprints/{quote(name, safe='/')}/lineage"
                data = mismatch_data(*lineage, url)
                found += [(each, LINEAGE_MISMATCH, data) for each in watching]
        return found

    def write(self, session: Writer, event: Event) -> None:
        """Write the events of models of spaces of which lines judge a base."""
        for space, found in self._of_spaces(session, event):
            of_lines = [each for each in found if _has_base_elsewhere(session, space, each)]
            events.bases_changed(self._outbox, session, space, of_lines)

    def _names(self, session: Reader, event: Event) -> list[str]:
        """The models to check here: those that no space has, where they would be told of twice."""
        assert event.model is not None
        tenant = get_tenant(session, event.tenant_id)
        names = [event.model]
        if event.data.get("is_base"):
            names += self._fingerprints.names_declaring(
                session, tenant, event.model, limit=MAX_CHECKED
            )
        told = {each.name for _, found in self._of_spaces(session, event) for each in found}
        return [name for name in dict.fromkeys(names) if name not in told]

    def _of_spaces(
        self, session: Reader, event: Event
    ) -> Iterator[tuple[SpaceRecord, list[ModelRecord]]]:
        """The models of spaces that an event may be news of, with their spaces."""
        assert event.model is not None
        found = ids_across_spaces(
            session,
            event.tenant_id,
            event.model,
            are_bases=bool(event.data.get("is_base")),
            limit=MAX_CHECKED,
        )
        for space_id, ids in found.items():
            space = spaces.find_space_by_id(session, space_id)
            if space is not None:
                known = models.models_by_id(session, ids)
                yield space, [known[each] for each in ids if each in known]

    def _lineage(self, event: Event, name: str) -> tuple[FingerprintLineage, int] | None:
        """The lineage of a fingerprint and its revision; None where it declares nothing."""
        with self._database.reading() as session:
            tenant = get_tenant(session, event.tenant_id)
            record = self._fingerprints.find(session, tenant, name)
            if record is None or not record.facts.base_models:
                return None
            try:
                return self._lineages.lineage(session, tenant, name), record.revision
            except FingerprintNotFound:  # deleted meanwhile
                return None


def _has_base_elsewhere(session: Reader, space: SpaceRecord, model: ModelRecord) -> bool:
    """Whether a base is not in the model's space, so that S does not judge it."""
    here = {each.name for each in candidates_by_name(session, space, model.bases)}
    return not here.issuperset(model.bases)
