"""The requests about clusterings, and how their answers are read: both clients send the same.

Whatever a caller gives wrongly is an error here, before anything is sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from modelkin._validation import check_model_name, check_tags
from modelkin.client._protocol import decoding, requests
from modelkin.client._protocol.decoding import Fields
from modelkin.client._protocol.jobs import read_job
from modelkin.client._protocol.spaces import Call
from modelkin.client._transport.errors import parse_json
from modelkin.client._transport.messages import Request, Response
from modelkin.core.sketching.signature import Signature
from modelkin.core.support import Support
from modelkin.errors import InvalidName, InvalidParameter
from modelkin.types.clusterings import (
    Assignment,
    Cluster,
    Clustering,
    ClusteringInfo,
    ClusteringPolicy,
    ClusterQuality,
    Vote,
)
from modelkin.types.jobs import JobInfo
from modelkin.types.paging import Page
from modelkin.wire import JSON

__all__ = [
    "LATEST",
    "Which",
    "asked",
    "assign",
    "create",
    "delete",
    "delete_policy",
    "list_all",
    "policy",
    "set_policy",
    "show",
]

LATEST = "latest"

_ID = re.compile(r"[0-9A-Za-z-]{1,64}")

Which = str | ClusteringInfo
"""A clustering, by what is known of it, its id or ``"latest"``."""


def create(
    space: str,
    algorithm: str | None,
    tags: Iterable[str],
    models: Iterable[str] | None,
    parameters: Mapping[str, Any],
) -> Call[JobInfo]:
    body = asked(algorithm, tags, models, parameters)
    # Sent twice it is still one job, or at most done over.
    return Call(requests.post(f"{requests.space_path(space)}/clusterings", body), read_job)


def list_all(space: str) -> Call[Page[ClusteringInfo]]:
    request = requests.get(f"{requests.space_path(space)}/clusterings", [("limit", "100")])
    return Call(request, lambda r: decoding.read_page(_fields(r), _read_info))


def show(space: str, clustering: Which, tags: Iterable[str]) -> Call[Clustering]:
    params = requests.tag_params(tags)
    if params and clustering != LATEST:
        raise InvalidParameter("tags choose among the latest: give no id with them", field="tags")
    return Call(requests.get(_path(space, clustering), params), _read_clustering)


def assign(space: str, newcomer: Support | Signature, clustering: Which) -> Call[Assignment]:
    if not isinstance(newcomer, Support | Signature):
        raise requests.wrong_type("newcomer", "a Support or a Signature", newcomer)
    content_type, content = requests.encoded(newcomer)
    headers = {"Accept": JSON, "Content-Type": content_type}
    path = f"{_path(space, clustering)}/assign"
    request = Request("POST", path, (), headers, content, idempotent=True)
    return Call(request, lambda r: _read_assignment(_fields(r)))


def delete(space: str, clustering: Which) -> Call[None]:
    return Call(requests.write("DELETE", _path(space, clustering)), lambda _: None)


def policy(space: str) -> Call[ClusteringPolicy]:
    return Call(requests.get(_policy_path(space)), _read_policy)


def set_policy(
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
    content = requests.json_bytes(body)
    return Call(requests.write("PUT", _policy_path(space), content, JSON), _read_policy)


def delete_policy(space: str) -> Call[None]:
    return Call(requests.write("DELETE", _policy_path(space)), lambda _: None)


def asked(
    algorithm: str | None,
    tags: Iterable[str],
    models: Iterable[str] | None,
    parameters: Mapping[str, Any],
) -> dict[str, Any]:
    """What a request asks for, as its JSON."""
    body = dict(parameters)
    if algorithm is not None:
        body["algorithm"] = algorithm
    if chosen := check_tags(tags):
        body["tags"] = list(chosen)
    if models is not None:
        if isinstance(models, str):
            raise InvalidName("models is one string; give a list of model names", field="models")
        body["models"] = [
            check_model_name(name, field=f"models[{position}]")
            for position, name in enumerate(models)
        ]
    return body


def _path(space: str, clustering: Which) -> str:
    clustering_id = clustering.id if isinstance(clustering, ClusteringInfo) else clustering
    if not isinstance(clustering_id, str) or not _ID.fullmatch(clustering_id):
        raise InvalidParameter(f"{clustering_id!r} is no clustering's id", field="clustering")
    return f"{requests.space_path(space)}/clusterings/{clustering_id}"


def _policy_path(space: str) -> str:
    return f"{requests.space_path(space)}/clustering-policy"


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
