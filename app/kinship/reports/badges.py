"""``BadgeService``: the picture that says what a model is by its weights."""

from __future__ import annotations

from app.fingerprints.service import FingerprintService
from app.infra.db.database import Reader
from app.kinship.reports.renderings.badge import badge, words_of
from app.kinship.reports.repositories.evidence import find_measured
from app.tenancy.auth.records import Tenant

__all__ = ["BadgeService"]


class BadgeService:
    """Draws the badges of models.

    Args:
        fingerprints: knows which models there are.
    """

    def __init__(self, fingerprints: FingerprintService) -> None:
        self._fingerprints = fingerprints

    def picture(self, session: Reader, tenant: Tenant, name: str) -> bytes:
        """The badge of a model, an SVG.

        Raises:
            FingerprintNotFound: the model has no fingerprint.
        """
        record = self._fingerprints.get(session, tenant, name)
        [model] = find_measured(session, tenant.id, ids=[record.id])
        named: list[str] = next((e["models"] for e in model.relations if e["models"]), [])
        return badge(words_of(model.verdict, named), model.verdict, model.measured_at)
