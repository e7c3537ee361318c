"""``Kinfolk``: the models with lines in common, as the stored anatomies or the index know them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.anatomy import repository
from app.anatomy.records import Summary, edge_to
from app.anatomy.service import AnatomyService
from app.fingerprints.records import FingerprintRecord
from app.fingerprints.service import FingerprintService
from app.infra.db.database import Reader
from app.infra.deadlines import Deadline
from app.kinship.lines.records import NearByLines
from app.tenancy.auth.records import Tenant

__all__ = ["Kinfolk", "NearModels"]

_MOST: Final = 50
"""The kin of a model that are looked at: those with most in common."""


@dataclass(frozen=True, slots=True)
class NearModels:
    """The models with lines in common, those with the largest shares first.

    Attributes:
        compared: how many models were asked.
        truncated: whether there may be others.
    """

    items: Sequence[NearByLines]
    compared: int
    truncated: bool


class Kinfolk:
    """Finds the models with lines in common.

    Args:
        fingerprints: the stored fingerprints.
        anatomies: finds relatives where none are stored.
    """

    def __init__(self, fingerprints: FingerprintService, anatomies: AnatomyService) -> None:
        self._fingerprints = fingerprints
        self._anatomies = anatomies

    def near(
        self, session: Reader, tenant: Tenant, record: FingerprintRecord, deadline: Deadline
    ) -> NearModels:
        """The kin of a stored model; those of models that the jobs have not reached are found."""
        summary = self.summary(session, record)
        if summary is None:
            return self._found(session, tenant, record, deadline)
        kin = repository.kin_of(session, tenant.id, record.id, limit=_MOST)
        records = self._fingerprints.by_ids(session, tenant, [each.other_id for each in kin])
        items = [
            NearByLines(
                records[each.other_id],
                each.verdict,
                each.share,
                each.log10_p,
                edge_to(record, records[each.other_id], each.verdict, each.share),
            )
            for each in kin
            if each.other_id in records
        ]
        truncated = summary.truncated or len(kin) == _MOST
        return NearModels(_nearest_first(items), summary.compared, truncated)

    def summary(self, session: Reader, record: FingerprintRecord) -> Summary | None:
        """The stored anatomy of a model; None where it is to be made, or made again."""
        found = repository.find_summaries(session, record.tenant_id, [record.id]).get(record.id)
        return None if found is None or found.is_due else found

    def _found(
        self, session: Reader, tenant: Tenant, record: FingerprintRecord, deadline: Deadline
    ) -> NearModels:
        found = self._anatomies.relatives(session, tenant, record, k=_MOST, deadline=deadline)
        items = [
            NearByLines(
                each.record,
                each.parent.verdict,
                each.parent.share_of_lines,
                each.parent.log10_p,
                each.edge,
            )
            for each in found.items
            if each.parent is not None
        ]
        return NearModels(_nearest_first(items), found.compared, found.truncated)


def _nearest_first(items: Sequence[NearByLines]) -> list[NearByLines]:
    return sorted(items, key=lambda each: (-each.share, each.record.name))
