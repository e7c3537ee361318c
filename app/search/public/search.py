"""``PublicSearch``: the nearest models of a public space, by scores in steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from app.infra.db.database import Reader
from app.infra.deadlines import NEVER, Deadline
from app.models.catalog.reader import ModelReader
from app.models.spaces.origins import NOTHING_STATED, StatedOrigin
from app.models.spaces.records import SpaceRecord
from app.search.public.budgets import QueryBudgets
from app.search.public.records import STEPS, Nearest, PublicSpace
from app.search.public.scores import Rounding, score
from app.search.service import SearchService
from app.tenancy.auth.records import Tenant
from modelkin.core.sketching.signature import Signature
from modelkin.core.support import Support

__all__ = ["PublicSearch"]

_COMPARED: Final = 500
"""Models that get scores: all of a space, or the nearest; an answer has none but these."""


class PublicSearch:
    """Answers queries of public spaces.

    Args:
        reader: makes subjects of what callers send.
        search: finds the nearest models.
        budgets: count the queries.
        secret: the installation's secret, which hides how similarities are rounded.
    """

    def __init__(
        self, reader: ModelReader, search: SearchService, budgets: QueryBudgets, secret: bytes
    ) -> None:
        self._reader = reader
        self._search = search
        self._budgets = budgets
        self._secret = secret

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
        """Find the ``k`` models of the largest scores.

        A query that is refused is not counted. A query that fails later stays counted.

        Args:
            session: a view of the owner's rows.
            given: the support or signature of the caller.
            caller: the tenant whose budget the query uses.
            deadline: the time after which there is no answer: a partial answer would depend on more
                than scores.

        Raises:
            SpaceMismatch: ``given`` does not fit this space.
            PublicSpaceNotFound: the space is public no more.
            QueryBudgetSpent: the caller has no query left.
            TooMuch: the time is over.
        """
        subject = self._reader.given_subject(session, space, given, origin)
        subject = replace(subject, tensor_counts=None)  # nothing about chance is shown
        session.release()  # the count has a separate transaction
        public, remaining = self._budgets.take(public, caller)
        every = space.models <= _COMPARED
        method = "exact" if every else "scan"  # buckets miss models by chance
        found = self._search.neighbors(
            session, space, subject, k=_COMPARED, method=method, deadline=deadline
        )
        if found.truncated:
            deadline.require("this query of a public space", "ask by a signature, or later")
        steps = STEPS[public.settings.step]
        items, truncated = score(
            found.items,
            self._contents(session, space, [item.model for item in found.items]),
            Rounding(steps, self._secret, space.id, _content(given)),
            steps=steps,
            least=public.settings.least_steps,
            k=k,
            slack=None if every else found.similarity_slack,
        )
        return Nearest(public, items, remaining, truncated, found.degraded)

    def _contents(
        self, session: Reader, space: SpaceRecord, names: Sequence[str]
    ) -> dict[str, bytes]:
        """The digests of the supports of models, and signatures that came alone, by name."""
        models = self._reader.find(session, space, names)
        alone = [model.id for model in models.values() if model.digest is None]
        signatures = self._reader.values(session, space, alone)
        contents = {model.name: (model.digest or "").encode() for model in models.values()}
        return contents | {
            model.name: signatures[model.id].tobytes()
            for model in models.values()
            if model.id in signatures
        }


def _content(given: Support | Signature) -> bytes:
    """Return the compared content of a query, the same in whatever form it was sent."""
    if isinstance(given, Signature):
        return given.values.tobytes()
    return given.indices.tobytes()
