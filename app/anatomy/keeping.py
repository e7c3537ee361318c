"""``AnatomyKeeper``: the stored anatomies, made again after each change by jobs.

A put marks the anatomy of its fingerprint as due, in its own transaction. A job compares it, and
stores what it and its kin are to each other, one row for each order of a pair: so a base that comes
later than its children gets its edges. Where the newcomer may change what was said of its kin,
theirs are due as well. Nothing of that is an ancestor's tree: lines have no direction.

Jobs may stop anywhere, and be carried out twice: each writes the same rows again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, Protocol

from app.anatomy.events import anatomy_changed
from app.anatomy.pairs import both_ways
from app.anatomy.records import Kin, ModelAnatomy, Summary, base_among, put_together_of
from app.anatomy.repositories import anatomies
from app.anatomy.repositories.anatomies import Due
from app.anatomy.service import AnatomyService
from app.fingerprints.records import FingerprintRecord
from app.fingerprints.repositories.feeds import lock_feed
from app.fingerprints.service import FingerprintService
from app.infra.db.database import Database, Reader, Writer
from app.infra.errors import FingerprintNotFound, Unavailable
from app.jobs.records import JobRecord
from app.jobs.service import SERVICE, CommitHook, JobService, Progress, Unfinished
from app.tenancy.auth.records import Tenant
from app.webhooks.outbox import Outbox

__all__ = ["CHECK_INTERVAL", "JOB_KIND", "AnatomyKeeper", "LinesChanged"]

JOB_KIND: Final = "anatomies"
"""The kind of the jobs that make the due anatomies of a tenant."""
CHECK_INTERVAL: Final = timedelta(seconds=30)
"""The interval in which the workers check for anatomies whose job was lost."""
_SHARDS: Final = 8
"""The jobs that a tenant's anatomies are divided among, by their ids: so many work side by side."""
_DELAY: Final = timedelta(seconds=1)
"""The time from a put to the job that divides what is due. Puts in the first half of it enqueue no
other, since that takes longer than to store a fingerprint."""
_MOST_WAITING: Final = 10_000
_TIME_SLICE_S: Final = 3.0
"""Seconds after which the job is queued again, so that other jobs get its place."""
_BATCH_SIZE: Final = 16
_OVERDUE_AFTER: Final = timedelta(seconds=30)
"""The time after which the job of a due anatomy must have been lost."""
_MOST_COMPARED: Final = 20
"""The known kin that are compared again, whether the index finds them or not."""
_MOST_SPREAD: Final = 20_000
"""The kin of kin of a base that comes after its children; the others are found when asked for."""
_COVERED: Final = 0.99
"""The share of lines from which on no further model adds any."""
_NEARER: Final = 1.02
"""How much more of a model's lines a newcomer has than its first parent, to stand before it: less
is the error of a sample, and would have all members of a family compared again at each put."""
_MIN_RETRY_DELAY, _MAX_RETRY_DELAY = timedelta(seconds=5), timedelta(hours=1)

log = logging.getLogger(__name__)


class LinesChanged(Protocol):
    """Learns of models of whose lineage lines may say something else now, in that transaction."""

    def __call__(self, session: Writer, tenant: Tenant, name: str, *, are_bases: bool) -> None: ...


