"""The calls about clusterings: asking for one, reading them, placing newcomers, and the policy.

What is sent and how answers are read is decided here once for both clients.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, overload

from modelkin.client import _answers, _requests
from modelkin.client._answers import Fields
from modelkin.client._jobs import AsyncJobCalls, JobCalls, Told, read_job
from modelkin.client._listings import AsyncListing, Listing
from modelkin.client._messages import Request, Response, parse_json
from modelkin.client._protocol import Call
from modelkin.clusters import (
    Assignment,
    Cluster,
    Clustering,
    ClusteringInfo,
    ClusteringPolicy,
    ClusterQuality,
    Vote,
)
from modelkin.core.signature import Signature
from modelkin.core.support import Support
from modelkin.errors import InvalidName, InvalidParameter
from modelkin.jobs import JobInfo
from modelkin.names import check_model_name, check_tags
from modelkin.types import Page
from modelkin.wire import JSON

__all__ = ["AsyncClusteringCalls", "ClusteringCalls"]

LATEST = "latest"

_ID = re.compile(r"[0-9A-Za-z-]{1,64}")

Which = str | ClusteringInfo
"""A clustering, by what is known of it, its id or ``"latest"``."""


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
        on_progress: Told | None = None,
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
        on_progress: Told | None = None,
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
        job = self._run(_create(space, algorithm, tags, models, parameters))
        if not wait:
            return job
        done = self.wait_for_job(job, timeout=timeout, on_progress=on_progress)
        return self._run(_show(space, done.id, ()))

    def clusterings(self, space: str) -> Listing[ClusteringInfo]:
        """The clusterings of a space, newest first, without who is in which cluster."""
        return Listing(self._rows(_list(space)), ClusteringInfo)

    def clustering(
        self, space: str, clustering: Which = LATEST, *, tags: Iterable[str] = ()
    ) -> Clustering:
        """A clustering with its clusters; ``clustering_not_found`` where there is none.

        Args:
            space: whose models were clustered.
            clustering: its id, or ``"latest"`` for the newest one of all models.
            tags: with ``"latest"``: of the models that carry all of these instead.
        """
        return self._run(_show(space, clustering, tags))

    def assign(
        self, space: str, newcomer: Support | Signature, clustering: Which = LATEST
    ) -> Assignment:
        """The cluster that a support or signature would be in, which is not stored.

        Args:
            space: whose models were clustered.
            newcomer: whose cluster is sought.
            clustering: as for :meth:`clustering`.
        """
        return self._run(_assign(space, newcomer, clustering))

    def delete_clustering(self, space: str, clustering: str | ClusteringInfo) -> None:
        """Deletes a clustering; the models stay as they are."""
        self._run(_delete(space, clustering))

    def clustering_policy(self, space: str) -> ClusteringPolicy:
        """When the space is clustered by itself; ``clustering_not_found`` where it is not."""
        return self._run(_policy(space))

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
        asked = _asked(None, tags, models, parameters)
        times = (after_changes, every_seconds, debounce_seconds)
        return self._run(_set_policy(space, algorithm, asked, *times))

    def delete_clustering_policy(self, space: str) -> None:
        """Has the space clustered by request alone."""
        self._run(_delete_policy(space))


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
        on_progress: Told | None = None,
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
        on_progress: Told | None = None,
        tags: Iterable[str] = (),
        models: Iterable[str] | None = None,
        **parameters: Any,
    ) -> Clustering | JobInfo:
        """Groups models by kinship; each algorithm finds out how many groups there are."""
        job = await self._run(_create(space, algorithm, tags, models, parameters))
        if not wait:
            return job
        done = await self.wait_for_job(job, timeout=timeout, on_progress=on_progress)
        return await self._run(_show(space, done.id, ()))

    def clusterings(self, space: str) -> AsyncListing[ClusteringInfo]:
        """The clusterings of a space, newest first, without who is in which cluster."""
        return AsyncListing(self._rows(_list(space)), ClusteringInfo)

    async def clustering(
        self, space: str, clustering: Which = LATEST, *, tags: Iterable[str] = ()
    ) -> Clustering:
        """A clustering with its clusters; ``clustering_not_found`` where there is none."""
        return await self._run(_show(space, clustering, tags))

    async def assign(
        self, space: str, newcomer: Support | Signature, clustering: Which = LATEST
    ) -> Assignment:
        """The cluster that a support or signature would be in, which is not stored."""
        return await self._run(_assign(space, newcomer, clustering))

    async def delete_clustering(self, space: str, clustering: str | ClusteringInfo) -> None:
        """Deletes a clustering; the models stay as they are."""
        await self._run(_delete(space, clustering))

    async def clustering_policy(self, space: str) -> ClusteringPolicy:
        """When the space is clustered by itself; ``clustering_not_found`` where it is not."""
        return await self._run(_policy(space))

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
        asked = _asked(None, tags, models, parameters)
        times = (after_changes, every_seconds, debounce_seconds)
        return await self._run(_set_policy(space, algorithm, asked, *times))

    async def delete_clustering_policy(self, space: str) -> None:
        """Has the space clustered by request alone."""
        await self._run(_delete_policy(space))


# --- what is sent -----------------------------------------------------------------------------


def _create(
    space: str,
    algorithm: str | None,
    tags: Iterable[str],
    models: Iterable[str] | None,
    parameters: Mapping[str, Any],
) -> Call[JobInfo]:
    asked = _asked(algorithm, tags, models, parameters)
    # Sent twice it is still one job, or at most done over.
    return Call(_requests.post(f"{_requests.space_path(space)}/clusterings", asked), read_job)


def _list(space: str) -> Call[Page[ClusteringInfo]]:
    request = _requests.get(f"{_requests.space_path(space)}/clusterings", [("limit", "100")])
    return Call(request, lambda r: _answers.read_page(_fields(r), _read_info))


def _show(space: str, clustering: Which, tags: Iterable[str]) -> Call[Clustering]:
    asked = _requests.tag_params(tags)
    if asked and clustering != LATEST:
        raise InvalidParameter("tags choose among the latest: give no id with them", field="tags")
    return Call(_requests.get(_path(space, clustering), asked), _read_clustering)


def _assign(space: str, newcomer: Support | Signature, clustering: Which) -> Call[Assignment]:
    if not isinstance(newcomer, Support | Signature):
        raise _requests.wrong_type("newcomer", "a Support or a Signature", newcomer)
    content_type, content = _requests.encoded(newcomer)
    headers = {"Accept": JSON, "Content-Type": content_type}
    path = f"{_path(space, clustering)}/assign"
    request = Request("POST", path, (), headers, content, idempotent=True)
    return Call(request, lambda r: _read_assignment(_fields(r)))


def _delete(space: str, clustering: Which) -> Call[None]:
    return Call(_requests.write("DELETE", _path(space, clustering)), lambda _: None)


def _policy(space: str) -> Call[ClusteringPolicy]:
    return Call(_requests.get(_policy_path(space)), _read_policy)


def _set_policy(
    space: str,
    algorithm: str | None,
    parameters: Mapping[str, Any],
    after_changes: int | None,
    every_seconds: int | None,
    debounce_seconds: int | None,
) -> Call[ClusteringPolicy]:
    given = {
        "algorithm": algorithm,
        "parameters": parameters,
        "after_changes": after_changes,
        "every_seconds": every_seconds,
        "debounce_seconds": debounce_seconds,
    }
    body = {name: value for name, value in given.items() if value is not None}
    content = _requests.json_bytes(body)
    return Call(_requests.write("PUT", _policy_path(space), content, JSON), _read_policy)


def _delete_policy(space: str) -> Call[None]:
    return Call(_requests.write("DELETE", _policy_path(space)), lambda _: None)


def _asked(
    algorithm: str | None,
    tags: Iterable[str],
    models: Iterable[str] | None,
    parameters: Mapping[str, Any],
) -> dict[str, Any]:
    asked = dict(parameters)
    if algorithm is not None:
        asked["algorithm"] = algorithm
    if chosen := check_tags(tags):
        asked["tags"] = list(chosen)
    if models is not None:
        if isinstance(models, str):
            raise InvalidName("models is one string; give a list of model names", field="models")
        asked["models"] = [
            check_model_name(name, field=f"models[{position}]")
            for position, name in enumerate(models)
        ]
    return asked


def _path(space: str, clustering: Which) -> str:
    clustering_id = clustering.id if isinstance(clustering, ClusteringInfo) else clustering
    if not isinstance(clustering_id, str) or not _ID.fullmatch(clustering_id):
        raise InvalidParameter(f"{clustering_id!r} is no clustering's id", field="clustering")
    return f"{_requests.space_path(space)}/clusterings/{clustering_id}"


def _policy_path(space: str) -> str:
    return f"{_requests.space_path(space)}/clustering-policy"


# --- what is answered -------------------------------------------------------------------------


def _fields(response: Response) -> Fields:
    return Fields(parse_json(response))


def _read_info(body: Fields) -> ClusteringInfo:
    return ClusteringInfo(**_info(body))


def _read_clustering(response: Response) -> Clustering:
    body = _fields(response)
    labels = body.inner("labels")
    return Clustering(
        **_info(body),
        labels={model: labels.integer(model) for model in body.mapping("labels")},
        clusters=body.rows("clusters", _read_cluster),
    )


def _info(body: Fields) -> dict[str, Any]:
    return {
        "id": body.text("id"),
        "space": body.text("space"),
        "number": body.integer("number"),
        "algorithm": body.text("algorithm"),
        "parameters": body.mapping("parameters"),
        "chosen": body.mapping("chosen"),
        "version": body.integer("version"),
        "similarity": body.text("similarity"),
        "models": body.integer("models"),
        "num_clusters": body.integer("num_clusters"),
        "noise": body.integer("noise"),
        "quality": _read_quality(body.inner("quality")),
        "previous": body.optional("previous", body.text),
        "agreement": body.optional("agreement", body.number),
        "seconds": body.number("seconds"),
        "created_at": body.moment("created_at"),
    }


def _read_quality(body: Fields) -> ClusterQuality:
    return ClusterQuality(
        silhouette=body.optional("silhouette", body.number),
        davies_bouldin=body.optional("davies_bouldin", body.number),
        calinski_harabasz=body.optional("calinski_harabasz", body.number),
        models=body.integer("models"),
    )


def _read_cluster(body: Fields) -> Cluster:
    return Cluster(
        cluster=body.integer("cluster"),
        size=body.integer("size"),
        exemplar=body.text("exemplar"),
        members=body.texts("members"),
    )


def _read_assignment(body: Fields) -> Assignment:
    return Assignment(
        clustering=body.text("clustering"),
        cluster=body.integer("cluster"),
        exemplar=body.optional("exemplar", body.text),
        share=body.number("share"),
        similarity=body.number("similarity"),
        votes=body.rows("votes", _read_vote),
    )


def _read_vote(body: Fields) -> Vote:
    return Vote(
        model=body.text("model"),
        similarity=body.number("similarity"),
        estimate=body.text("estimate"),
        standard_error=body.number("standard_error"),
        cluster=body.integer("cluster"),
    )


def _read_policy(response: Response) -> ClusteringPolicy:
    body = _fields(response)
    return ClusteringPolicy(
        algorithm=body.optional("algorithm", body.text),
        parameters=body.mapping("parameters"),
        after_changes=body.optional("after_changes", body.integer),
        every_seconds=body.optional("every_seconds", body.integer),
        debounce_seconds=body.integer("debounce_seconds"),
        pending_changes=body.integer("pending_changes"),
        last_at=body.optional("last_at", body.moment),
    )
