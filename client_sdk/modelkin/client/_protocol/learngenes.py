"""Calls about learngenes: manifests by cluster and version, and the files that a service keeps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

from modelkin.client._protocol.calls import requests
from modelkin.client._protocol.calls.call import Call, content_of, read_nothing
from modelkin.client._protocol.calls.decoding import reader
from modelkin.client._transport.learngene_files import GeneFile
from modelkin.client._transport.messages import Request, Response
from modelkin.core.learngenes.manifest import ALL
from modelkin.core.learngenes.references import (
    HttpsFile,
    HubFile,
    MlflowFile,
    Reference,
    reference_to_json,
)
from modelkin.errors import InvalidParameter, LearngeneMismatch
from modelkin.types.learngenes import Learngene, LearngeneInfo
from modelkin.types.paging import Page
from modelkin.wire import JSON, SAFETENSORS

__all__ = [
    "PART_BYTES",
    "AnyCluster",
    "delete",
    "details",
    "get",
    "get_part",
    "list_all",
    "put_file",
    "put_manifest",
]

AnyCluster: TypeAlias = int | str
"""The id of a cluster, or ``"all"``; the -1 of an assignment means ``"all"``."""

PART_BYTES: Final = 1 << 24
"""The bytes of a kept file that one request reads, the most that a broken connection costs."""

_MAX_METRICS: Final = 100


def put_manifest(
    space: str,
    cluster: AnyCluster,
    file: GeneFile,
    reference: Reference,
    said: Mapping[str, Any],
    if_match: str | None,
) -> Call[Learngene]:
    """Publishes the place and the description of a file."""
    if not isinstance(reference, HubFile | MlflowFile | HttpsFile):
        raise requests.wrong_type("reference", "a HubFile, MlflowFile or HttpsFile", reference)
    body = {
        "digest": file.digest,
        "bytes": file.size,
        "tensors": [
            {"name": tensor.name, "dtype": tensor.dtype, "shape": list(tensor.shape)}
            for tensor in file.tensors
        ],
        "reference": reference_to_json(reference),
        **said,
    }
    content = requests.json_bytes(body)
    request = requests.write("PUT", _path(space, cluster), content, JSON, if_match=if_match)
    return Call(request, reader(Learngene))


def put_file(
    space: str, cluster: AnyCluster, data: bytes, said: Mapping[str, Any], if_match: str | None
) -> Call[Learngene]:
    """Publishes a file, for the service to keep."""
    params = [
        (name, json.dumps(value) if name == "metrics" else str(value))
        for name, value in said.items()
    ]
    path = _path(space, cluster)
    request = requests.write("PUT", path, data, SAFETENSORS, params, if_match)
    return Call(request, reader(Learngene))


def get(space: str, cluster: AnyCluster, version: int | None) -> Call[Learngene]:
    """Reads a manifest."""
    return Call(requests.get(_path(space, cluster), _version(version)), reader(Learngene))


def list_all(space: str, cluster: AnyCluster | None) -> Call[Page[LearngeneInfo]]:
    """Lists the learngenes of a space, or of one cluster."""
    params = list(requests.PAGE_SIZE)
    if cluster is not None:
        params.append(("cluster", _name_of(cluster)))
    request = requests.get(f"{requests.space_path(space)}/learngenes", params)
    return Call(request, reader(Page[LearngeneInfo]))


def delete(space: str, cluster: AnyCluster, version: int | None) -> Call[None]:
    """Deletes a version."""
    request = requests.write("DELETE", _path(space, cluster), params=_version(version))
    # A second deletion would hit another newest version, so the deletion is sent once.
    return Call(replace(request, idempotent=version is not None), read_nothing)


def get_part(learngene: LearngeneInfo, begin: int, end: int) -> Call[bytes]:
    """Reads some bytes of a kept file."""
    path = f"{_path(learngene.space, learngene.cluster)}/file"
    tag = f'"{learngene.digest}"'
    headers = {"Accept": SAFETENSORS, "Range": f"bytes={begin}-{end - 1}", "If-Range": tag}
    params = _version(learngene.version)
    request = Request("GET", path, params, headers, idempotent=True, most=PART_BYTES)

    def parse(response: Response) -> bytes:
        data = content_of(response, SAFETENSORS)
        if requests.etag_of(response) != tag or len(data) != end - begin:
            raise LearngeneMismatch(
                f"the service answers another file than that of version {learngene.version} of "
                f"the learngene of cluster {learngene.cluster}: read its manifest again"
            )
        return data

    return Call(request, parse)


def details(
    clustering: str | None,
    members: int | None,
    rounds: int | None,
    metrics: Mapping[str, float] | None,
    note: str | None,
) -> dict[str, Any]:
    """The details that a publisher gives of a learngene."""
    said: dict[str, Any] = {
        "clustering": None if clustering is None else requests.check_id(clustering, "clustering"),
        "members": members,
        "rounds": rounds,
        "metrics": None if metrics is None else dict(metrics),
        "note": note,
    }
    if metrics is not None and len(metrics) > _MAX_METRICS:
        raise InvalidParameter(f"metrics has more than {_MAX_METRICS} names", field="metrics")
    return {name: value for name, value in said.items() if value is not None}


def _version(version: int | None) -> tuple[tuple[str, str], ...]:
    if version is None:
        return ()
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise InvalidParameter(f"version must be 1 or more, not {version!r}", field="version")
    return (("version", str(version)),)


def _path(space: str, cluster: AnyCluster) -> str:
    return f"{requests.space_path(space)}/clusters/{_name_of(cluster)}/learngene"


def _name_of(cluster: Any) -> str:
    if cluster in {ALL, -1} and not isinstance(cluster, bool):
        return ALL
    if not isinstance(cluster, int) or isinstance(cluster, bool) or cluster < 0:
        raise InvalidParameter(
            f"cluster must be the id of a cluster or 'all', not {cluster!r}", field="cluster"
        )
    return str(cluster)
