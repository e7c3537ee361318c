"""``client.learngenes``: the layers that newcomers of a cluster start from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from modelkin.client._async.connection import AsyncConnection
from modelkin.client._async.downloads import download
from modelkin.client._async.listing import AsyncListing
from modelkin.client._async.resource import AsyncResource
from modelkin.client._protocol import learngenes
from modelkin.client._protocol.learngenes import AnyCluster
from modelkin.client._transport.concurrency import async_offload
from modelkin.client._transport.learngene_files import PartialFile, examine, whole
from modelkin.core.learngenes.references import Reference, reference_from_json
from modelkin.errors import (
    ConflictError,
    InvalidParameter,
    LearngeneMismatch,
    PermissionDeniedError,
)
from modelkin.types.learngenes import Learngene, LearngeneInfo

__all__ = ["AsyncLearngenes"]


class AsyncLearngenes(AsyncResource):
    """Learngenes: versions of a cluster's starting point, whose files stay in your hub.

    Args:
        connection: the client's connection.
        timeout: seconds for a hub to begin its answer, and for each 16 MiB of a file.
        idle_timeout: seconds, for connecting to a hub and for each pause while receiving from it.
    """

    def __init__(self, connection: AsyncConnection, timeout: float, idle_timeout: float) -> None:
        super().__init__(connection)
        self._timeout = timeout
        self._idle_timeout = idle_timeout

    async def publish(
        self,
        space: str,
        cluster: AnyCluster,
        path: str | os.PathLike[str],
        *,
        reference: Reference | None = None,
        keep: bool | None = None,
        clustering: str | None = None,
        members: int | None = None,
        rounds: int | None = None,
        metrics: Mapping[str, float] | None = None,
        note: str | None = None,
        if_match: str | None = None,
    ) -> Learngene:
        """Publishes a file as the next version of a cluster's learngene.

            file = modelkin.HubFile(repo="org/start", revision=commit, file="gene.safetensors")
            await client.learngenes.publish("wards", 3, "gene.safetensors", reference=file)

        Only a description goes to the service: the file's digest, its tensors' names and shapes,
        and its place. Publishing the content of the newest version again changes nothing.

        Args:
            space: the cluster's space.
            cluster: the cluster's id in a clustering, or ``"all"`` for the whole space.
            path: the path of the file, as ``cut_learngene`` writes it; it is examined here.
            reference: the place where readers get the file; None where the service keeps it.
            keep: whether the service gets the file, too, which its operator has to allow; by
                default only where there is no reference.
            clustering: the id of the cluster's clustering; by default the newest.
            members: the number of models in the average.
            rounds: the number of rounds of training together.
            metrics: numbers by name.
            note: free text, which readers of the manifest see.
            if_match: the ``etag`` of the newest version that you have seen.

        Raises:
            InvalidLearngene: the file is not a learngene; says why.
            ApiError: ``cluster_not_found``; ``values_not_kept`` where the service keeps no files;
                ``invalid_learngene`` for a tensor that is not the space's.
        """
        self._connection.require_open()
        file = await async_offload(examine, path)
        said = learngenes.details(clustering, members, rounds, metrics, note)
        made = None
        if reference is not None:
            call = learngenes.put_manifest(space, cluster, file, reference, said, if_match)
            made = await self._connection.run(call)
            if not keep or made.kept:
                return made
        elif keep is False:
            raise InvalidParameter(
                "say where readers get the file, with reference, or let the service keep it",
                field="reference",
            )
        data = await async_offload(whole, path, file)
        if made is not None:
            said, if_match = {}, made.etag
        return await self._connection.run(learngenes.put_file(space, cluster, data, said, if_match))

    async def get(
        self, space: str, cluster: AnyCluster, *, version: int | None = None
    ) -> Learngene:
        """Reads the manifest of a cluster's learngene.

        Args:
            space: the cluster's space.
            cluster: the cluster's id, or ``"all"``.
            version: the version; by default the newest.

        Raises:
            ApiError: ``learngene_not_found``.
        """
        return await self._connection.run(learngenes.get(space, cluster, version))

    def list(self, space: str, cluster: AnyCluster | None = None) -> AsyncListing[LearngeneInfo]:
        """Lists the learngenes of a space, the newest first, without their tensors.

        Args:
            space: the space's name.
            cluster: only the versions of this cluster; an id, or ``"all"``.
        """
        return self._listing(learngenes.list_all(space, cluster), LearngeneInfo)

    async def delete(self, space: str, cluster: AnyCluster, *, version: int | None = None) -> None:
        """Deletes a version of a cluster's learngene, with its file if the service keeps one.

        Args:
            space: the cluster's space.
            cluster: the cluster's id, or ``"all"``.
            version: the version; by default the newest.

        Raises:
            ApiError: ``learngene_not_found``.
        """
        await self._connection.run(learngenes.delete(space, cluster, version))

    async def fetch(
        self,
        learngene: LearngeneInfo | None,
        path: str | os.PathLike[str],
        *,
        token: str | None = None,
    ) -> Path:
        """Gets the file of a learngene, from the service or from its owner's hub.

            place = await client.clusterings.assign("wards", subspace)
            path = await client.learngenes.fetch(place.learngene, "gene.safetensors")

        The file gets its name once its size, its digest and its tensors are those of the manifest.

        Args:
            learngene: the manifest, from :meth:`get`, :meth:`list` or an assignment.
            path: where the file goes.
            token: a token for the hub. By default ``HF_TOKEN`` for huggingface.co or
                ``HF_ENDPOINT``, and ``MLFLOW_TRACKING_TOKEN`` for ``MLFLOW_TRACKING_URI``; other
                servers get no token.

        Returns:
            The path.

        Raises:
            LearngeneMismatch: the file differs from its manifest, or is missing, or the hub
                redirects off https. Nothing is written.
            ApiError: ``values_not_kept`` where neither the service nor a hub has the file.
            ConnectionFailed: the hub does not answer.
        """
        self._connection.require_open()
        if learngene is None:
            raise InvalidParameter(
                "there is no learngene to fetch: nothing was published for this cluster",
                field="learngene",
            )
        tensors = learngene.tensors if isinstance(learngene, Learngene) else None
        reference = _reference_of(learngene)
        with PartialFile(path, learngene.digest, learngene.bytes) as partial:
            if learngene.kept or reference is None:
                try:
                    await self._read_file(learngene, partial)
                except (ConflictError, PermissionDeniedError):
                    if reference is None:
                        raise
                    partial.restart()
                    await self._download(reference, partial, token)
            else:
                await self._download(reference, partial, token)
            return await async_offload(partial.finish, tensors)

    async def _read_file(self, learngene: LearngeneInfo, partial: PartialFile) -> None:
        while partial.written < learngene.bytes:
            end = min(learngene.bytes, partial.written + learngenes.PART_BYTES)
            part = learngenes.get_part(learngene, partial.written, end)
            await async_offload(partial.write, await self._connection.run(part))

    async def _download(
        self, reference: Reference, partial: PartialFile, token: str | None
    ) -> None:
        await download(
            reference,
            partial,
            token=token,
            timeout=self._timeout,
            idle_timeout=self._idle_timeout,
        )


def _reference_of(learngene: LearngeneInfo) -> Reference | None:
    """Check and return the reference of a manifest, which another party wrote."""
    if learngene.reference is None:
        return None
    try:
        return reference_from_json(learngene.reference)
    except InvalidParameter as error:
        raise LearngeneMismatch(f"its manifest has no sound reference: {error}") from None
