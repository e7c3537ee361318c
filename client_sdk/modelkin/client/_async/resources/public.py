"""``client.public``: spaces that every tenant may ask, those of others and your own."""

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
        """Makes a space of yours public, or changes how it is. It needs the scope ``admin``.

            await client.public.publish("atlas", step=0.1, description="our fine-tunes")

        What you leave out gets its default, also where it had another value before.

        Args:
            space: of supports.
            step: of scores: 0.01, 0.02, 0.05, 0.1, 0.2 or 0.25; 0.05 by default.
            floor: the least score that is shown, more than one step; 0.3 by default.
            daily_queries: that each tenant may make in a day of UTC; 1,000 by default.
            description: for people of other tenants; none by default.

        Raises:
            PermissionDeniedError: your key lacks ``admin``.
            ApiError: ``space_not_found``, ``wrong_kind``, or an argument is refused.
        """
        call = public.publish(space, step, floor, daily_queries, description)
        return await self._connection.run(call)

    async def settings(self, space: str) -> PublicSpace:
        """Reads how a space of yours is public.

        Args:
            space: its name.

        Raises:
            ApiError: ``public_space_not_found`` where it is not; ``space_not_found``.
        """
        return await self._connection.run(public.settings(space))

    async def withdraw(self, space: str) -> None:
        """Makes a space of yours private from now on. It needs the scope ``admin``.

        Args:
            space: its name.

        Raises:
            ApiError: ``space_not_found``.
        """
        await self._connection.run(public.withdraw(space))

    def list(self) -> AsyncListing[PublicSpace]:
        """Lists the public spaces of all tenants, page by page as they are read."""
        return self._listing(public.list_all(), PublicSpace)

    async def get(self, owner: str, space: str) -> PublicSpaceInfo:
        """Reads what a query of a public space has to fit, and how many you have left today.

        Args:
            owner: the tenant that it belongs to.
            space: its name.

        Raises:
            ApiError: ``public_space_not_found``.
        """
        return await self._connection.run(public.get(owner, space))

    async def neighbors(
        self, owner: str, space: str, query: Support | Signature, *, k: int = 10
    ) -> PublicNeighbors:
        """Finds the models of a public space that are nearest to a support or a signature.

        Each query takes one from the budget of your tenant, also the same again, and one whose
        answer fails after it was counted or is lost. A lost answer is asked for again as others
        are, which counts, too; ``remaining`` says what is left.

        Args:
            owner: the tenant that it belongs to.
            space: its name.
            query: is not stored.
            k: 1 to 100.

        Raises:
            RateLimitError: ``query_budget_spent``; not retried before midnight UTC.
            ApiError: ``public_space_not_found``, ``space_mismatch``.
        """
        return await self._connection.run(public.neighbors(owner, space, query, k))
