"""``PublicSpaceService``: spaces become public, are found by all, and become private again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from app.infra.db.database import Database, Reader, Writer
from app.infra.db.visibility import every_tenant, show_tenant
from app.infra.errors import PublicSpaceNotFound, WrongKind
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import spaces
from app.search.public import repository
from app.search.public.records import MAX_DAILY_QUERIES, STEPS, PublicSettings, PublicSpace
from app.tenancy.auth.records import Tenant
from modelkin._validation import check_space_name
from modelkin.errors import InvalidParameter
from modelkin.types.paging import Page

__all__ = ["MAX_DESCRIPTION_LENGTH", "PublicSpaceService"]

MAX_DESCRIPTION_LENGTH: Final = 500


class PublicSpaceService:
    """The use cases of public spaces, except queries.

    Args:
        database: the database in which all tenants find public spaces.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def publish(
        self, session: Writer, owner: Tenant, space: SpaceRecord, settings: PublicSettings
    ) -> PublicSpace:
        """Let every tenant ask a space, from now on; or change how.

        Raises:
            WrongKind: the space is of data subspaces.
            InvalidParameter: a setting is out of its range.
            SpaceNotFound: the space was deleted just now.
        """
        if space.kind != "supports":
            raise WrongKind(
                f"space {space.name!r} holds data subspaces, which show mean samples: only a space "
                f"of supports can be public"
            )
        _check(settings)
        space = spaces.lock_space(session, space)
        public = PublicSpace(
            space.id, owner.id, owner.name, space.name, settings, datetime.now(UTC)
        )
        repository.put_public_space(session, public)
        return self.of(session, space)

    def of(self, session: Reader, space: SpaceRecord) -> PublicSpace:
        """A space as it is public.

        Raises:
            PublicSpaceNotFound: the space is not public.
        """
        public = self.find_own(session, space)
        if public is None:
            raise PublicSpaceNotFound(
                f"space {space.name!r} is not public: no other tenant can ask it"
            )
        return public

    def find_own(self, session: Reader, space: SpaceRecord) -> PublicSpace | None:
        """A space as it is public; None where it is not."""
        return repository.find_settings(session, space)

    def withdraw(self, session: Writer, space: SpaceRecord) -> None:
        """Stop other tenants' queries of a space; without effect on a space that is not public."""
        repository.delete_public_space(session, space)

    def open(self, owner: str, space: str) -> PublicSpace:
        """Find a public space, and let this context see its owner's rows from now on.

        This is the one place where a request reaches a space of another tenant.

        Raises:
            InvalidName: no tenant or space can have this name.
            PublicSpaceNotFound: there is no public space of this name; private ones get the same
                error.
        """
        public = self.find(check_space_name(owner, field="owner"), check_space_name(space))
        show_tenant(public.owner_id)
        return public

    def find(self, owner: str, space: str) -> PublicSpace:
        """The public space of these names, in a short transaction of its own.

        Raises:
            PublicSpaceNotFound: there is no public space of this name; private ones get the same
                error.
        """
        with every_tenant(), self._database.reading() as session:
            public = repository.find_public_space(session, owner, space)
        if public is None:
            raise repository.no_public_space(owner, space)
        return public

    def list(self, session: Reader, *, limit: int, cursor: str | None) -> Page[PublicSpace]:
        """The public spaces of all tenants, by the names of the tenant and the space."""
        return repository.list_public_spaces(session, limit=limit, cursor=cursor)

    def space(self, session: Reader, public: PublicSpace) -> SpaceRecord:
        """The space itself, which its owner sees.

        Raises:
            PublicSpaceNotFound: the space was deleted just now.
        """
        found = spaces.find_space_by_id(session, public.space_id)
        if found is None:
            raise repository.no_public_space(public.owner, public.space)
        return found


def _check(settings: PublicSettings) -> None:
    if settings.step not in STEPS:
        raise InvalidParameter(
            f"step must be one of {', '.join(map(str, STEPS))}, not {settings.step}", field="step"
        )
    if settings.floor > 1 or settings.least_steps < 2:
        raise InvalidParameter(
            f"floor must be more than {settings.step}, which is the step, and 1 at most, not "
            f"{settings.floor}: a lower one would list models that share nothing with a query",
            field="floor",
        )
    if not 1 <= settings.daily_queries <= MAX_DAILY_QUERIES:
        raise InvalidParameter(
            f"daily_queries must be 1 to {MAX_DAILY_QUERIES:,}, not {settings.daily_queries}",
            field="daily_queries",
        )
    if len(settings.description) > MAX_DESCRIPTION_LENGTH:
        raise InvalidParameter(
            f"a description has {MAX_DESCRIPTION_LENGTH} characters at most, this one "
            f"{len(settings.description)}",
            field="description",
        )
