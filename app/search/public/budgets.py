"""``QueryBudgets``: the number of queries of a public space that each tenant may make in a day.

Counts are the caller's own rows, in other transactions than those that read the space. The counts
are in the database, so all processes share them, and a count is durable before its answer leaves.
So the budget holds however many queries come at once.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from app.infra.db.database import Database
from app.infra.db.visibility import one_tenant
from app.infra.errors import QueryBudgetSpent
from app.search.public import repository
from app.search.public.records import PublicSpace
from app.tenancy.auth.records import Tenant

__all__ = ["QueryBudgets"]

_DAY_S: Final = 24 * 3600
_KEPT_DAYS: Final = 30


class QueryBudgets:
    """Counts queries.

    Args:
        database: the database with the counts.
        clock: the present moment.
    """

    def __init__(
        self, database: Database, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._database = database
        self._clock = clock

    def take(self, public: PublicSpace, caller: Tenant) -> tuple[PublicSpace, int]:
        """Count a query of a tenant.

        Returns:
            The space as it is public now, and the number of queries that the tenant has left today.

        Raises:
            PublicSpaceNotFound: the space is public no more.
            QueryBudgetSpent: the tenant had no query left.
        """
        day, second = self._now()
        with one_tenant(caller.id), self._database.writing() as session:
            public = repository.still_public(session, public)
            limit = public.settings.daily_queries
            counted = repository.count_query(session, public, caller, day, limit)
            if counted is None:
                repository.still_public(session, public)  # it may have been deleted meanwhile
        if counted is None:
            left = _DAY_S - second
            raise QueryBudgetSpent(
                f"this tenant has made the {limit:,} queries of public space "
                f"{public.owner}/{public.space} that it may make in a day; there are more in "
                f"{left} s, at midnight UTC",
                retry_after=left,
            )
        return public, limit - counted

    def left(self, public: PublicSpace, caller: Tenant) -> int:
        """Return the number of queries that a tenant has left today."""
        day, _ = self._now()
        with one_tenant(caller.id), self._database.reading() as session:
            used = repository.queries_of(session, public, caller, day)
        return max(0, public.settings.daily_queries - used)

    def prune(self, *_: object) -> None:
        """Delete counts that are 30 days old; a step of the clean-up.

        Counts of a day before serve the next query: an update of a row waits for no lock of the
        space, as an insertion does.
        """
        day, _second = self._now()
        with self._database.writing() as session:
            repository.prune_counts(session, day - _KEPT_DAYS)

    def _now(self) -> tuple[int, int]:
        """The day, counted from 1970, and the seconds that have passed of it."""
        return divmod(int(self._clock().timestamp()), _DAY_S)
