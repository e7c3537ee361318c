"""``BadgeService``: the picture that says what a model is by its weights."""

from __future__ import annotations

from typing import Final

from app.anatomy.families import Family, FamilyService
from app.anatomy.records import edge_to
from app.fingerprints.records import FingerprintRecord
from app.fingerprints.service import FingerprintService
from app.infra.db.database import Reader
from app.kinship.reports.renderings.badge import badge, words_of
from app.kinship.reports.repositories.evidence import MeasuredModel, find_measured
from app.tenancy.auth.records import Tenant

__all__ = ["BadgeService"]

_WITHOUT_BASE: Final = ("average", "assembled", "related")
"""Verdicts whose words give nobody the place of a base."""


class BadgeService:
    """Draws the badges of models.

    Args:
        fingerprints: knows which models there are.
        families: knows their bases.
    """

    def __init__(self, fingerprints: FingerprintService, families: FamilyService) -> None:
        self._fingerprints = fingerprints
        self._families = families

    def picture(self, session: Reader, tenant: Tenant, name: str) -> bytes:
        """The badge of a model, an SVG: of a base of it, if one is drawn, and never of a child.

        Raises:
            FingerprintNotFound: the model has no fingerprint.
        """
        record = self._fingerprints.get(session, tenant, name)
        [model] = find_measured(session, tenant.id, ids=[record.id])
        return badge(self._words(session, tenant, record, model), model.verdict, model.measured_at)

    def _words(
        self, session: Reader, tenant: Tenant, record: FingerprintRecord, model: MeasuredModel
    ) -> str:
        named: list[str] = next((e["models"] for e in model.relations if e["models"]), [])
        if not named or model.verdict in _WITHOUT_BASE:
            return words_of(model.verdict, named)
        family = self._families.family(session, tenant, record)
        base = _base(record, family)
        if base is not None:
            verdict, name = base
            return words_of(verdict, [name])
        others = named[0] if family.kin == 1 else f"{family.kin:,} models"
        return words_of("derived", [others])


def _base(record: FingerprintRecord, family: Family) -> tuple[str, str] | None:
    """What a model is to the base that its badge names, and the name of this one.

    It is a declared one, else one that the service read itself, else any; the nearest of these.
    """
    stated_by = {each.name: each.record.stated_by for each in family.members if each.record}
    found = [
        (not edge.is_declared, stated_by[edge.base] != "hub", -edge.kin.share, edge.base, edge.kin)
        for edge in family.edges
        if edge.model == record.name and edge.kin is not None
    ]
    found += [
        (True, other.stated_by != "hub", -kin.share, other.name, kin)
        for other, kin in family.copies
        if edge_to(record, other, kin.verdict, kin.share) and _comes_first(other, record)
    ]
    if not found:
        return None
    *_, name, kin = min(found, key=lambda each: each[:4])
    return kin.verdict, name


def _comes_first(other: FingerprintRecord, record: FingerprintRecord) -> bool:
    """Whether the other of two copies is the first: of two without dates, the one stored first."""
    dated = other.facts.published_at is not None and record.facts.published_at is not None
    return dated or other.id < record.id
