"""``InboxService``: counts of what asks for a look, and the newest of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final, Literal

from app.anatomy.repositories import anatomies
from app.fingerprints.service import FingerprintService
from app.hubs.records import SourceRecord
from app.hubs.service import SourceService
from app.infra.db.database import Reader
from app.kinship.findings.records import InboxFinding
from app.kinship.findings.service import FindingService
from app.kinship.inbox.records import Copy, FailedDelivery, FailedJob, Found, Merged, Newest
from app.kinship.inbox.repositories import findings
from app.tenancy.auth.records import Tenant
from modelkin.core.fingerprints.sources import Verdict
from modelkin.core.kinship.lineage import LineageVerdict

__all__ = ["NEW_FOR", "InboxService"]

NEW_FOR: Final = timedelta(days=1)
"""The time that a model is new for."""
_SHOWN: Final = 3
_MOST: Final = 1_000
"""Names that are compared, to count each once."""
_MOST_COUNTED: Final = 10_000
"""Rows that are counted in an index."""
_MOST_SOURCES: Final = 200
_COPIES: Final[tuple[Verdict, ...]] = ("copy",)


class InboxService:
    """The inbox of a tenant, part by part: where one cannot be answered, the others can.

    Args:
        fingerprints: the stored fingerprints.
        sources: the followed hubs.
        findings: the kept verdicts on declared bases.
    """

    def __init__(
        self, fingerprints: FingerprintService, sources: SourceService, findings: FindingService
    ) -> None:
        self._fingerprints = fingerprints
        self._sources = sources
        self._findings = findings

    def is_open(self, session: Reader, tenant: Tenant) -> bool:
        """Whether workers still judge models or make anatomies, which may add to the inbox."""
        return self._findings.is_behind(session, tenant) or anatomies.is_any_due(session, tenant.id)

    def findings(
        self,
        session: Reader,
        tenant: Tenant,
        verdicts: Collection[LineageVerdict],
        *,
        limit: int = _SHOWN,
    ) -> Found[InboxFinding]:
        """The kept findings with these verdicts that nobody has acknowledged, in all spaces."""
        found = self._findings.inbox(
            session, tenant, verdicts=verdicts, newest=limit, most=_MOST_COUNTED + 1
        )
        newest = sorted(
            (finding for each in found for finding in each.newest),
            key=lambda finding: finding.found_at,
            reverse=True,
        )
        counts = [min(each.count, _MOST_COUNTED) for each in found]
        is_more = any(each.count > _MOST_COUNTED for each in found)
        return Found(sum(counts), newest[:limit], is_more)

    def new(
        self, session: Reader, tenant: Tenant, now: datetime, *, limit: int = _SHOWN
    ) -> Found[Newest]:
        """The models that were first stored since yesterday, each once in whatever spaces."""
        since = now - NEW_FOR
        alone = findings.newest_fingerprints(session, tenant.id, since, limit=limit)
        once = {each.name: each for each in alone}
        for each in findings.newest_models(session, tenant.id, since, limit=2 * limit):
            once[each.name] = each
        shown = sorted(once.values(), key=lambda each: each.at, reverse=True)
        count, fingerprints = findings.count_new(session, tenant.id, since, most=_MOST_COUNTED + 1)
        is_more = count > _MOST_COUNTED
        in_no_space = 0 if is_more else fingerprints
        return Found(min(count, _MOST_COUNTED), shown[:limit], is_more, in_no_space)

    def copies(self, session: Reader, tenant: Tenant) -> Found[Copy]:
        """The models that have all lines, or the weights, of an earlier one and no others."""
        lines = findings.found_as(session, tenant.id, _COPIES, limit=_MOST + 1)
        names = {name for _, name in lines}
        groups = self._same_weights(session, tenant, _MOST + 1)
        newest = [self._copy(session, tenant, *each) for each in lines[:_SHOWN]]
        same = [
            (id_, Copy(name, space, tuple(sorted(set(group) - {name}))))
            for group in groups
            for name, (id_, space) in group.items()
            if name not in names and id_ != min(group.values())[0]
        ]
        same.sort(key=lambda each: -each[0])
        newest += [each for _, each in same[: _SHOWN - len(newest)]]
        count = len(names) + len({each.name for _, each in same})
        return Found(min(count, _MOST), newest, count > _MOST or len(groups) > _MOST)

    def same_weights(
        self, session: Reader, tenant: Tenant, *, limit: int
    ) -> list[list[tuple[str, str]]]:
        """The groups of models with the very same weights: names, and a space of each."""
        groups = self._same_weights(session, tenant, limit)
        return [[(name, space) for name, (_, space) in sorted(each.items())] for each in groups]

    def merges(
        self, session: Reader, tenant: Tenant, verdict: Literal["average", "assembled"]
    ) -> Found[Merged]:
        """The models that anatomies found to be averages, or assembled of several."""
        shown = findings.found_as(session, tenant.id, [verdict], limit=_SHOWN)
        summaries = anatomies.find_summaries(session, tenant.id, [id_ for id_, _ in shown])
        count = findings.count_found(session, tenant.id, [verdict], most=_MOST_COUNTED + 1)
        newest = [
            Merged(name, each.verdict, each.relations[0].sentence if each.relations else "")
            for id_, name in shown
            if (each := summaries.get(id_)) is not None
        ]
        return Found(min(count, _MOST_COUNTED), newest, count > _MOST_COUNTED)

    def failed_jobs(self, session: Reader, tenant: Tenant) -> Found[FailedJob]:
        """The jobs that have failed, as long as they are kept."""
        count = findings.count_failed_jobs(session, tenant.id, most=_MOST_COUNTED + 1)
        newest = findings.failed_jobs(session, tenant.id, limit=_SHOWN)
        return Found(min(count, _MOST_COUNTED), newest, count > _MOST_COUNTED)

    def failed_sources(self, session: Reader, tenant: Tenant) -> Found[SourceRecord]:
        """The sources whose last poll or sync has failed."""
        page = self._sources.list(session, tenant, limit=_MOST_SOURCES, cursor=None)
        failed = [each for each in page.items if each.has_failed]
        return Found(len(failed), failed[:_SHOWN], page.next_cursor is not None)

    def failed_deliveries(self, session: Reader, tenant: Tenant) -> Found[FailedDelivery]:
        """The events that receivers did not get after all attempts, as long as they are kept."""
        count = findings.count_failed_deliveries(session, tenant.id, most=_MOST_COUNTED + 1)
        newest = findings.failed_deliveries(session, tenant.id, limit=_SHOWN)
        return Found(min(count, _MOST_COUNTED), newest, count > _MOST_COUNTED)

    def _same_weights(
        self, session: Reader, tenant: Tenant, limit: int
    ) -> list[dict[str, tuple[int, str]]]:
        """The groups of names with the same weights, with the id and a space of each."""
        groups = defaultdict[bytes, dict[str, tuple[int, str]]](dict)
        for digest, id_, name, space in findings.copies_by_weights(session, tenant.id, limit=limit):
            groups[digest].setdefault(name, (id_, space))
        return [each for each in groups.values() if len(each) > 1]

    def _copy(self, session: Reader, tenant: Tenant, id_: int, name: str) -> Copy:
        kin = anatomies.kin_of(session, tenant.id, id_, limit=_SHOWN, verdicts=_COPIES)
        others = self._fingerprints.by_ids(session, tenant, [each.other_id for each in kin])
        return Copy(name, None, tuple(sorted(each.name for each in others.values())))
