"""The calls about clusterings: asking for one, reading them, placing newcomers, and the policy.

What is sent and how answers are read is ``_clusterings``'s.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, overload

from modelkin.client._protocol import clusterings
from modelkin.client._protocol.clusterings import LATEST, Which
from modelkin.client._protocol.jobs import AsyncJobCalls, JobCalls, OnProgress
from modelkin.client._sync.listing import AsyncListing, Listing
from modelkin.core.sketching.signature import Signature
from modelkin.core.support import Support
from modelkin.types.clusterings import Assignment, Clustering, ClusteringInfo, ClusteringPolicy
from modelkin.types.jobs import JobInfo

__all__ = ["AsyncClusteringCalls", "ClusteringCalls"]


class ClusteringCalls(JobCalls):
    """Part of :class:`modelkin.Client`."""

    @overload
    def cluster(
        self,
        space: str,
        algorithm: str | None = None,
        *,
        wait: Literal[True] = True,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        tags: Iterable[str] = (),
        models: Iterable[str] | None = None,
        **parameters: Any,
    ) -> Clustering: ...
    @overload
    def cluster(
        self,
        space: str,
        algorithm: str | None = None,
        *,
        wait: Literal[False],
        tags: Iterable[str] = (),
        models: Iterable[str] | None = None,
        **parameters: Any,
    ) -> JobInfo: ...
    def cluster(
        self,
        space: str,
        algorithm: str | None = None,
        *,
        wait: bool = True,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        tags: Iterable[str] = (),
        models: Iterable[str] | None = None,
        **parameters: Any,
    ) -> Clustering | JobInfo:
        """Groups models by kinship; each algorithm finds out how many groups there are.

            clustering = client.cluster("digits-cnn")
            clustering.labels["org/client-7"]

        Args:
            space: whose models.
            algorithm: ``"affinity_propagation"``, ``"leiden"``, ``"agglomerative"`` or
                ``"hdbscan"``; the one that suits their number where it is left out.
            wait: answer the clustering; else the job that makes it, at once. The clustering has the
                job's id.
            timeout: seconds to wait at most; None for as long as it takes.
            on_progress: called with the job whenever its state or progress has changed.
            tags: only models that carry all of them.
            models: only these.
            parameters: of the algorithm, and ``seed`` and ``similarity``; see docs/clustering.md.

        Raises:
            JobFailed: it could not be made; the message says why.
            TimeoutError: it is not there in time. The job goes on.
        """
        job = self._run(clusterings.create(space, algorithm, tags, models, parameters))
        if not wait:
            return job
        done = self.wait_for_job(job, timeout=timeout, on_progress=on_progress)
        return self._run(clusterings.show(space, done.id, ()))

    def clusterings(self, space: str) -> Listing[ClusteringInfo]:
        """The clusterings of a space, newest first, without who is in which cluster."""
        return Listing(self._rows(clusterings.list_all(space)), ClusteringInfo)

    def clustering(
        self, space: str, clustering: Which = LATEST, *, tags: Iterable[str] = ()
    ) -> Clustering:
        """A clustering with its clusters; ``clustering_not_found`` where there is none.

        Args:
            space: whose models were clustered.
            clustering: its id, or ``"latest"`` for the newest one of all models.
            tags: with ``"latest"``: of the models that carry all of these instead.
        """
        return self._run(clusterings.show(space, clustering, tags))

    def assign(
        self, space: str, newcomer: Support | Signature, clustering: Which = LATEST
    ) -> Assignment:
        """The cluster that a support or signature would be in, which is not stored.

        Args:
            space: whose models were clustered.
            newcomer: whose cluster is sought.
            clustering: as for :meth:`clustering`.
        """
        return self._run(clusterings.assign(space, newcomer, clustering))

    def delete_clustering(self, space: str, clustering: str | ClusteringInfo) -> None:
        """Deletes a clustering; the models stay as they are."""
        self._run(clusterings.delete(space, clustering))

    def clustering_policy(self, space: str) -> ClusteringPolicy:
        """When the space is clustered by itself; ``clustering_not_found`` where it is not."""
        return self._run(clusterings.policy(space))

    def set_clustering_policy(
        self,
        space: str,
        algorithm: str | None = None,
        *,
        after_changes: int | None = None,
        every_seconds: int | None = None,
        debounce_seconds: int | None = None,
        tags: Iterable[str] = (),
        models: Iterable[str] | None = None,
        **parameters: Any,
    ) -> ClusteringPolicy:
        """Has the space clustered by itself, from now on, once it has come to rest.

        Args:
            space: which.
            algorithm: as for :meth:`cluster`.
            after_changes: after so many changes of the space.
            every_seconds: after so many seconds, if anything changed. One of the two is needed.
            debounce_seconds: how long nothing may have changed before, 30 by default; ten times as
                long is waited at most.
            tags: as for :meth:`cluster`.
            models: likewise.
            parameters: likewise.
        """
        asked = clusterings.asked(None, tags, models, parameters)
        times = (after_changes, every_seconds, debounce_seconds)
        return self._run(clusterings.set_policy(space, algorithm, asked, *times))

    def delete_clustering_policy(self, space: str) -> None:
        """Has the space clustered by request alone."""
        self._run(clusterings.delete_policy(space))


class AsyncClusteringCalls(AsyncJobCalls):
    """Part of :class:`modelkin.AsyncClient`."""

    @overload
    async def cluster(
        self,
        space: str,
        algorithm: str | None = None,
        *,
        wait: Literal[True] = True,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        tags: Iterable[str] = (),
        models: Iterable[str] | None = None,
        **parameters: Any,
    ) -> Clustering: ...
    @overload
    async def cluster(
        self,
        space: str,
        algorithm: str | None = None,
        *,
        wait: Literal[False],
        tags: Iterable[str] = (),
        models: Iterable[str] | None = None,
        **parameters: Any,
    ) -> JobInfo: ...
    async def cluster(
        self,
        space: str,
        algorithm: str | None = None,
        *,
        wait: bool = True,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        tags: Iterable[str] = (),
        models: Iterable[str] | None = None,
        **parameters: Any,
    ) -> Clustering | JobInfo:
        """Groups models by kinship; each algorithm finds out how many groups there are."""
        job = await self._run(clusterings.create(space, algorithm, tags, models, parameters))
        if not wait:
            return job
        done = await self.wait_for_job(job, timeout=timeout, on_progress=on_progress)
        return await self._run(clusterings.show(space, done.id, ()))

    def clusterings(self, space: str) -> AsyncListing[ClusteringInfo]:
        """The clusterings of a space, newest first, without who is in which cluster."""
        return AsyncListing(self._rows(clusterings.list_all(space)), ClusteringInfo)

    async def clustering(
        self, space: str, clustering: Which = LATEST, *, tags: Iterable[str] = ()
    ) -> Clustering:
        """A clustering with its clusters; ``clustering_not_found`` where there is none."""
        return await self._run(clusterings.show(space, clustering, tags))

    async def assign(
        self, space: str, newcomer: Support | Signature, clustering: Which = LATEST
    ) -> Assignment:
        """The cluster that a support or signature would be in, which is not stored."""
        return await self._run(clusterings.assign(space, newcomer, clustering))

    async def delete_clustering(self, space: str, clustering: str | ClusteringInfo) -> None:
        """Deletes a clustering; the models stay as they are."""
        await self._run(clusterings.delete(space, clustering))

    async def clustering_policy(self, space: str) -> ClusteringPolicy:
        """When the space is clustered by itself; ``clustering_not_found`` where it is not."""
        return await self._run(clusterings.policy(space))

    async def set_clustering_policy(
        self,
        space: str,
        algorithm: str | None = None,
        *,
        after_changes: int | None = None,
        every_seconds: int | None = None,
        debounce_seconds: int | None = None,
        tags: Iterable[str] = (),
        models: Iterable[str] | None = None,
        **parameters: Any,
    ) -> ClusteringPolicy:
        """Has the space clustered by itself, from now on, once it has come to rest."""
        asked = clusterings.asked(None, tags, models, parameters)
        times = (after_changes, every_seconds, debounce_seconds)
        return await self._run(clusterings.set_policy(space, algorithm, asked, *times))

    async def delete_clustering_policy(self, space: str) -> None:
        """Has the space clustered by request alone."""
        await self._run(clusterings.delete_policy(space))
