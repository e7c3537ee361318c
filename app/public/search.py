"""``PublicSearch``: the nearest models of a public space, by scores in steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from app.auth.records import Tenant
from app.catalog.reader import ModelReader
from app.deadlines import NEVER, Deadline
from app.infra.db.database import Reader
from app.public.budgets import QueryBudgets
from app.public.records import STEPS, Nearest, PublicSpace
from app.public.scores import Rounding, scored
from app.search.service import SearchService
from app.spaces.origins import NOTHING_STATED, StatedOrigin
from app.spaces.records import SpaceRecord
from modelkin.core.sketching.signature import Signature
from modelkin.core.support import Support

__all__ = ["PublicSearch"]

_COMPARED: Final = 500
"""Nearest models that get scores; an answer may have fewer, and none but these."""


class PublicSearch:
    """Answers queries of public spaces.

    Args:
        reader: makes subjects of what callers send.
        search: finds the nearest models.
        budgets: count the queries.
        secret: of the installation: hides how similarities are rounded.
    """

    def __init__(
        self, reader: ModelReader, search: SearchService, budgets: QueryBudgets, secret: str
    ) -> None:
        self._reader = reader
        self._search = search
        self._budgets = budgets
        self._secret = secret.encode()

    def neighbors(
        self,
        session: Reader,
        public: PublicSpace,
        space: SpaceRecord,
        given: Support | Signature,
        *,
        caller: Tenant,
        k: int,
        origin: StatedOrigin = NOTHING_STATED,
        deadline: Deadline = NEVER,
    ) -> Nearest:
        """The ``k`` models of the largest scores. A query that is refused is not counted.

        Args:
            session: of the owner's rows.
            given: by the caller.
            caller: whose budget it takes from.
            deadline: as :meth:`SearchService.neighbors` has it.

        Raises:
            SpaceMismatch: what is given is not of this space.
            QueryBudgetSpent: the caller has asked as often as it may.
        """
        subject = self._reader.given_subject(session, space, given, origin)
        subject = replace(subject, tensor_counts=None)  # nothing about chance is shown
        session.release()  # the count has a transaction of its own
        remaining = self._budgets.take(public, caller)
        found = self._search.neighbors(session, space, subject, k=_COMPARED, deadline=deadline)
        steps = STEPS[public.settings.step]
        items, more = scored(
            found.items,
            Rounding(steps, self._secret, _content(given)),
            steps=steps,
            floor=public.settings.floor,
            k=k,
            whole=len(found.items) < _COMPARED and not found.truncated,
        )
        return Nearest(items, remaining, more or found.truncated, found.degraded)


def _content(given: Support | Signature) -> bytes:
    """All that is compared of a query, the same in whatever form it was sent."""
    if isinstance(given, Signature):
        return given.values.tobytes()
    return given.indices.tobytes()
