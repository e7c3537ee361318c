"""Learngenes on the wire: what is sent and read, by both clients, and what is never sent."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import modelkin
from modelkin import HubFile, Learngene, LearngeneInfo
from modelkin.errors import (
    ConflictError,
    ConnectionFailed,
    InvalidLearngene,
    InvalidParameter,
    LearngeneMismatch,
)
from tests.support.models.learngene_files import COMMIT, gene, manifest_of, safetensors_of

DATA = gene()
SAFETENSORS = "application/vnd.safetensors"
PROBLEM = "application/problem+json"
HUB = HubFile(repo="org/start", revision=COMMIT, file="gene.safetensors")


def shown(data: bytes = DATA, **changed: Any) -> dict[str, Any]:
    """A manifest as the service shows it."""
    stated = manifest_of(data)
    return {
        **stated,
        "space": "s",
        "cluster": 3,
        "version": 2,
        "clustering": "c",
        "num_tensors": len(stated["tensors"]),
        "kept": False,
        "members": 5,
        "rounds": None,
        "metrics": {"accuracy": 1},
        "note": None,
        "published_by": None,
        "stale": False,
        "created_at": "2026-05-01T10:00:00Z",
        "etag": '"2-0"',
        **changed,
    }


def answer(status: int = 200, **fields: Any) -> httpx.Response:
    return httpx.Response(status, json=fields)


def part(begin: int, end: int, data: bytes = DATA, tag: str | None = None) -> httpx.Response:
    headers = {"Content-Type": SAFETENSORS, "ETag": tag or f'"{manifest_of(data)["digest"]}"'}
    return httpx.Response(206, content=data[begin:end], headers=headers)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "gene.safetensors"
    path.write_bytes(DATA)
    return path


def test_a_manifest_is_published(wire: Any, file: Path) -> None:
    """What the file is goes out, and where it is; not one of its values."""
    client = wire.client(answer(201, **shown()))
    said: dict[str, Any] = {"members": 5, "metrics": {"accuracy": 0.5}, "note": "n"}
    made = client.learngenes.publish("s", 3, file, reference=HUB, **said, if_match='"1-0"')
    (request,) = wire.requests
    assert ("PUT", "/v1/spaces/s/clusters/3/learngene") == (request.method, request.url.path)
    assert {**manifest_of(DATA), **said} == json.loads(request.content)
    assert '"1-0"' == request.headers["if-match"]
    assert DATA[-48:] not in request.content
    assert isinstance(made, Learngene)
    assert (("conv.weight", "F32", (4, 1, 3, 3)), '"2-0"') == (
        (made.tensors[0].name, made.tensors[0].dtype, made.tensors[0].shape),
        made.etag,
    )


def test_a_file_is_published_where_there_is_no_reference(wire: Any, file: Path) -> None:
    """With what is said of it in the query; a second request follows a manifest with keep."""
    client = wire.client(answer(201, **shown(kept=True, reference=None)))
    client.learngenes.publish("s", "all", file, rounds=2, metrics={"a": 1.5})
    (request,) = wire.requests
    assert ("/v1/spaces/s/clusters/all/learngene", SAFETENSORS, DATA) == (
        request.url.path,
        request.headers["content-type"],
        request.content,
    )
    assert {"rounds": "2", "metrics": '{"a": 1.5}'} == dict(request.url.params)
    client = wire.client(answer(201, **shown()), answer(200, **shown(kept=True)))
    assert client.learngenes.publish("s", 3, file, reference=HUB, keep=True, rounds=2).kept
    manifest, sent = wire.requests[1:]
    assert ("2", '"2-0"', b"") == (
        str(json.loads(manifest.content)["rounds"]),
        sent.headers["if-match"],
        sent.url.query,
    )


def test_manifests_are_read_listed_and_deleted(wire: Any) -> None:
    """Each by its cluster; -1, as an assignment answers, is that of the whole space."""
    client = wire.client(answer(**shown(cluster="all")))
    assert "all" == client.learngenes.get("s", -1, version=2).cluster
    client = wire.client(answer(items=[shown()], next_cursor=None))
    (info,) = client.learngenes.list("s", 3)
    assert isinstance(info, LearngeneInfo)
    client = wire.client(httpx.Response(204))
    client.learngenes.delete("s", 3, version=1)
    assert [
        ("GET", "/v1/spaces/s/clusters/all/learngene", b"version=2"),
        ("GET", "/v1/spaces/s/learngenes", b"limit=100&cluster=3"),
        ("DELETE", "/v1/spaces/s/clusters/3/learngene", b"version=1"),
    ] == [(each.method, each.url.path, each.url.query) for each in wire.requests]


def test_the_newest_version_is_deleted_once(wire: Any) -> None:
    """After a lost answer another version is the newest; of a number it does no harm."""
    lost = httpx.ReadError("closed")
    client = wire.client(lost, httpx.Response(204))
    with pytest.raises(ConnectionFailed):
        client.learngenes.delete("s", 3)
    client = wire.client(lost, httpx.Response(404, json={"code": "learngene_not_found"}))
    client.learngenes.delete("s", 3, version=1)
    assert 3 == len(wire.requests)


def test_a_kept_file_is_read_in_parts(wire: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """Each is of the version that was asked for, and the file is whole before it has a name."""
    monkeypatch.setattr("modelkin.client._protocol.learngenes.PART_BYTES", 100)
    parts = [part(at, min(len(DATA), at + 100)) for at in range(0, len(DATA), 100)]
    client = wire.client(answer(**shown(kept=True, reference=None)), *parts)
    path = tmp_path / "gene"
    assert path == client.learngenes.fetch(client.learngenes.get("s", 3), path)
    assert DATA == path.read_bytes()
    asked = [(each.url.path, each.headers["range"]) for each in wire.requests[1:]]
    assert ("/v1/spaces/s/clusters/3/learngene/file", "bytes=0-99") == asked[0]
    assert f"bytes={100 * (len(parts) - 1)}-{len(DATA) - 1}" == asked[-1][1]


@pytest.mark.parametrize(
    "wrong",
    [
        part(0, len(DATA), tag='"sha256:other"'),
        part(0, len(DATA) - 1),
        part(0, len(DATA), gene(1), tag=f'"{manifest_of(DATA)["digest"]}"'),
    ],
)
def test_another_file_of_the_service_is_not_written(
    wire: Any, tmp_path: Path, wrong: httpx.Response
) -> None:
    """Another version, a part that is too short, and other bytes; nothing is left behind."""
    client = wire.client(answer(**shown(kept=True, reference=None)), wrong)
    manifest = client.learngenes.get("s", 3)
    with pytest.raises(LearngeneMismatch):
        client.learngenes.fetch(manifest, tmp_path / "gene")
    assert [] == list(tmp_path.iterdir())


def test_the_tensors_are_those_of_the_manifest(wire: Any, tmp_path: Path) -> None:
    """A digest that is right for a file that is not what is stated does not help it."""
    bad = safetensors_of({"a": np.array([np.nan], np.float32)})
    for data, stated in ((DATA, {"tensors": manifest_of(gene(a=(1,)))["tensors"]}), (bad, {})):
        manifest = shown(data, kept=True, reference=None, **stated)
        client = wire.client(answer(**manifest), part(0, len(data), data))
        with pytest.raises(LearngeneMismatch, match=r"other tensors|not finite"):
            client.learngenes.fetch(client.learngenes.get("s", 3), tmp_path / "gene")


def test_a_file_that_is_kept_no_more(wire: Any, tmp_path: Path) -> None:
    """Without a reference the refusal of the service is the answer."""
    gone = {"code": "values_not_kept", "title": "Conflict", "detail": "gone", "reference": None}
    refused = httpx.Response(409, json=gone, headers={"Content-Type": PROBLEM})
    client = wire.client(answer(**shown(reference=None)), refused)
    with pytest.raises(ConflictError, match="values_not_kept"):
        client.learngenes.fetch(client.learngenes.get("s", 3), tmp_path / "gene")


def test_references_that_lead_elsewhere_are_not_followed(wire: Any, tmp_path: Path) -> None:
    """A manifest comes from others: what this version would not publish it does not fetch."""
    for reference in ({"kind": "file", "url": "file:///etc/passwd"}, {"kind": "https", "url": "x"}):
        client = wire.client(answer(**shown(reference=reference)))
        with pytest.raises(LearngeneMismatch, match="no sound reference"):
            client.learngenes.fetch(client.learngenes.get("s", 3), tmp_path / "gene")
    with pytest.raises(InvalidParameter, match="nothing was published"):
        client.learngenes.fetch(None, tmp_path / "gene")


def test_wrong_arguments_are_refused_before(wire: Any, file: Path, tmp_path: Path) -> None:
    """Files that cannot be learngenes, and names that cannot be clusters."""
    broken = tmp_path / "broken"
    broken.write_bytes(b"PK\x03\x04 a pickle")
    client = wire.client(answer())
    calls: tuple[Callable[[], Any], ...] = (
        lambda: client.learngenes.publish("s", 3, broken, reference=HUB),
        lambda: client.learngenes.publish("s", 3, file, reference="org/start"),
        lambda: client.learngenes.publish("s", 3, file, keep=False),
        lambda: client.learngenes.publish("s", -2, file, reference=HUB),
        lambda: client.learngenes.publish("s", True, file, reference=HUB),
        lambda: client.learngenes.publish("s", "3", file, reference=HUB),
        lambda: client.learngenes.get("s", 3, version=0),
        lambda: HubFile(repo="org/start", revision="main", file="gene"),
    )
    for refused in calls:
        with pytest.raises((InvalidLearngene, InvalidParameter)):
            refused()
    assert not wire.requests
    with pytest.raises(FileNotFoundError):
        client.learngenes.publish("s", 3, tmp_path / "none", reference=HUB)
    assert modelkin.HubFile is HubFile
