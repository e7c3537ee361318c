"""``FindingKeeper``: judges the models of spaces whose verdict is not known, or may have changed.

A change of a model writes nothing here: the versions of a space say what has changed since its
findings were last made. So no put waits for a verdict, no change is missed, and a space from before
is judged like any other. Models without a verdict come first; what they may change of others
follows once none is left. Jobs may stop anywhere, and be carried out twice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from app.infra.db.database import Database, Reader, Writer
from app.infra.deadlines import NEVER, Deadline
from app.infra.errors import ModelNotFound, TooMuch, Unavailable
from app.jobs.records import JobRecord
from app.jobs.repository import find_by_dedup_key
from app.jobs.service import CommitHook, JobService, Progress, Unfinished
from app.kinship.findings.making import FindingMaker
from app.kinship.findings.records import JOB_KIND, Due, Made
from app.kinship.findings.repositories import changes, findings
from app.models.catalog.records import ModelRecord
from app.models.catalog.repositories import models
from app.models.catalog.repositories.candidates import candidates_by_name
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import spaces
from app.tenancy.auth.records import Tenant
from app.tenancy.auth.tenants import get_tenant
from modelkin.errors import ModelkinError

__all__ = ["CHECK_INTERVAL", "NAME", "SMALL", "FindingKeeper"]

NAME: Final = "findings"
"""The name of the periodic task that enqueues them."""
CHECK_INTERVAL: Final = timedelta(seconds=2)
SMALL: Final = 50
"""The size up to which a space is judged anew after any change, so that its answers are exact."""
_CALM_S: Final = 1.5
"""The time without a change after which a space is judged: uploads are judged once they rest."""
_MAX_WAIT_S: Final = 20.0
"""The longest time that it waits for this."""
_TIME_SLICE_S: Final = 3.0
"""Seconds after which the job is queued again, so that other jobs get its place."""
_BATCH_SIZE: Final = 25
_BATCH_S: Final = 0.5
"""Seconds after which verdicts are stored, however many they are."""
_MAX_LINES: Final = 2000
"""Models of spaces that one changed fingerprint has judged again, at most."""

log = logging.getLogger(__name__)


class FindingKeeper:
    """Judges what is due, in jobs and for answers.

    Args:
        database: where findings are kept.
        jobs: the queue.
        maker: judges a model.
        small: the size up to which any change has all models of a space judged again.
    """

    def __init__(
        self, database: Database, jobs: JobService, maker: FindingMaker, small: int = SMALL
    ) -> None:
        self._database = database
        self._jobs = jobs
        self._maker = maker
        self._small = small
        self._seen: dict[int, tuple[int, float, float]] = {}

    # --- jobs -------------------------------------------------------------------------------------

    def enqueue_due(self) -> list[JobRecord]:
        """Enqueue a job for each space with something to judge that has come to rest."""
        with self._database.reading() as session:
            behind = changes.spaces_behind(session)
        clock = time.monotonic()
        self._seen = {
            space_id: self._observed(space_id, version, clock)
            for space_id, version in behind.items()
        }
        rested = [
            space_id
            for space_id, (_, changed, first) in self._seen.items()
            if clock - changed >= _CALM_S or clock - first >= _MAX_WAIT_S
        ]
        found = (self._enqueue(space_id) for space_id in rested)
        return [job for job in found if job is not None]

    def _observed(self, space_id: int, version: int, clock: float) -> tuple[int, float, float]:
        """The version of a space, when it was first seen, and when the space was found behind."""
        known = self._seen.get(space_id)
        if known is None:
            return version, clock, clock
        return known if known[0] == version else (version, clock, known[2])

    def _enqueue(self, space_id: int) -> JobRecord | None:
        key = f"space {space_id}"
        with self._database.reading() as session:
            space = spaces.find_space_by_id(session, space_id)
            if space is None:
                return None
            tenant = get_tenant(session, space.tenant_id)
            if find_by_dedup_key(session, tenant, JOB_KIND, key) is not None:
                return None
        with self._database.writing() as session:
            return self._jobs.enqueue(session, tenant, JOB_KIND, {}, space=space, dedup_key=key)

    def execute(self, job: JobRecord, progress: Progress) -> CommitHook | Mapping[str, Any]:
        """Judge the due models of a space, for as long as the time slice lasts."""
        until, done = time.monotonic() + _TIME_SLICE_S, 0
        while (space := self._space(job)) is not None:
            progress(done, 0, "judging declared bases")
            self.follow(space)
            judged = self.judge(space, until=until)
            done += judged
            if not judged or time.monotonic() >= until:
                break

        def finish(session: Writer) -> Mapping[str, Any]:
            # What became due meanwhile got no other job: this one has the key.
            here = None if space is None else spaces.find_space_by_id(session, space.id)
            if here is not None and self._is_behind(session, here):
                raise Unfinished
            return {"judged": done}

        return finish

    def _space(self, job: JobRecord) -> SpaceRecord | None:
        with self._database.reading() as session:
            return spaces.find_space_by_id(session, job.space_id or 0)

    def _is_behind(self, session: Reader, space: SpaceRecord) -> bool:
        version = changes.audited_version(session, space)
        return space.version > version or findings.is_any_due(session, space)

    # --- changes ----------------------------------------------------------------------------------

    def follow(self, space: SpaceRecord) -> None:
        """Mark what the changes of a space may change, up to its present version."""
        with self._database.reading() as session:
            if changes.audited_version(session, space) >= space.version:
                return
        more = True
        while more:
            with self._database.writing() as session:
                more = changes.follow(session, space, self._small)

    def lines_changed(
        self, session: Writer, tenant: Tenant, name: str, *, are_bases: bool = True
    ) -> None:
        """Have the models of a fingerprint's name judged again: lines may say something else.

        Args:
            are_bases: whether those of the models that declare it may, too.
        """
        findings.ask_named(session, tenant.id, name, are_bases=are_bases, limit=_MAX_LINES)

    # --- verdicts ---------------------------------------------------------------------------------

    def judge(
        self,
        space: SpaceRecord,
        *,
        until: float,
        limit: int | None = None,
        deadline: Deadline = NEVER,
    ) -> int:
        """Judge due models of a space until a moment of the monotonic clock; return how many.

        Args:
            limit: the most models; None for no limit.

        Raises:
            TooMuch, ClientLeft: the deadline is over, or the client has gone, before the first.
        """
        done = 0
        while limit is None or done < limit:
            size = _BATCH_SIZE if limit is None else min(_BATCH_SIZE, limit - done)
            judged = self._judge_some(space, size, until, deadline, is_first=not done)
            done += judged
            if not judged or time.monotonic() >= until:
                break
        return done

    def judge_model(self, space: SpaceRecord, name: str, deadline: Deadline = NEVER) -> None:
        """Judge a model, if it is due.

        Raises: as :meth:`judge`.
        """
        until = time.monotonic() + deadline.left()
        self._judge_some(space, 1, until, deadline, is_first=True, name=name)

    def _judge_some(
        self,
        space: SpaceRecord,
        size: int,
        until: float,
        deadline: Deadline,
        *,
        is_first: bool,
        name: str | None = None,
    ) -> int:
        """Judge some due models, or one of a name, and store their verdicts; return how many."""
        until = min(until, time.monotonic() + _BATCH_S)
        judged = list[tuple[Due, Made | None]]()
        with self._database.reading() as session:
            now = spaces.find_space_by_id(session, space.id)
            due = [] if now is None else findings.due_findings(session, now, limit=size, name=name)
            known = models.models_by_id(session, [each.model_id for each in due])
            for each in due:
                model = known.get(each.model_id)
                if model is None:
                    continue
                assert now is not None
                try:
                    judged.append((each, self._make(session, now, model, deadline)))
                except TooMuch:
                    if is_first and not judged:
                        raise
                    break
                if time.monotonic() >= until:
                    break
        if judged:
            assert now is not None
            with self._database.writing() as session:
                self._store(session, now, judged)
        return len(judged)

    def _make(
        self, session: Reader, space: SpaceRecord, model: ModelRecord, deadline: Deadline
    ) -> Made | None:
        """Judge a model; None where that is not possible."""
        try:
            return self._maker.make(session, space, model, deadline)
        except ModelNotFound:  # a later change has it, and asks for it again
            return None
        except (Unavailable, ModelkinError):
            raise
        except Exception:
            log.exception("the declared base of model %s is not judged, by a bug", model.id)
            return None

    def _store(
        self, session: Writer, space: SpaceRecord, judged: Sequence[tuple[Due, Made | None]]
    ) -> None:
        made = [(due, each) for due, each in judged if each is not None]
        findings.give_up(session, [due for due, each in judged if each is None])
        findings.store(session, made, space.version, datetime.now(UTC))
        for due, each in made:
            if due.state != each.state:
                self._tell(session, space, due, each)

    def _tell(self, session: Writer, space: SpaceRecord, due: Due, made: Made) -> None:
        """Have those models judged again whose verdict a new or changed model may change.

        Those are left out that were judged since it changed.
        """
        bases = {*made.finding.declared_bases, *due.declared_bases}
        told = {each.id for each in candidates_by_name(session, space, sorted(bases))}
        told |= {*findings.ids_declaring(session, space, made.name)}
        told |= {*findings.near_ids(session, space, made)}
        findings.ask(session, told, before=made.version)
        if due.state is not None:
            findings.ask_naming(session, [made.model_id], before=made.version)
