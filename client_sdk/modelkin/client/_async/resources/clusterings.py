"""``client.clusterings``: clusterings of spaces, assignments of newcomers, and policies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Unpack, overload

from modelkin.client._async.connection import AsyncConnection
from modelkin.client._async.flows import run_flow
from modelkin.client._async.listing import AsyncListing
from modelkin.client._async.resource import AsyncResource
from modelkin.client._async.resources.jobs import AsyncJobs
from modelkin.client._protocol import clusterings
from modelkin.client._protocol.calls.requests import Content
from modelkin.client._protocol.clusterings import LATEST, AnyClustering
from modelkin.client._protocol.jobs import OnProgress
from modelkin.client._protocol.uploads.tensor_order import LayoutCache, in_order, one_call
from modelkin.client._transport.progress import following
from modelkin.types.clusterings import Assignment, Clustering, ClusteringInfo, ClusteringPolicy
from modelkin.types.jobs import JobInfo
from modelkin.types.parameters import ClusteringParameters
from modelkin.types.vocabulary import ClusteringAlgorithm, Compare

__all__ = ["AsyncClusteringPolicies", "AsyncClusterings"]


class AsyncClusteringPolicies(AsyncResource):
    """The rules by which the service clusters spaces without a request."""

    async def get(self, space: str) -> ClusteringPolicy:
        """Reads the policy of a space.

        Args:
            space: the space's name.

        Raises:
            ApiError: ``clustering_not_found`` for a space without a policy.
        """
        return await self._connection.run(clusterings.get_policy(space))

    async def set(
        self,
        space: str,
        algorithm: ClusteringAlgorithm | None = None,
        *,
        after_changes: int | None = None,
        every_seconds: int | None = None,
        debounce_seconds: int | None = None,
        tags: Iterable[str] = (),
        models: Iterable[str] | None = None,
        **parameters: Unpack[ClusteringParameters],
    ) -> ClusteringPolicy:
        """Sets the policy of a space: the service clusters it after changes, once it is quiet.

        Args:
            space: the space's name.
            algorithm: see ``client.clusterings.create``.
            after_changes: the number of changes of the space that start a clustering.
            every_seconds: seconds after which a change starts a clustering. One of the two is
                needed.
            debounce_seconds: quiet seconds before the start, 30 by default. The service waits ten
                times as long at most.
            tags: only models that carry all of them.
            models: only models of these names.
            parameters: settings of the algorithm by name; see docs/clustering.md.

        Raises:
            ApiError: ``space_not_found``, or a parameter is wrong.
        """
        request = clusterings.request_json(None, tags, models, parameters)
        times = (after_changes, every_seconds, debounce_seconds)
        return await self._connection.run(clusterings.set_policy(space, algorithm, request, *times))

    async def delete(self, space: str) -> None:
        """Deletes the policy of a space, which is then clustered by request only.

        Args:
            space: the space's name.

        Raises:
            ApiError: ``clustering_not_found`` for a space without a policy.
        """
        await self._connection.run(clusterings.delete_policy(space))


class AsyncClusterings(AsyncResource):
    """Clusterings, and the policies by which the service makes them.

    Args:
        connection: the client's connection.
        layouts: the client's cache of layouts.
    """

    def __init__(self, connection: AsyncConnection, layouts: LayoutCache) -> None:
        super().__init__(connection)
        self._layouts = layouts
        self.policy = AsyncClusteringPolicies(connection)
        self._jobs = AsyncJobs(connection)

    @overload
    async def create(
        self,
        space: str,
        algorithm: ClusteringAlgorithm | None = None,
        *,
        wait: Literal[True] = True,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        progress: bool = False,
        tags: Iterable[str] = (),
        models: Iterable[str] | None = None,
        **parameters: Unpack[ClusteringParameters],
    ) -> Clustering: ...
    @overload
    async def create(
        self,
        space: str,
        algorithm: ClusteringAlgorithm | None = None,
        *,
        wait: Literal[False],
        tags: Iterable[str] = (),
        models: Iterable[str] | None = None,
        **parameters: Unpack[ClusteringParameters],
    ) -> JobInfo: ...
    async def create(
        self,
        space: str,
        algorithm: ClusteringAlgorithm | None = None,
        *,
        wait: bool = True,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        progress: bool = False,
        tags: Iterable[str] = (),
        models: Iterable[str] | None = None,
        **parameters: Unpack[ClusteringParameters],
    ) -> Clustering | JobInfo:
        """Groups the models of a space by kinship; each algorithm finds the number of groups.

            clustering = await client.clusterings.create("digits-cnn")
            clustering.labels["org/client-7"]

        Args:
            space: the name of the space; all its models by default.
            algorithm: the algorithm; by default the one that suits the number of models.
            wait: whether to return the clustering; else the job that makes it is returned at once.
                The clustering has the id of the job.
            timeout: seconds to wait at most; None for no limit.
            on_progress: a function that is called with the job whenever its state or progress has
                changed.
            progress: whether to show the stages and a bar on a terminal.
            tags: only models that carry all of them.
            models: only models of these names.
            parameters: the parameters of the algorithm, ``seed`` and ``similarity``; see
                docs/clustering.md.

        Raises:
            JobFailed: the clustering failed; the message says why.
            TimeoutError: the job has not ended in time. It goes on.
        """
        call = clusterings.create(space, algorithm, tags, models, parameters)
        job = await self._connection.run(call)
        if not wait:
            return job
        with following(progress, space, on_progress) as report:
            done = await self._jobs.wait(job, timeout=timeout, on_progress=report)
        return await self.get(space, done.id)

    def list(self, space: str) -> AsyncListing[ClusteringInfo]:
        """Lists the clusterings of a space, the newest first, without their clusters.

        Args:
            space: the space's name.
        """
        return self._listing(clusterings.list_all(space), ClusteringInfo)

    async def get(
        self, space: str, clustering: AnyClustering = LATEST, *, tags: Iterable[str] = ()
    ) -> Clustering:
        """Reads a clustering with its clusters.

        Args:
            space: the name of the space that was clustered.
            clustering: the clustering's id, or ``"latest"`` for the newest one of all models.
            tags: with ``"latest"``, the newest clustering of models that carry all of these.

        Raises:
            ApiError: ``clustering_not_found``.
        """
        return await self._connection.run(clusterings.get(space, clustering, tags))

    async def assign(
        self,
        space: str,
        newcomer: Content,
        clustering: AnyClustering = LATEST,
        *,
        compare: Compare | None = None,
    ) -> Assignment:
        """Finds the cluster of a support, signature or data subspace, which is not stored.

        Args:
            space: the name of the space that was clustered; the newcomer must fit it.
            newcomer: the support, signature or subspace. A support whose layout is known is put in
                the order of the space's tensors.
            clustering: see :meth:`get`.
            compare: for data subspaces, the blocks to compare; by default those of the clustering.

        Raises:
            SpaceMismatch: the support has other tensors than the space.
            ApiError: ``clustering_not_found``.
        """
        flow = in_order(
            self._layouts,
            space,
            newcomer,
            lambda value: one_call(clusterings.assign(space, value, clustering, compare)),
        )
        return await run_flow(flow, self._connection.run, heavy=True)

    async def join(self, space: str, model: str, clustering: AnyClustering = LATEST) -> Assignment:
        """Assigns a stored data subspace to a cluster, which it counts as a member of from now on.

        The mean of the cluster moves, so the clusters of later newcomers depend on who came before.
        A model of cluster -1 joins none.

        Args:
            space: the name of the space that was clustered, of data subspaces.
            model: the name of a stored model that is not in the clustering yet.
            clustering: see :meth:`get`.

        Raises:
            ApiError: ``clustering_not_found``, ``model_not_found``; ``wrong_kind`` in a space of
                supports; ``invalid_parameter`` if the model is in the clustering.
        """
        return await self._connection.run(clusterings.join(space, model, clustering))

    async def delete(self, space: str, clustering: str | ClusteringInfo) -> None:
        """Deletes a clustering; the models stay.

        Args:
            space: the name of the space that was clustered.
            clustering: the clustering, or its id.

        Raises:
            ApiError: ``clustering_not_found``.
        """
        await self._connection.run(clusterings.delete(space, clustering))