class AnatomyKeeper:
    """Makes and stores the anatomies of all fingerprints.

    Args:
        database: where they are stored.
        fingerprints: the stored fingerprints.
        anatomies: makes an anatomy.
        jobs: the queue of the jobs that make them.
        outbox: gets an event where an anatomy says something else than before.

    Attributes:
        delay: the time from a put to the job that divides what is due.
    """

    def __init__(
        self,
        database: Database,
        fingerprints: FingerprintService,
        anatomies: AnatomyService,
        jobs: JobService,
        outbox: Outbox,
    ) -> None:
        self._database = database
        self._fingerprints = fingerprints
        self._anatomies = anatomies
        self._jobs = jobs
        self._outbox = outbox
        self.delay = _DELAY
        self._waiting = dict[int, float]()
        self._listeners: list[LinesChanged] = []

    def follow(self, listener: LinesChanged) -> None:
        """Have a feature that lies above this one learn what lines may say something else of."""
        self._listeners.append(listener)

    # --- changes ------------------------------------------------------------------------------

    def changed(
        self, session: Writer, tenant: Tenant, records: Sequence[FingerprintRecord]
    ) -> None:
        """Have the anatomies of fingerprints made, which this change stores with other keys."""
        ids = [record.id for record in records]
        if ids:
            anatomies.mark_due(session, tenant.id, ids, datetime.now(UTC), is_changed=True)
            self._enqueue(session, tenant)

    def restated(
        self, session: Writer, tenant: Tenant, records: Sequence[FingerprintRecord]
    ) -> None:
        """Have the anatomies of these fingerprints' kin made again: who states one orders them."""
        self._ask_kin(session, tenant, records)

    def redeclared(
        self, session: Writer, tenant: Tenant, records: Sequence[FingerprintRecord]
    ) -> None:
        """Have the anatomies of these fingerprints and of their kin made again."""
        ids, now = [record.id for record in records], datetime.now(UTC)
        if ids:
            anatomies.mark_due(session, tenant.id, ids, now, is_changed=False)
            self._enqueue(session, tenant)
        self._ask_kin(session, tenant, records)

    def removed(self, session: Writer, tenant: Tenant, record: FingerprintRecord) -> None:
        """Have the anatomies of a fingerprint's kin made again, before this change removes it."""
        self._forget(session, tenant, record)
        for listener in self._listeners:
            listener(session, tenant, record.name, are_bases=True)

    def any_overdue(self, session: Reader) -> bool:
        """Whether an anatomy is due for so long that its job must have been lost."""
        return anatomies.any_due(session, datetime.now(UTC) - _OVERDUE_AFTER)

    def _enqueue(self, session: Writer, tenant: Tenant) -> None:
        """Enqueue the job that divides what is due.

        Not so if this process has done that, and the job has not begun yet.
        """
        clock = time.monotonic()
        if self._waiting.get(tenant.id, 0.0) >= clock:
            return
        begin, key = datetime.now(UTC) + self.delay, "all shards"
        self._jobs.enqueue(session, tenant, JOB_KIND, {}, dedup_key=key, not_before=begin)
        until = clock + self.delay.total_seconds() / 2

        def note() -> None:
            if len(self._waiting) > _MOST_WAITING:
                self._waiting.clear()
            self._waiting[tenant.id] = until

        session.after_commit(note)

    def _enqueue_shard(self, session: Writer, tenant: Tenant, shard: int) -> None:
        key = f"shard {shard}"
        self._jobs.enqueue(session, tenant, JOB_KIND, {"shard": shard}, dedup_key=key)

    # --- jobs ---------------------------------------------------------------------------------

    def execute(self, job: JobRecord, progress: Progress) -> CommitHook:
        """Make the due anatomies of a shard; a job of no shard divides them among such jobs.

        A job of the service does so for late ones.
        """
        if job.tenant.name == SERVICE:
            return self._enqueue_overdue
        if "shard" not in job.parameters:
            return partial(self._divide, job.tenant)
        shard, done, until = int(job.parameters["shard"]), 0, time.monotonic() + _TIME_SLICE_S
        while time.monotonic() < until and (due := self._due(job.tenant, shard)):
            for each in due:
                progress(done, 0, "comparing lines")
                self._make_or_put_off(job.tenant, each)
                done += 1
                if time.monotonic() >= until:
                    break

        def finish(session: Writer) -> Mapping[str, Any]:
            # What became due meanwhile got no other job: this one has the key.
            now = datetime.now(UTC)
            if anatomies.due_anatomies(session, job.tenant.id, shard, _SHARDS, now, limit=1):
                raise Unfinished
            return {"made": done}

        return finish

    def _divide(self, tenant: Tenant, session: Writer) -> Mapping[str, Any]:
        """Enqueue a job for each shard with something due."""
        lock_feed(session, tenant.id)  # a put that has found this job unfinished is committed
        shards = anatomies.shards_of(session, tenant.id, datetime.now(UTC), _SHARDS)
        for shard in shards:
            self._enqueue_shard(session, tenant, shard)
        return {"shards": len(shards)}

    def _enqueue_overdue(self, session: Writer) -> Mapping[str, Any]:
        late = datetime.now(UTC) - _OVERDUE_AFTER
        overdue = anatomies.shards_due(session, late, _SHARDS)
        for tenant, shard in overdue:
            self._enqueue_shard(session, tenant, shard)
        return {"shards": len(overdue)}

    def _due(self, tenant: Tenant, shard: int) -> list[Due]:
        with self._database.reading() as session:
            now = datetime.now(UTC)
            return anatomies.due_anatomies(
                session, tenant.id, shard, _SHARDS, now, limit=_BATCH_SIZE
            )

    def _make_or_put_off(self, tenant: Tenant, due: Due) -> None:
        """Make an anatomy; one that fails is made later, and holds up no other."""
        try:
            self.make(tenant, due)
        except Unavailable:
            raise
        except Exception:
            log.exception("the anatomy of fingerprint %s is made later", due.fingerprint_id)
            with self._database.writing() as session:
                anatomies.put_off(session, due, _later(due))

    def make(self, tenant: Tenant, due: Due) -> None:
        """Make the anatomy of a fingerprint, and store it with its kin."""
        with self._database.reading() as session:
            record = self._fingerprints.by_ids(session, tenant, [due.fingerprint_id]).get(
                due.fingerprint_id
            )
            if record is None:
                return  # its rows are gone with it
            beside = [] if due.hint is None else [due.hint]
            if not due.is_changed:
                known = anatomies.kin_of(session, tenant.id, record.id, limit=_MOST_COMPARED)
                beside += [each.other_id for each in known]
            try:
                found = self._anatomies.anatomy(session, tenant, record, beside=beside)
            except FingerprintNotFound:
                return
            others = [each.id for each in found.records.values()]
            told = anatomies.find_kin(session, tenant.id, [record.id], others)
        told_of = set[int]() if due.is_changed else {each.other_id for each in told}
        kin = both_ways(record, found, told_of)
        with self._database.writing() as session:
            self._store(session, tenant, due, record, found, kin)

    def _store(
        self,
        session: Writer,
        tenant: Tenant,
        due: Due,
        record: FingerprintRecord,
        found: ModelAnatomy,
        kin: Sequence[Kin],
    ) -> None:
        lock_feed(session, tenant.id)  # no fingerprint changes until this is stored
        before = {other.id: other for other in (record, *found.records.values())}
        present = self._fingerprints.by_ids(session, tenant, before)
        same = {id_ for id_, now in present.items() if now.digest == before[id_].digest}
        if record.id not in same:
            return  # it has changed, and is due again
        if any(present[id_].stated_by != before[id_].stated_by for id_ in same):
            return  # it is due still
        old = anatomies.find_summaries(session, tenant.id, [record.id]).get(record.id)
        if found.degraded and old is not None:
            anatomies.put_off(session, due, _later(due))  # what is known may be more than this
            return
        if due.is_changed:
            self._forget(session, tenant, record)
        kept = [each for each in kin if {each.fingerprint_id, each.other_id} <= same]
        anatomies.put_kin(session, tenant.id, kept)
        ids = {other.name: other.id for other in found.records.values() if other.id in same}
        new = _summary(record, found, ids)
        anatomies.put_summary(session, new)
        sources = {name for each in (old, new) if each for name in put_together_of(each.relations)}
        for listener in self._listeners:
            listener(session, tenant, record.name, are_bases=due.is_changed)
            for name in sources:
                listener(session, tenant, name, are_bases=False)
        self._part(session, tenant, record, found)
        if found.degraded:
            anatomies.put_off(session, due, _later(due))
        if due.is_changed:
            self._spread(session, tenant, record, found, kept)
        if len(ids) == len(found.records):  # else it is due again, and announced then
            anatomy_changed(
                self._outbox,
                session,
                tenant,
                present[record.id],
                found,
                old,
                new,
                is_of_kin=not due.is_changed,
            )

    def _part(
        self, session: Writer, tenant: Tenant, record: FingerprintRecord, found: ModelAnatomy
    ) -> None:
        """Forget known kin that have only common keys of it; both sides are made again.

        So the kin beyond the first that are compared get their turn, too.
        """
        now, own, others = datetime.now(UTC), record.id, found.unrelated
        if others and anatomies.part(session, tenant.id, own, others, now):
            anatomies.mark_due(session, tenant.id, [own], now, is_changed=False)
            self._enqueue(session, tenant)

    def _forget(self, session: Writer, tenant: Tenant, record: FingerprintRecord) -> None:
        """Forget the kin of a fingerprint that has changed, or goes: theirs are made again."""
        self._ask_kin(session, tenant, [record])
        anatomies.delete_kin(session, record.id)

    def _ask_kin(
        self, session: Writer, tenant: Tenant, records: Iterable[FingerprintRecord]
    ) -> None:
        now = datetime.now(UTC)
        if sum(anatomies.mark_kin_due(session, tenant.id, each.id, now) for each in records):
            self._enqueue(session, tenant)

    def _spread(
        self,
        session: Writer,
        tenant: Tenant,
        record: FingerprintRecord,
        found: ModelAnatomy,
        kin: Sequence[Kin],
    ) -> None:
        """Have the anatomies made again that a changed fingerprint may change.

        A newcomer of a large family is compared with few of its members. Where it is nearer to most
        of these than their first parents, it is a base that comes after its children, and all kin
        of these are compared with it. Keys that are common since it came make those no kin any
        more who have nothing else in common.
        """
        ways = {each.fingerprint_id: each for each in kin if each.other_id == record.id}
        summaries = anatomies.find_summaries(session, tenant.id, ways)
        family = {each.other_id for each in kin if each.fingerprint_id == record.id}
        nearer = [i for i, each in summaries.items() if _is_nearer(ways[i].share, each)]
        adding = [i for i, each in summaries.items() if _may_add(each, family)]
        holders = anatomies.find_summaries(session, tenant.id, found.sharing)
        newly = [i for i, each in holders.items() if each.common < found.sharing[i]]
        now, wanted = datetime.now(UTC), {*nearer, *adding, *newly}
        anatomies.mark_due(session, tenant.id, wanted, now, is_changed=False, hint=record.id)
        spread = 0
        if found.truncated and 2 * len(nearer) > len(summaries):
            spread = anatomies.mark_kin_of_kin_due(
                session, tenant.id, list(ways), now, hint=record.id, most=_MOST_SPREAD
            )
        if wanted or spread:
            self._enqueue(session, tenant)


