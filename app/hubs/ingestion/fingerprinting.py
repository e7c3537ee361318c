"""``Fingerprinting``: the fingerprint of a hub's model, and its place among the tenant's.

A fingerprint belongs to a name and to no space. So a model has one whose layout is new, or of which
no support can be made. What is stored of another hub's model of that name stays.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.fingerprints.records import Facts, FingerprintRecord, PreparedFingerprint
from app.fingerprints.service import FingerprintService
from app.hubs.ingestion.descriptions import bases_of
from app.hubs.ingestion.files.checkpoint_fetcher import revision_label
from app.hubs.ingestion.files.checkpoint_files import choose
from app.hubs.ingestion.reading import LinesRequest
from app.hubs.ingestion.results import IngestResult
from app.hubs.ingestion.stored_models import address_of
from app.hubs.repositories import fingerprint_states, sources
from app.hubs.repositories.fingerprint_states import FingerprintState
from app.hubs.service import OpenSource
from app.infra.db.database import Database, Reader, Writer
from app.infra.errors import FingerprintNotFound, QuotaExceeded
from app.models.catalog.records import DeclaredBases
from app.tenancy.auth.records import Tenant
from modelkin.core.fingerprints.matrices import MIN_SIDE
from modelkin.errors import InvalidFingerprint, InvalidImportance, PayloadTooLarge

__all__ = ["FoundFingerprint", "Fingerprinting"]

_ADAPTER: Final = "it is an adapter, whose factors are no lines of a model"
_NO_LINES: Final = f"no tensor has lines to compare, of {MIN_SIDE} values or more"


@dataclass(frozen=True, slots=True)
class FoundFingerprint:
    """What a sync knows of a model's fingerprint.

    Attributes:
        recipe: a digest that is the same for the same fingerprint.
        prepared: the fingerprint, read now or before; None where there is none.
        reason: why there is none.
    """

    recipe: str
    prepared: PreparedFingerprint | None = None
    reason: str | None = None


class Fingerprinting:
    """Makes, finds, stores and removes the fingerprints of sources.

    Args:
        database: the database of sources and fingerprints.
        service: stores the fingerprints of a tenant.
    """

    def __init__(self, database: Database, service: FingerprintService) -> None:
        self._database = database
        self._service = service

    # --- before the transaction that ends a sync ----------------------------------------------

    def find(self, made: IngestResult) -> FoundFingerprint | None:
        """What is known of a model without reading it; None where it is to be read."""
        recipe = made.fingerprint_recipe
        if made.adapter:
            return FoundFingerprint(recipe, reason=_ADAPTER)
        with self._database.reading() as session:
            for name in filter(None, (made.revision.name, made.moved_from)):
                states = fingerprint_states.read_states(session, made.source.id, name)
                before = states.get(made.revision.component)
                if before is not None and before.recipe == recipe and before.reason is not None:
                    return FoundFingerprint(recipe, reason=before.reason)
                known = made.name if before is None else before.model
                record = self._service.find(session, made.source.tenant, known)
                if record is None or not self._is_of(session, record, made.source):
                    continue
                as_read = before is not None and before.recipe == recipe
                if not as_read and record.hub_revision != made.revision.revision:
                    continue
                try:
                    prepared = self._service.prepare(self._service.payload(session, record))
                except (FingerprintNotFound, InvalidFingerprint):  # removed, or of another scheme
                    continue
                return FoundFingerprint(recipe, prepared)
        return None

    def found(self, made: IngestResult, lines: LinesRequest) -> FoundFingerprint:
        """The fingerprint of lines that a pass has read."""
        recipe = made.fingerprint_recipe
        try:
            prepared = self._service.prepare(lines.fingerprint())
        except (InvalidImportance, InvalidFingerprint, PayloadTooLarge) as error:
            return FoundFingerprint(recipe, reason=str(error))
        if not prepared.keys:
            return FoundFingerprint(recipe, reason=_NO_LINES)
        return FoundFingerprint(recipe, prepared)

    # --- in that transaction ------------------------------------------------------------------

    def store(
        self,
        session: Writer,
        found: Sequence[tuple[IngestResult, FoundFingerprint | None]],
        refused: Collection[str] = (),
    ) -> dict[str | None, dict[str, Any]]:
        """Store the fingerprints of a model and its components, whose row is locked.

        What the model had under another name, or as a component that is gone, goes with the
        source's policy.

        Args:
            found: None for a component that was not asked for one.
            refused: the components that cannot be read; their fingerprints stay as they are.

        Returns:
            What to say of each, by component.
        """
        made = found[0][0]
        source, name = made.source, made.revision.name
        before = fingerprint_states.read_states(session, source.id, name)
        if made.moved_from is not None:
            moved = fingerprint_states.read_states(session, source.id, made.moved_from)
            before = moved | before
        states = {part: before.pop(part) for part in [*before] if part in refused}
        said, whole = dict[str | None, dict[str, Any]](), True
        for each, finding in found:
            component, past = each.revision.component, before.pop(each.revision.component, None)
            if finding is None:
                whole = whole and past is not None and past.recipe == each.fingerprint_recipe
                states |= {} if past is None else {component: past}
                continue
            recipe = finding.recipe
            try:
                said[component] = self._put(session, each, finding)
            except QuotaExceeded as error:
                said[component], whole = {"reason": str(error)}, False
            reason = said[component].get("reason")
            if reason is not None and finding.reason is None:
                recipe = ""  # a later sync tries it again: there may be room, or the name be free
            states[component] = FingerprintState(recipe, each.name, reason)
            if past is not None and past.model != each.name:
                self._delete(session, source, past.model)
        for past in before.values() if source.on_delete == "remove" else ():
            self._delete(session, source, past.model)
        fingerprint_states.keep(session, source.id, name, states, whole=whole)
        return said

    def remove(self, session: Writer, source: OpenSource, name: str) -> bool:
        """Remove the fingerprints of a model that its hub has no longer; whether it had one."""
        before = fingerprint_states.read_states(session, source.id, name)
        removed = [self._delete(session, source, state.model) for state in before.values()]
        fingerprint_states.keep(session, source.id, name, {}, whole=False)
        return any(removed)

    def removing(self, session: Writer, tenant: Tenant, name: str) -> None:
        """Have a fingerprint made again that a client removes in this transaction."""
        fingerprint_states.reset(session, tenant.id, name)

    def _put(self, session: Writer, made: IngestResult, found: FoundFingerprint) -> dict[str, Any]:
        source, tenant = made.source, made.source.tenant
        if found.prepared is None:
            self._delete(session, source, made.name)
            return {"reason": found.reason}
        current = self._service.find(session, tenant, made.name)
        if current is not None and current.stated_by == "hub":
            other = self._other_hub(session, current, source)
            if other is not None:
                return {"reason": f"the fingerprint of {made.name!r} is that of a model of {other}"}
        stored = self._service.put(
            session,
            tenant,
            made.name,
            found.prepared,
            stated_by="hub",
            facts=_facts_of(made),
            source_id=source.id,
            hub_revision=made.revision.revision,
        )
        record = stored.record
        status = "created" if stored.created else "changed" if stored.changed else "unchanged"
        return {
            "status": status,
            "tensors": record.tensors,
            "keys": record.keys,
            "scale": record.scale,
        }

    def _delete(self, session: Writer, source: OpenSource, name: str) -> bool:
        """Delete the fingerprint of a name, if it is that of a model of this hub."""
        record = self._service.find(session, source.tenant, name)
        if record is None or not self._is_of(session, record, source):
            return False
        self._service.delete(session, source.tenant, name, by="hub")
        return True

    def _is_of(self, session: Reader, record: FingerprintRecord, source: OpenSource) -> bool:
        """Whether a fingerprint was made from a model of a source's hub."""
        if record.stated_by != "hub":
            return False
        return self._other_hub(session, record, source) is None

    def _other_hub(
        self, session: Reader, record: FingerprintRecord, source: OpenSource
    ) -> str | None:
        """The address of the hub that a fingerprint is of, if that is another one."""
        if record.source_id in (None, source.id):
            return None
        other = sources.find_source(session, str(record.source_id))
        if other is None or other.tenant.id != source.tenant.id:  # that source was deleted
            return None
        same = (other.kind, (other.url or "").rstrip("/")) == (source.kind, address_of(source))
        return None if same else other.url or other.kind


def _facts_of(made: IngestResult) -> Facts:
    """What the hub states beside the weights."""
    revision, bases = made.revision, bases_of(made)
    declared = bases(DeclaredBases()) if callable(bases) else DeclaredBases()
    sizes = [file.size for file in choose(revision.files, revision_label(revision)).weights]
    return Facts(
        base_models=declared.names,
        base_relation=declared.relation,
        license=revision.license,
        published_at=revision.published_at,
        file_bytes=None if None in sizes else sum(size or 0 for size in sizes),
    )
