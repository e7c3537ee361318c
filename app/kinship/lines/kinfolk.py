"""``Kinfolk``: the models with lines in common, as the stored anatomies or the index know them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.anatomy.families import FamilyService
from app.anatomy.records import Summary, edge_to, put_together_of
from app.anatomy.service import AnatomyService
from app.fingerprints.records import FingerprintRecord
from app.infra.db.database import Reader
from app.infra.deadlines import Deadline
from app.infra.errors import FingerprintNotFound
from app.kinship.lines.records import NearByLines
from app.tenancy.auth.records import Tenant
from modelkin.core.fingerprints.relations.relation import Relation
from modelkin.core.fingerprints.sources import WHOLE

__all__ = ["Kinfolk", "NearModels"]

_MOST: Final = 50
"""The kin of a model that are looked at: those with most in common."""
_MOST_ASKED: Final = 5
"""Those whose anatomies are read."""


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
        families: knows the stored relatives.
        anatomies: finds relatives where none are stored.
    """

    def __init__(self, families: FamilyService, anatomies: AnatomyService) -> None:
        self._families = families
        self._anatomies = anatomies

    def near(
        self, session: Reader, tenant: Tenant, record: FingerprintRecord, deadline: Deadline
    ) -> NearModels:
        """The kin of a stored model; those of models that the jobs have not reached are found."""
        summary = self.summary(session, tenant, record)
        if summary is None:
            return self._found(session, tenant, record, deadline)
        kin = self._families.kin(session, tenant, record, limit=_MOST)
        items = [
            NearByLines(
                other,
                each.verdict,
                each.share,
                each.log10_p,
                edge_to(record, other, each.verdict, each.share),
            )
            for other, each in kin
        ]
        truncated = summary.truncated or len(kin) == _MOST
        return NearModels(_nearest_first(items), summary.compared, truncated)

    def summary(self, session: Reader, tenant: Tenant, record: FingerprintRecord) -> Summary | None:
        """The stored anatomy of a model; None where it is to be made, or made again."""
        found = self._families.summaries(session, tenant, [record]).get(record.id)
        return None if found is None or found.is_due else found

    def made_of(
        self,
        session: Reader,
        tenant: Tenant,
        record: FingerprintRecord,
        near: Sequence[NearByLines],
        deadline: Deadline,
    ) -> set[str]:
        """The names of those of near models that an anatomy says were put together of this one.

        It may name a copy of this one. The anatomy of the first of them is made where none is
        stored, as right after a push.
        """
        same = {record.name, *(each.record.name for each in near if each.verdict == "copy")}
        whole = [each.record for each in near if each.verdict in WHOLE]
        others = [each for each in whole if each.name not in same][:_MOST_ASKED]
        stored = self._families.summaries(session, tenant, [record, *others])
        found, made = set[str](), 0
        for each in others:
            summary = stored.get(each.id)
            if summary is not None and not summary.is_due:
                relations = summary.relations
            elif not made:
                made += 1
                relations = self._relations(session, tenant, each, deadline)
            else:
                continue
            if same & put_together_of(relations):
                found.add(each.name)
        own = stored.get(record.id)
        return found - (set() if own is None else put_together_of(own.relations))

    def _relations(
        self, session: Reader, tenant: Tenant, record: FingerprintRecord, deadline: Deadline
    ) -> tuple[Relation, ...]:
        """Those of a model whose anatomy is not stored; none if it was removed meanwhile."""
        try:
            found = self._anatomies.anatomy(session, tenant, record, deadline=deadline)
        except FingerprintNotFound:
            return ()
        return found.anatomy.relations

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
