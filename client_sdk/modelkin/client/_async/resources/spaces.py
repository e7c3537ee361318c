"""``client.spaces``: the spaces of the service, the K that they ask for, and their graphs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from modelkin.client._async.connection import AsyncConnection
from modelkin.client._async.flows import run_flow
from modelkin.client._async.listing import AsyncListing
from modelkin.client._async.resource import AsyncResource
from modelkin.client._protocol import kinship, spaces
from modelkin.client._protocol.uploads import support_size
from modelkin.client._protocol.uploads.tensor_order import (
    LayoutCache,
    in_order,
    one_call,
    selection,
)
from modelkin.client._transport.concurrency import async_offload
from modelkin.core.blinding import Blinding
from modelkin.core.support import Support
from modelkin.types.kinship import Graph
from modelkin.types.spaces import SpaceInfo, SupportSize
from modelkin.types.tensors import SpaceTensors
from modelkin.types.vocabulary import Compare

__all__ = ["AsyncSpaces"]


class AsyncSpaces(AsyncResource):
    """Spaces. ``client.ensure_space`` creates them.

    Args:
        connection: the client's connection.
        layouts: the client's cache of layouts.
    """

    def __init__(self, connection: AsyncConnection, layouts: LayoutCache) -> None:
        super().__init__(connection)
        self._layouts = layouts

    def list(self) -> AsyncListing[SpaceInfo]:
        """Lists all spaces by name, page by page as they are read."""
        return self._listing(spaces.list_all(), SpaceInfo)

    async def get(self, name: str) -> SpaceInfo:
        """Reads a space with its counts.

        Args:
            name: the space's name.

        Raises:
            ApiError: ``space_not_found``.
        """
        return self._layouts.update(await self._connection.run(spaces.get(name)))

    async def delete(self, name: str) -> None:
        """Deletes a space and every model in it.

        Args:
            name: the space's name.

        Raises:
            ApiError: ``space_not_found``.
        """
        self._layouts.discard(name)
        await self._connection.run(spaces.delete(name))

    async def support_size(self, name: str) -> SupportSize:
        """Reads the K that supports of a space should have at present.

        Args:
            name: the space's name.

        Raises:
            ApiError: ``space_not_found``.
        """
        return await self._connection.run(support_size.get(name))

    async def report_support_size(
        self,
        name: str,
        importance: Any,
        *,
        client: str | None = None,
        coverage: float | None = None,
        k_max: float | None = None,
        support: Support | None = None,
        blinding: Blinding | None = None,
    ) -> SupportSize:
        """Reports this client's K* to a space and returns the K to select with.

            size = await client.spaces.report_support_size("digits-cnn", importance, client="me")
            support = modelkin.select_support(importance, k=size.k)

        An agreed K is the median of all reports so far, and may move with each further report. A
        fixed K stays. A space where the size is free answers the reported K*. An importance that
        does not fit the space is refused and not counted.

        Args:
            name: the space's name.
            importance: see ``modelkin.select_support``; only K* is sent. Or K* itself.
            client: the name of the reporting client's model. Each client counts once, with its
                last report.
            coverage: the coverage that selects K*, 0.8 by default.
            k_max: the cap of K*, 0.2 of M by default.
            support: beside a K* itself, a support of the same importance, whose M, kind and layout
                are compared with the space's.
            blinding: the blinding of a blinded space, under the space's key.

        Raises:
            SpaceMismatch: the importance has other tensors than the space; names the first.
            ApiError: ``space_not_found``, or ``space_mismatch`` for another kind or M.
        """
        order = selection(self._layouts, name, importance, None, blinding, False)
        how = await run_flow(order, self._connection.run)
        k_star, selected = await async_offload(
            support_size.k_star_of, importance, coverage, k_max, how
        )
        flow = in_order(
            self._layouts,
            name,
            _with_blinding(support or selected, blinding),
            lambda value: one_call(support_size.report(name, k_star, client, value)),
        )
        return await run_flow(flow, self._connection.run)

    async def graph(
        self,
        name: str,
        *,
        k: int | None = None,
        threshold: float | None = None,
        tags: Iterable[str] = (),
        compare: Compare | None = None,
    ) -> Graph:
        """Reads the kinship graph of a space: its models, and edges between similar ones.

        Args:
            name: the space's name; up to 100,000 of its models may carry the tags.
            k: the number of nearest models with an edge to each model; 10 without a threshold.
            threshold: the least S of pairs with an edge, in place of ``k``.
            tags: only models that carry all of them.
            compare: for data subspaces, ``"classes"`` or ``"whole"``; by default the space's own.

        Raises:
            ApiError: ``space_not_found``, or there are too many models.
        """
        return await self._connection.run(kinship.graph(name, k, threshold, tags, compare))

    async def tensors(self, name: str) -> SpaceTensors:
        """Reads the tensors of a space: the share of each in the supports, and how far pairs agree.

            for tensor in await client.spaces.tensors("silero"):
                if tensor.looks_constant:
                    print(tensor.name)

        Args:
            name: the name of the space, which needs a layout.

        Raises:
            ApiError: ``space_not_found``, or the space has no layout.
        """
        return await self._connection.run(kinship.tensors(name))

    async def graphml(
        self,
        name: str,
        *,
        k: int | None = None,
        threshold: float | None = None,
        tags: Iterable[str] = (),
        compare: Compare | None = None,
    ) -> str:
        """Reads the kinship graph of a space as a GraphML document, for Gephi, yEd and others.

        Args:
            name: the space's name.
            k: the number of nearest models with an edge to each model; 10 without a threshold.
            threshold: the least S of pairs with an edge, in place of ``k``.
            tags: only models that carry all of them.
            compare: for data subspaces, ``"classes"`` or ``"whole"``; by default the space's own.

        Raises:
            ApiError: see :meth:`graph`.
        """
        return await self._connection.run(kinship.graphml(name, k, threshold, tags, compare))


def _with_blinding(support: Support | None, blinding: Blinding | None) -> Support | None:
    return support if support is None or blinding is None else blinding.stated(support)
