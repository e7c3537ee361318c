"""The use cases of merges: create, show, join, delete; and the job that ends them in time."""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from app.infra.db.database import Database, Reader, Writer
from app.infra.db.ids import new_id
from app.infra.deadlines import NEVER, Deadline
from app.infra.errors import (
    Conflict,
    Forbidden,
    MergeClosed,
    MergeExists,
    MergeNotFound,
    Unavailable,
)
from app.jobs.records import JobRecord
from app.jobs.service import Progress
from app.merges import repository
from app.merges.membership import Membership, Settlement
from app.merges.phases import Phases
from app.merges.records import MergeRecord, PartyRecord
from app.merges.request import MergeRequest
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import spaces
from app.tenancy.auth.records import Tenant
from app.tenancy.quotas.service import QuotaService
from modelkin.errors import InvalidParameter
from modelkin.federation.shards.plan import CHECK_WORDS, Plan
from modelkin.federation.shards.public_keys import key_point
from modelkin.types.paging import Page

__all__ = ["Joining", "MergeService"]

log = logging.getLogger(__name__)

KEPT: Final = timedelta(days=1)
"""The time for which cells and results stay after a merge has ended."""

_CELL_OVERHEAD: Final = 72 + 48 + 4 + 4 * CHECK_WORDS
_RESULT_OVERHEAD: Final = 72 + 16 + 4
_WRAP: Final = 64
_BATCH: Final = 100


@dataclass(frozen=True, slots=True)
class Joining:
    """The values that a party sends when it joins.

    Attributes:
        public_key: the X25519 key, 32 bytes.
        token_digest: the SHA-256 of the token that it has chosen.
        examples: the number of examples that its model was trained on; needed where it is the
            weight.
        peak: the largest magnitude among its values; needed where sums are concealed.
        may_aggregate: whether it may hold a shard.
        neutral: whether it only aggregates.
    """

    public_key: bytes
    token_digest: bytes
    examples: int | None = None
    peak: float | None = None
    may_aggregate: bool = True
    neutral: bool = False


