"""Calls about clusterings, assignments of newcomers, and clustering policies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from modelkin._validation import check_model_name, check_tags
from modelkin.client._protocol.calls import requests
from modelkin.client._protocol.calls.call import Call, read_nothing
from modelkin.client._protocol.calls.decoding import reader
from modelkin.client._protocol.jobs import read_job
from modelkin.client._transport.messages import Request
from modelkin.errors import InvalidName, InvalidParameter
from modelkin.types.clusterings import Assignment, Clustering, ClusteringInfo, ClusteringPolicy
from modelkin.types.jobs import JobInfo
from modelkin.types.paging import Page
from modelkin.wire import JSON

__all__ = [
    "LATEST",
    "AnyClustering",
    "assign",
    "create",
    "delete",
    "delete_policy",
    "get",
    "get_policy",
    "join",
    "list_all",
    "request_json",
    "set_policy",
]

LATEST: Final = "latest"

AnyClustering: TypeAlias = str | ClusteringInfo
"""A clustering, its id, or ``"latest"``."""


def create(
    space: str,
    algorithm: str | None,
    tags: Iterable[str],
    models: Iterable[str] | None,
    parameters: Mapping[str, Any],
) -> Call[JobInfo]:
    """Starts a job that clusters the models of a space."""
    body = request_json(algorithm, tags, models, parameters)
    # A second request finds the job of the first, or at most repeats its work.
    return Call(requests.post_once(f"{requests.space_path(space)}/clusterings", body), read_job)


def list_all(space: str) -> Call[Page[ClusteringInfo]]:
    """Lists the clusterings of a space."""
    request = requests.get(f"{requests.space_path(space)}/clusterings", requests.PAGE_SIZE)
    return Call(request, reader(Page[ClusteringInfo]))


def get(space: str, clustering: AnyClustering, tags: Iterable[str]) -> Call[Clustering]:
    """Reads a clustering."""
    params = requests.tag_params(tags)
    if params and clustering != LATEST:
        raise InvalidParameter(
            "tags select among the latest: leave them out with an id", field="tags"
        )
    return Call(requests.get(_path(space, clustering), params), reader(Clustering))


def assign(
    space: str,
    newcomer: requests.Content,
    clustering: AnyClustering,
    compare: str | None = None,
) -> Call[Assignment]:
    """Assigns a newcomer to a cluster."""
    if not isinstance(newcomer, requests.Content):
        raise requests.wrong_type("newcomer", "a Support, a Signature or a Subspace", newcomer)
    content_type, content = requests.encode(newcomer)
    headers = {"Accept": JSON, "Content-Type": content_type}
    path = f"{_path(space, clustering)}/assign"
    params = list(requests.origin_fields(newcomer).items())
    if compare is not None:
        params.append(("compare", str(compare)))
    request = Request("POST", path, tuple(params), headers, content, idempotent=True)
    return Call(request, reader(Assignment))


def join(space: str, model: str, clustering: AnyClustering) -> Call[Assignment]:
    """Adds a stored model to a cluster."""
    path = f"{_path(space, clustering)}/join"
    return Call(requests.post_once(path, {"model": check_model_name(model)}), reader(Assignment))


def delete(space: str, clustering: AnyClustering) -> Call[None]:
    """Deletes a clustering."""
    return Call(requests.write("DELETE", _path(space, clustering)), read_nothing)


def get_policy(space: str) -> Call[ClusteringPolicy]:
    """Reads the policy of a space."""
    return Call(requests.get(_policy_path(space)), reader(ClusteringPolicy))


def set_policy(
    space: str,
    algorithm: str | None,
    parameters: Mapping[str, Any],
    after_changes: int | None,
    every_seconds: int | None,
    debounce_seconds: int | None,
) -> Call[ClusteringPolicy]:
    """Sets the policy of a space."""
    given = {
        "algorithm": algorithm,
        "parameters": parameters,
        "after_changes": after_changes,
        "every_seconds": every_seconds,
        "debounce_seconds": debounce_seconds,
    }
    body = {name: value for name, value in given.items() if value is not None}
    content = requests.json_bytes(body)
    return Call(requests.write("PUT", _policy_path(space), content, JSON), reader(ClusteringPolicy))


def delete_policy(space: str) -> Call[None]:
    """Deletes the policy of a space."""
    return Call(requests.write("DELETE", _policy_path(space)), read_nothing)


def request_json(
    algorithm: str | None,
    tags: Iterable[str],
    models: Iterable[str] | None,
    parameters: Mapping[str, Any],
) -> dict[str, Any]:
    """The JSON of a request for a clustering."""
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


def _path(space: str, clustering: AnyClustering) -> str:
    known = clustering.id if isinstance(clustering, ClusteringInfo) else clustering
    return f"{requests.space_path(space)}/clusterings/{requests.check_id(known, 'clustering')}"


def _policy_path(space: str) -> str:
    return f"{requests.space_path(space)}/clustering-policy"
