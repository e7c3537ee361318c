"""Overviews of what anatomies have stored: models by name, and copies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
        to_base: what it is to the base by which it is a member of a family; None without one.
        made_from: how many models are made from it directly, as families count them.
    """

    record: FingerprintRecord
    summary: Summary | None
    to_base: Kin | None
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
        listed = [records[id_] for id_ in page.items if id_ in records]
        return Page(tuple(self._listed(session, tenant, listed)), page.next_cursor)

    def model(self, session: Reader, tenant: Tenant, record: FingerprintRecord) -> Model:
        """One of these models."""
        [model] = self._listed(session, tenant, [record])
        return model

    def _listed(
        self, session: Reader, tenant: Tenant, records: Sequence[FingerprintRecord]
    ) -> list[Model]:
        ids = [record.id for record in records]
        summaries = anatomies.find_summaries(session, tenant.id, ids)
        bases = {id_: each.base for id_, each in summaries.items() if each.base is not None}
        kin = {
            each.fingerprint_id: each
            for each in anatomies.find_kin(session, tenant.id, bases, {*bases.values()})
            if each.other_id == bases[each.fingerprint_id]
        }
        made_from = listings.count_made_from(session, tenant.id, ids)
        return [
            Model(each, summaries.get(each.id), kin.get(each.id), made_from[each.id])
            for each in records
        ]

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
