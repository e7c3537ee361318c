"""``client.public``: spaces that every tenant may ask, yours and those of other tenants."""

from __future__ import annotations

from modelkin.client._async.listing import AsyncListing
from modelkin.client._async.resource import AsyncResource
from modelkin.client._protocol import public
from modelkin.core.sketching.signature import Signature
from modelkin.core.support import Support
from modelkin.types.public import PublicNeighbors, PublicSpace, PublicSpaceInfo

__all__ = ["AsyncPublicSpaces"]


class AsyncPublicSpaces(AsyncResource):
    """Public spaces: every tenant may ask them for neighbours, and gets names and scores."""

    async def publish(
        self,
        space: str,
        *,
        step: float | None = None,
        floor: float | None = None,
        daily_queries: int | None = None,
        description: str = "",
    ) -> PublicSpace:
        """Makes a space of yours public, or changes its terms. The key needs the scope ``admin``.

            await client.public.publish("atlas", step=0.1, description="our fine-tunes")

        An argument that you leave out gets its default, also if it had another value before.

        Args:
            space: the name of a space of supports, of this tenant.
            step: the step of scores: 0.01, 0.02, 0.05, 0.1, 0.2 or 0.25; 0.05 by default.
            floor: the least score that is shown, more than one step; 0.3 by default.
            daily_queries: the queries of each tenant in a day of UTC; 1,000 by default.
            description: a description for other tenants; none by default.

        Raises:
            PermissionDeniedError: your key lacks ``admin``.
            ApiError: ``space_not_found``, ``wrong_kind``, or an argument is refused.
        """
        call = public.publish(space, step, floor, daily_queries, description)
        return await self._connection.run(call)

    async def settings(self, space: str) -> PublicSpace:
        """Reads the terms on which a space of yours is public.

        Args:
            space: the space's name.

        Raises:
            ApiError: ``public_space_not_found`` for a private space; ``space_not_found``.
        """
        return await self._connection.run(public.settings(space))

    async def withdraw(self, space: str) -> None:
        """Makes a space of yours private from now on. The key needs the scope ``admin``.

        Args:
            space: the space's name.

        Raises:
            ApiError: ``space_not_found``.
        """
        await self._connection.run(public.withdraw(space))

    def list(self) -> AsyncListing[PublicSpace]:
        """Lists the public spaces of all tenants, page by page as they are read."""
        return self._listing(public.list_all(), PublicSpace)

    async def get(self, owner: str, space: str) -> PublicSpaceInfo:
        """Reads the form of queries to a public space, and how many queries you have left today.

        Args:
            owner: the tenant that owns the space.
            space: the space's name.

        Raises:
            ApiError: ``public_space_not_found``.
        """
        return await self._connection.run(public.get(owner, space))

    async def neighbors(
        self, owner: str, space: str, query: Support | Signature, *, k: int = 10
    ) -> PublicNeighbors:
        """Finds the models of a public space that are nearest to a support or a signature.

        Each query takes one from the budget of your tenant, also a repeated one, and one whose
        answer is lost or fails after the service counted it. The client asks again for a lost
        answer, which counts, too; ``remaining`` says what is left.

        Args:
            owner: the tenant that owns the space.
            space: the space's name.
            query: the support or signature, which is not stored.
            k: the number of models, 1 to 100.

        Raises:
            RateLimitError: ``query_budget_spent``; not retried before midnight UTC.
            ApiError: ``public_space_not_found``, ``space_mismatch``.
        """
        return await self._connection.run(public.neighbors(owner, space, query, k))
