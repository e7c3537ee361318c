"""Overviews of what anatomies have stored: models by name, and copies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from app.anatomy.records import Kin, Summary
from app.anatomy.repositories import anatomies, listings
from app.fingerprints.records import FingerprintRecord, StatedBy
from app.fingerprints.service import FingerprintService
from app.infra.db.database import Reader
from app.tenancy.auth.records import Tenant
from modelkin.core.fingerprints.anatomy import AnatomyVerdict
from modelkin.types.paging import Page

__all__ = ["AnatomyOverviews", "CopyGroup", "Model"]

_SHOWN: Final = 5
"""The copies of a group that are named."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model of the list.

    Attributes:
        summary: its last anatomy; None before the first.
        made_from: how many models are made from it directly, as families count them.
    """

    record: FingerprintRecord
    summary: Summary | None
    made_from: int

    @property
    def is_root(self) -> bool:
        """Whether it is made from none, as far as is known, and others are made from it."""
        if self.summary is None or self.summary.base is not None:
            return False
        return self.made_from > 0 and not self.record.facts.base_models


@dataclass(frozen=True, slots=True)
class CopyGroup:
    """Models with the same lines, and no others.

    Attributes:
        first: the one that was stored first.
        copies: how many others there are.
        some: a few of these.
    """

    first: FingerprintRecord
    copies: int
    some: tuple[FingerprintRecord, ...]


class AnatomyOverviews:
    """Lists of models and of copies.

    Args:
        fingerprints: the stored fingerprints.
    """

    def __init__(self, fingerprints: FingerprintService) -> None:
        self._fingerprints = fingerprints

    def models(
        self,
        session: Reader,
        tenant: Tenant,
        *,
        limit: int,
        cursor: str | None = None,
        text: str | None = None,
        stated_by: StatedBy | None = None,
        verdict: AnatomyVerdict | None = None,
    ) -> Page[Model]:
        """The models with a fingerprint in the order of their names.

        Args:
            text: only names that have it anywhere; ASCII letters match in either case.
            stated_by: only those of hubs, or of clients.
            verdict: only models of whose last anatomy this is the verdict.
        """
        page = listings.list_models(
            session,
            tenant.id,
            limit=limit,
            cursor=cursor,
            text=text,
            stated_by=stated_by,
            verdict=verdict,
        )
        records = self._fingerprints.by_ids(session, tenant, page.items)
        summaries = anatomies.find_summaries(session, tenant.id, page.items)
        made_from = listings.count_made_from(session, tenant.id, page.items)
        found = (
            Model(records[id_], summaries.get(id_), made_from[id_])
            for id_ in page.items
            if id_ in records
        )
        return Page(tuple(found), page.next_cursor)

    def model(self, session: Reader, tenant: Tenant, record: FingerprintRecord) -> Model:
        """One of these models."""
        summary = anatomies.find_summaries(session, tenant.id, [record.id]).get(record.id)
        made_from = listings.count_made_from(session, tenant.id, [record.id])
        return Model(record, summary, made_from[record.id])

    def copies(
        self, session: Reader, tenant: Tenant, *, limit: int, offset: int = 0
    ) -> list[CopyGroup]:
        """The groups of models that are copies of each other, the largest first."""
        groups = listings.copy_groups(session, tenant.id, limit=limit, offset=offset)
        some = {
            first: anatomies.kin_of(session, tenant.id, first, limit=_SHOWN, verdicts=["copy"])
            for first, _ in groups
        }
        ids = {*some, *(each.other_id for kin in some.values() for each in kin)}
        records = self._fingerprints.by_ids(session, tenant, ids)
        return [
            CopyGroup(records[first], copies, tuple(_known(records, some[first])))
            for first, copies in groups
            if first in records
        ]


def _known(
    records: dict[int, FingerprintRecord], kin: Iterable[Kin]
) -> Iterator[FingerprintRecord]:
    return (records[each.other_id] for each in kin if each.other_id in records)
