"""``client.maps``: the models of a space in the plane."""

from __future__ import annotations

from typing import Literal, Unpack, overload

from modelkin.client._async.connection import AsyncConnection
from modelkin.client._async.resource import AsyncResource
from modelkin.client._async.resources.jobs import AsyncJobs
from modelkin.client._protocol import maps
from modelkin.client._protocol.jobs import OnProgress
from modelkin.client._transport.progress import following
from modelkin.types.jobs import JobInfo
from modelkin.types.maps import ModelMap
from modelkin.types.parameters import MapParameters

__all__ = ["AsyncMaps"]


class AsyncMaps(AsyncResource):
    """Maps of spaces, which the explorer shows.

    Args:
        connection: the client's connection.
    """

    def __init__(self, connection: AsyncConnection) -> None:
        super().__init__(connection)
        self._jobs = AsyncJobs(connection)

    @overload
    async def create(
        self,
        space: str,
        *,
        wait: Literal[True] = True,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        progress: bool = False,
        **parameters: Unpack[MapParameters],
    ) -> ModelMap: ...
    @overload
    async def create(
        self, space: str, *, wait: Literal[False], **parameters: Unpack[MapParameters]
    ) -> JobInfo: ...
    async def create(
        self,
        space: str,
        *,
        wait: bool = True,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        progress: bool = False,
        **parameters: Unpack[MapParameters],
    ) -> ModelMap | JobInfo:
        """Draws all models of a space as a map, which replaces the one before.

        Args:
            space: a space of two models or more.
            wait: whether to return the map; else the job that draws it is returned at once.
            timeout: seconds to wait at most; None for no limit.
            on_progress: a function that is called with the job whenever its state or progress has
                changed.
            progress: whether to show the stages and a bar on a terminal.
            parameters: ``neighbors``, ``seed``, ``similarity`` and ``compare``; see
                docs/explorer.md.

        Raises:
            JobFailed: the map was not drawn; the message says why.
            TimeoutError: the job has not ended in time. It goes on.
        """
        job = await self._connection.run(maps.create(space, parameters))
        if not wait:
            return job
        with following(progress, space, on_progress) as report:
            await self._jobs.wait(job, timeout=timeout, on_progress=report)
        return await self.get(space)

    async def get(self, space: str) -> ModelMap:
        """Reads the newest map of a space.

        Args:
            space: the space's name.

        Raises:
            ApiError: ``map_not_found`` before the first map.
        """
        return await self._connection.run(maps.get(space))
