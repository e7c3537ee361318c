"""``FindingService``: answers from kept findings, and acknowledges them."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Final

from app.infra.db.database import Reader, Writer
from app.infra.deadlines import Deadline
from app.infra.errors import TooMuch, Unavailable
from app.kinship.findings.keeping import SMALL, FindingKeeper
from app.kinship.findings.records import (
    SUSPICIOUS,
    FindingPage,
    InboxVerdict,
)
from app.kinship.findings.repositories import acknowledgements, changes, listing
from app.models.catalog.repositories import models
from app.models.spaces.records import SpaceRecord
from app.tenancy.auth.records import Tenant
from modelkin.core.kinship.lineage import LineageVerdict
from modelkin.errors import InvalidParameter
from modelkin.types.reports.audits import Acknowledgement, LineageFinding

__all__ = ["FindingService"]

_JUDGED: Final = SMALL
"""Models that are judged before an answer, at most."""
_MANY_S: Final = 1.0
"""Seconds that this may take where more are due: then they are for the workers."""

log = logging.getLogger(__name__)


class FindingService:
    """The use cases of findings.

    Args:
        keeper: judges what is due.
    """

    def __init__(self, keeper: FindingKeeper) -> None:
        self._keeper = keeper

    def is_behind(self, session: Reader, tenant: Tenant) -> bool:
        """Whether workers have models of a tenant to judge."""
        return changes.is_behind(session, tenant.id)

    def catch_up(self, space: SpaceRecord, deadline: Deadline) -> None:
        """Judge what is due in a space, if it is little; call it before an answer.

        So small spaces, and services without workers, answer of their models as they are now. Where
        nothing can be stored, an answer has what is kept.

        Raises:
            TooMuch, ClientLeft: the deadline is over, or the client has gone, before the first
                model is judged.
        """
        if space.kind != "supports":
            return
        seconds = deadline.left() if space.models <= SMALL else min(deadline.left(), _MANY_S)
        try:
            self._keeper.follow(space)
            until = time.monotonic() + seconds
            self._keeper.judge(space, until=until, limit=_JUDGED, deadline=deadline)
        except TooMuch:
            raise
        except Unavailable as error:
            log.warning("findings are answered as they were kept: %s", error)

    def refresh(self, space: SpaceRecord, name: str, deadline: Deadline) -> None:
        """Judge a model, if its kept finding may not be that of now; call it before an answer.

        Raises: as :meth:`catch_up`.
        """
        if space.kind == "supports":
            self._keeper.follow(space)
            self._keeper.judge_model(space, name, deadline)

    def page(
        self,
        session: Reader,
        space: SpaceRecord,
        *,
        limit: int,
        cursor: str | None,
        verdicts: Collection[LineageVerdict] = (),
        base_model: str | None = None,
        acknowledged: bool | None = None,
    ) -> FindingPage:
        """The kept findings of a space, what matters first, and how many there are.

        Args:
            verdicts: the verdicts of the findings that are listed; all findings if empty.
            base_model: only models that declare this base, in the totals too.
            acknowledged: only findings that are acknowledged, or are not; None for all.
        """
        return listing.list_findings(
            session,
            space,
            limit=limit,
            cursor=cursor,
            verdicts=verdicts,
            base_model=base_model,
            acknowledged=acknowledged,
        )

    def find(self, session: Reader, space: SpaceRecord, name: str) -> LineageFinding | None:
        """The kept finding of a model; None where there is none, or nothing to say.

        Raises:
            ModelNotFound: there is no such model.
        """
        return listing.find_kept(session, space, models.get_model(session, space, name).id)

    def contradicted(
        self, session: Reader, space: SpaceRecord, names: Collection[str]
    ) -> dict[str, str]:
        """The declared base of each of these models that is contradicted, by the model's name."""
        return listing.contradicted(session, space, names)

    def inbox(
        self,
        session: Reader,
        tenant: Tenant,
        *,
        verdicts: Collection[LineageVerdict] = SUSPICIOUS,
        newest: int = 3,
        most: int = 10_000,
    ) -> tuple[InboxVerdict, ...]:
        """The findings of all spaces that nobody has acknowledged, by verdict, with the newest.

        Args:
            most: the number up to which those of a verdict are counted.
        """
        return tuple(
            InboxVerdict(
                each,
                listing.count_open(session, tenant.id, each, most),
                listing.newest_open(session, tenant.id, each, newest),
            )
            for each in verdicts
        )

    def acknowledge(
        self,
        session: Writer,
        space: SpaceRecord,
        name: str,
        *,
        note: str | None,
        made_by: str | None,
    ) -> LineageFinding:
        """Acknowledge the kept finding of a model; it is open again if it changes.

        Call :meth:`refresh` before.

        Raises:
            ModelNotFound: there is no such model.
            InvalidParameter: there is nothing to acknowledge.
        """
        model = models.get_model(session, space, name)
        finding = listing.find_kept(session, space, model.id)
        if finding is None or finding.verdict == "consistent":
            raise InvalidParameter(
                f"there is nothing to acknowledge: {name!r} is no finding", field="model"
            )
        acknowledgements.put_acknowledgement(
            session,
            space,
            model.id,
            Acknowledgement(
                verdict=finding.verdict,
                base=finding.declared_base or finding.likely_base,
                note=note,
                made_by=made_by,
                made_at=datetime.now(UTC),
            ),
        )
        found = listing.find_kept(session, space, model.id)
        assert found is not None
        return found

    def withdraw(self, session: Writer, space: SpaceRecord, name: str) -> bool:
        """Have the finding of a model open again; whether it was acknowledged.

        Raises:
            ModelNotFound: there is no such model.
        """
        model = models.get_model(session, space, name)
        return acknowledgements.delete_acknowledgement(session, model.id)