def _later(due: Due) -> datetime:
    """When an anatomy is made that could not be made now."""
    pause: timedelta = min(_MIN_RETRY_DELAY * 2 ** min(due.failures, 10), _MAX_RETRY_DELAY)
    return datetime.now(UTC) + pause


def _is_nearer(share: float, summary: Summary) -> bool:
    """Whether a newcomer with this share of a model's lines stands before its first parent."""
    return not summary.parents or share > _NEARER * summary.first_share


def _may_add(summary: Summary, family: set[int]) -> bool:
    """Whether a newcomer of some family may have lines of a model that no parent of it has."""
    return summary.covered < _COVERED and not family & {*summary.parents}


def _summary(record: FingerprintRecord, found: ModelAnatomy, ids: Mapping[str, int]) -> Summary:
    parents = [each for each in found.anatomy.parents if each.model in ids]
    return Summary(
        fingerprint_id=record.id,
        verdict=found.anatomy.verdict,
        relations=found.anatomy.relations,
        parents=tuple(ids[each.model] for each in parents),
        first_share=parents[0].share_of_lines if parents else 0.0,
        covered=min(1.0, sum(each.added for each in parents)),  # samples of scales differ a little
        compared=found.compared,
        common=found.common,
        truncated=found.truncated,
        base=base_among(
            record,
            [(found.records[each.model], each.verdict, each.share_of_lines) for each in parents],
        ),
        is_due=False,
        made_at=datetime.now(UTC),
    )