class MergeService:
    """Creates, shows, joins and deletes merges.

    Args:
        database: the database, which is the truth.
        membership: settles members and weights.
        phases: moves merges from state to state.
        now: returns the present moment, in UTC.
    """

    def __init__(
        self,
        database: Database,
        membership: Membership,
        phases: Phases,
        quotas: QuotaService,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._database = database
        self._membership = membership
        self._phases = phases
        self._quotas = quotas
        self._now = now

    def put(
        self,
        reading: Reader,
        tenant: Tenant,
        space: SpaceRecord,
        name: str,
        request: MergeRequest,
        deadline: Deadline = NEVER,
    ) -> tuple[MergeRecord, bool]:
        """Create a merge, or find the one that the same request has created.

        Args:
            reading: a reader for settling members and weights, before anything is locked.

        Returns:
            The merge, and whether it is new.

        Raises:
            MergeExists: another merge has the name.
            InvalidParameter: the request is not possible; the error names the field.
            QuotaExceeded: the tenant's quota of open merges or of bytes is used up.
        """
        request = request.checked()
        known = repository.find_merge(reading, space, name)
        if known is not None:
            return _same(known, request), False
        settled = self._membership.settle(reading, space, request, deadline)
        plan = request.plan(space.num_parameters, len(settled.members))
        reading.rollback()  # nothing is held while it waits for the lock
        with self._database.writing() as session:
            space = spaces.lock_space(session, space)
            known = repository.find_merge(session, space, name)
            if known is not None:
                return _same(known, request), False
            merge = self._new(tenant, space, name, request, plan, settled)
            count = partial(repository.count_open, session, tenant)
            self._quotas.require(session, tenant.id, "merges", count)
            taken = repository.held_bytes(session, tenant)
            allowance = self._quotas.allowance(session, tenant.id)
            allowance.take(models=0, support_bytes=taken + merge.size)
            repository.insert_merge(session, merge, settled.members)
            self._phases.begin(session, merge)
        return merge, True

    def _new(
        self,
        tenant: Tenant,
        space: SpaceRecord,
        name: str,
        request: MergeRequest,
        plan: Plan,
        settled: Settlement,
    ) -> MergeRecord:
        now, members = self._now(), len(settled.members)
        return MergeRecord(
            id=new_id(now),
            tenant_id=tenant.id,
            space_id=space.id,
            name=name,
            state="joining",
            attempt=0,
            revision=1,
            request=request.to_json(),
            plan=plan,
            weights=settled.weights,
            roster=None,
            digest=None,
            peak=None,
            failure=None,
            size=_most_bytes(plan, members),
            created_at=now,
            due_at=now + timedelta(seconds=request.deadline),
            ended_at=None,
        )

    def get(
        self, session: Reader, space: SpaceRecord, name: str
    ) -> tuple[MergeRecord, dict[str, PartyRecord]]:
        """A merge and its parties by name, or :class:`MergeNotFound`."""
        merge = repository.get_merge(session, space, name)
        return merge, repository.parties(session, merge)

    def awaited_parties(
        self, session: Reader, merge: MergeRecord, parties: Mapping[str, PartyRecord]
    ) -> list[str]:
        """The names of the parties that the merge waits for now, ascending."""
        if merge.state == "joining":
            return [name for name, party in parties.items() if not party.joined]
        if merge.finished or merge.roster is None:
            return []
        if merge.state == "combining" and (undecided := merge.undecided_aggregators(parties)):
            return undecided
        results = merge.state == "combining"
        sent = repository.senders(session, merge, results=results)
        if results:
            wanted = {place: len(merge.roster.shards_of(place)) for place in merge.roster.seats}
        else:
            current = merge.round(parties.values())
            assert current is not None
            wanted = dict.fromkeys(current.weights, merge.plan.shards)
        late = [at for at, n in wanted.items() if sent.get(at, 0) < n * merge.plan.pieces]
        return sorted(merge.roster.parties[place].id for place in late)

    def list(
        self, session: Reader, space: SpaceRecord, *, limit: int, cursor: str | None
    ) -> Page[MergeRecord]:
        """The merges of a space, newest first."""
        return repository.list_merges(session, space, limit=limit, cursor=cursor)

    def find_all(self, session: Reader, ids: Collection[str]) -> Mapping[str, MergeRecord]:
        """The existing merges with these ids, of any tenant: the caller has checked access."""
        return repository.merges_by_id(session, ids)

    def delete(self, session: Writer, space: SpaceRecord, name: str) -> None:
        """Delete a merge with all its cells, whatever its state."""
        merge = self.lock(session, space, name)
        self._phases.delete_cells(session, merge)
        repository.delete_merge(session, merge)

    def lock(self, session: Writer, space: SpaceRecord, name: str) -> MergeRecord:
        """The merge of this name, locked until the transaction ends; or MergeNotFound."""
        found = repository.lock_merge(session, repository.get_merge(session, space, name).id)
        if found is None:
            raise MergeNotFound(f"space {space.name!r} has no merge {name!r} any more")
        return found

    def join(
        self, session: Writer, space: SpaceRecord, name: str, party: str, joining: Joining
    ) -> None:
        """Join a merge.

        The same key and token may join again, as after an answer that was lost. All parties know
        the keys from the roster, so a key alone does not identify the sender.

        Raises:
            MergeNotFound: there is no such merge, or the merge awaits no such member.
            MergeClosed: joining has ended, and this key has not joined.
            Conflict: the party has joined with another key, or another token.
            InvalidParameter: the examples or the peak are needed and missing.
        """
        merge = self.lock(session, space, name)
        parties = repository.parties(session, merge)
        known = parties.get(party)
        if known is not None and known.joined:
            _require_same(known, joining)
            return
        if merge.state != "joining":
            raise MergeClosed(f"merge {name!r} is {merge.state}: it can be joined no more")
        if known is None and not joining.neutral:
            raise MergeNotFound(f"merge {name!r} awaits no member {party!r}")
        if known is not None and joining.neutral:
            raise InvalidParameter(f"{party!r} is a member, and not neutral", field="neutral")
        _check_joining(merge, parties, joining)
        columns: dict[str, Any] = {
            "neutral": joining.neutral,
            "public_key": joining.public_key,
            "token_digest": joining.token_digest,
            "examples": joining.examples,
            "peak": joining.peak,
            "may_aggregate": joining.may_aggregate,
        }
        if known is None:
            repository.insert_party(session, merge, PartyRecord(party, left_out=None, **columns))
        else:
            repository.change_party(session, merge, party, **columns)
        changed = repository.change(session, merge)
        self._phases.advance(session, changed)

    def execute(self, job: JobRecord, progress: Progress) -> Mapping[str, Any]:
        """End the state of a merge whose time is over: the handler of a deadline's job."""
        del progress
        with self._database.writing() as session:
            merge = repository.lock_merge(session, str(job.parameters["merge"]))
            if merge is None or merge.finished:
                return {"state": None if merge is None else merge.state}
            return {"state": self._phases.expire(session, merge).state}

    def clean_up(self) -> None:
        """Delete the cells of merges that ended a day ago, and expire those that no job has."""
        now = self._now()
        with self._database.reading() as session:
            old = repository.with_cells(session, now - KEPT, _BATCH)
            late = repository.due(session, now - timedelta(minutes=1), _BATCH)
        for merge_id in (*old, *late):
            try:
                self._clean_up(merge_id)
            except Unavailable:  # all others would meet the same
                raise
            except Exception:  # one that cannot be read must not keep the cells of the others
                log.exception("merge %s cannot be cleaned up", merge_id)

    def _clean_up(self, merge_id: str) -> None:
        with self._database.writing() as session:
            merge = repository.lock_merge(session, merge_id)
            if merge is None:
                return
            if merge.finished:
                self._phases.delete_cells(session, merge)
            else:
                self._phases.expire(session, merge)


def digest_of(token: str) -> bytes:
    """Return the digest of a token, which is stored in its place."""
    return hashlib.sha256(token.encode()).digest()


def require_token(
    merge: MergeRecord, parties: Mapping[str, PartyRecord], party: str, token: str
) -> PartyRecord:
    """Return the named party if the token belongs to it.

    Raises:
        MergeNotFound: the merge has no such party.
        Forbidden: the token does not belong to this party.
    """
    known = parties.get(party)
    if known is None:
        raise MergeNotFound(f"merge {merge.name!r} has no party {party!r}")
    if known.token_digest is None or not hmac.compare_digest(known.token_digest, digest_of(token)):
        raise Forbidden(f"the Member-Token is not that of {party!r}")
    return known


def party_of_token(
    merge: MergeRecord, parties: Mapping[str, PartyRecord], token: str
) -> PartyRecord:
    """The party whose token it is, or :class:`Forbidden`."""
    digest = digest_of(token)
    for party in parties.values():
        if party.token_digest is not None and hmac.compare_digest(party.token_digest, digest):
            return party
    raise Forbidden(f"the Member-Token is of no party of merge {merge.name!r}")


def _require_same(known: PartyRecord, joining: Joining) -> None:
    """Check that who joins again is who has joined.

    Raises:
        Conflict: the key or the token is another one.
    """
    assert known.token_digest is not None
    if known.public_key != joining.public_key:
        raise Conflict(f"{known.name!r} has joined with another key")
    if not hmac.compare_digest(known.token_digest, joining.token_digest):
        raise Conflict(f"{known.name!r} has joined with another token")


def _check_joining(
    merge: MergeRecord, parties: Mapping[str, PartyRecord], joining: Joining
) -> None:
    points = {key_point(party.public_key) for party in parties.values() if party.public_key}
    if key_point(joining.public_key) in points:
        message = "another party has this public key, or one that gives the same secrets"
        raise InvalidParameter(message, field="public_key")
    if joining.token_digest in {party.token_digest for party in parties.values()}:
        raise InvalidParameter("another party has this token", field="token_digest")
    if joining.neutral:
        if not joining.may_aggregate:
            raise InvalidParameter("a neutral party aggregates", field="may_aggregate")
        return
    if merge.weights is None and joining.examples is None:
        raise InvalidParameter("weights are by examples: say how many", field="examples")
    if merge.plan.conceal and joining.peak is None:
        raise InvalidParameter("sums are concealed: say the largest magnitude", field="peak")


def _same(known: MergeRecord, request: MergeRequest) -> MergeRecord:
    if known.request != request.to_json():
        raise MergeExists(
            f"merge {known.name!r} exists and is another one: choose another name, or delete it"
        )
    return known


def _most_bytes(plan: Plan, members: int) -> int:
    """Return the most bytes that the cells of an attempt and the results take."""
    values = 4 * plan.num_parameters // plan.one_in
    pieces = plan.shards * plan.pieces
    cells = members * (values + pieces * _CELL_OVERHEAD)
    return cells + values + pieces * (_RESULT_OVERHEAD + _WRAP * members)
