"""States of a merge: joining, sending, combining, and then done or failed.

Each change of state happens in a transaction that holds the lock of the merge. A state ends when
all that it waits for is there, or when its time is over. Then parties that are missing are left out
once; the second time the merge fails. Cells of two attempts are never mixed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from app.infra.db.database import Writer
from app.infra.db.released_blobs import release
from app.jobs.service import JobService
from app.merges import repository
from app.merges.events import merge_changed
from app.merges.records import MergeRecord, PartyRecord
from app.models.spaces.repositories import spaces
from app.webhooks.outbox import Outbox
from modelkin.errors import InvalidParameter
from modelkin.federation.merging.attempts import failure_without
from modelkin.federation.shards.fixed_point import least_power
from modelkin.federation.shards.public_keys import check_public_key
from modelkin.federation.shards.roster import Party, Roster

__all__ = ["DEADLINE", "Phases"]

DEADLINE: Final = "merge_deadline"
"""The kind of the jobs that end a state of a merge when its time is over."""

_MAX_FAILURE_LENGTH: Final = 1500


class Phases:
    """Moves merges from state to state.

    Args:
        jobs: the service for the job that ends a state in time.
        outbox: the outbox, which gets an event when a merge begins and ends.
        now: returns the present moment, in UTC.
    """

    def __init__(
        self,
        jobs: JobService,
        outbox: Outbox,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._jobs = jobs
        self._outbox = outbox
        self._now = now

    def begin(self, session: Writer, merge: MergeRecord) -> None:
        """Announce a merge that was just stored, and set its first deadline."""
        self._set_deadline(session, merge)
        self._announce(session, merge)

    def advance(self, session: Writer, merge: MergeRecord) -> MergeRecord:
        """End the present state if all that it waits for is there."""
        parties = repository.parties(session, merge)
        if merge.state == "joining":
            awaited = [party for party in parties.values() if not party.joined]
            willing = sum(party.may_aggregate for party in parties.values())
            if awaited or willing < merge.plan.shards:
                return merge
            return self._close_joining(session, merge, parties)
        assert merge.roster is not None or merge.finished
        if merge.state == "sending":
            current = merge.round(parties.values())
            assert current is not None
            wanted = len(current.weights) * merge.plan.shards * merge.plan.pieces
            if repository.count_cells(session, merge, results=False) == wanted:
                return self._change(session, merge, state="combining")
        elif merge.state == "combining":
            wanted = merge.plan.shards * merge.plan.pieces
            if repository.count_cells(session, merge, results=True) == wanted:
                return self._end(session, merge, "done")
        return merge

    def expire(self, session: Writer, merge: MergeRecord) -> MergeRecord:
        """End the present state although something is missing, since its time is over."""
        merge = self.advance(session, merge)
        if merge.finished or merge.due_at is None or merge.due_at > self._now():
            return merge
        parties = repository.parties(session, merge)
        if merge.state == "joining":
            return self._close_joining(session, merge, parties)
        assert merge.roster is not None
        if merge.state == "sending":
            wanted = merge.plan.shards * merge.plan.pieces
            sent = repository.senders(session, merge, results=False)
            late = {
                name: "it did not send all cells in time"
                for name, party in parties.items()
                if _counts(party) and sent.get(merge.roster.place(name), 0) < wanted
            }
            return self.leave_out(session, merge, late)
        if undecided := merge.undecided_aggregators(parties):
            return self.fail(session, merge, f"no verdict in time from {', '.join(undecided)}")
        missing = self._silent_holders(session, merge, merge.roster)
        return self.fail(session, merge, f"no result in time from {', '.join(missing)}")

    def leave_out(
        self, session: Writer, merge: MergeRecord, reasons: Mapping[str, str]
    ) -> MergeRecord:
        """Begin the second attempt without some members; a second time the merge fails."""
        counted = {n for n, party in repository.parties(session, merge).items() if _counts(party)}
        failure = failure_without(
            reasons,
            attempt=merge.attempt,
            left=len(counted - reasons.keys()),
            min_members=merge.plan.min_members,
        )
        for name, why in reasons.items():
            repository.change_party(session, merge, name, left_out=why[:_MAX_FAILURE_LENGTH])
        if failure is not None:
            return self.fail(session, merge, failure)
        attempt = merge.attempt + 1
        self._release(session, merge, before_attempt=attempt)
        return self._change(session, merge, state="sending", attempt=attempt)

    def fail(self, session: Writer, merge: MergeRecord, why: str) -> MergeRecord:
        """End a merge without a result."""
        return self._end(session, merge, "failed", failure=why[:_MAX_FAILURE_LENGTH])

    def delete_cells(self, session: Writer, merge: MergeRecord) -> None:
        """Delete all cells and results."""
        self._release(session, merge)

    def _close_joining(
        self, session: Writer, merge: MergeRecord, parties: Mapping[str, PartyRecord]
    ) -> MergeRecord:
        """Fix the roster of the parties that have joined; if they are too few, fail."""
        joined = []
        for name, party in parties.items():
            if (why := _why_not(party)) is None:
                joined.append(party)
            else:
                repository.change_party(session, merge, name, left_out=why)
        members = [party for party in joined if not party.neutral]
        if len(members) < merge.plan.min_members:
            return self.fail(
                session,
                merge,
                f"{len(members)} members joined, and min_members is {merge.plan.min_members}",
            )
        try:
            roster = Roster(merge.plan, tuple(map(_party, joined)))
        except InvalidParameter as error:
            return self.fail(session, merge, str(error))
        peak = None
        if merge.plan.conceal:
            peak = least_power(max(party.peak or 0.0 for party in members))
        return self._change(
            session,
            merge,
            state="sending",
            roster=roster.to_json(),
            digest=roster.digest.hex(),
            peak=peak,
        )

    def _silent_holders(self, session: Writer, merge: MergeRecord, roster: Roster) -> list[str]:
        sent = repository.senders(session, merge, results=True)
        return [
            roster.parties[place].id
            for place in roster.seats
            if sent.get(place, 0) < len(roster.shards_of(place)) * merge.plan.pieces
        ]

    def _change(self, session: Writer, merge: MergeRecord, **columns: Any) -> MergeRecord:
        """Enter a state, which has its own time."""
        due_at = self._now() + timedelta(seconds=merge.request["deadline"])
        changed = repository.change(session, merge, due_at=due_at, **columns)
        self._set_deadline(session, changed)
        return changed

    def _end(self, session: Writer, merge: MergeRecord, state: str, **columns: Any) -> MergeRecord:
        ended = repository.change(
            session, merge, state=state, due_at=None, ended_at=self._now(), **columns
        )
        self._announce(session, ended)
        return ended

    def _set_deadline(self, session: Writer, merge: MergeRecord) -> None:
        assert merge.due_at is not None
        self._jobs.enqueue(
            session,
            repository.tenant_of(session, merge),
            DEADLINE,
            {"merge": merge.id, "name": merge.name},
            space=spaces.find_space_by_id(session, merge.space_id),
            dedup_key=f"{merge.id} {merge.revision}",
            not_before=merge.due_at,
        )

    def _announce(self, session: Writer, merge: MergeRecord) -> None:
        space = spaces.find_space_by_id(session, merge.space_id)
        if space is not None:
            merge_changed(self._outbox, session, space, merge)

    def _release(
        self, session: Writer, merge: MergeRecord, *, before_attempt: int | None = None
    ) -> None:
        """Delete rows of cells, and list their files, which go after the time of grace."""
        sizes = repository.delete_cells(session, merge, before_attempt=before_attempt)
        release(session, merge.tenant_id, sizes)


def _counts(party: PartyRecord) -> bool:
    """Whether a party is a member that has not been left out."""
    return party.joined and not party.neutral and party.left_out is None


def _why_not(party: PartyRecord) -> str | None:
    """The reason why a party is not in the roster; None for a party that is."""
    if party.public_key is None:
        return "it did not join in time"
    try:
        check_public_key(party.public_key)
    except InvalidParameter as error:  # it joined at a version that took every key
        return str(error)
    return None


def _party(record: PartyRecord) -> Party:
    assert record.public_key is not None
    return Party(record.name, record.public_key, record.may_aggregate, record.neutral)
