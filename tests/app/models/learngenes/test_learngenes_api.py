"""Learngenes over HTTP, on both databases: versions of clusters, manifests and kept files."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from modelkin import Support
from tests.app.models.learngenes.conftest import M, cluster
from tests.support.fixtures import on_one_database
from tests.support.http_space import Space, assert_problem, ok
from tests.support.models.learngene_files import REFERENCE, gene, manifest_of

SAFETENSORS = "application/vnd.safetensors"


def path(space: Space, of: int | str = 0, tail: str = "") -> str:
    return f"{space.path('clusters')}/{of}/learngene{tail}"


def publish(space: Space, data: bytes, of: int | str = 0, **more: Any) -> httpx.Response:
    return space.http.put(path(space, of), json=manifest_of(data, **more))


def send(space: Space, data: bytes, of: int | str = 0, **query: Any) -> httpx.Response:
    headers = {"Content-Type": SAFETENSORS}
    return space.http.put(path(space, of), content=data, headers=headers, params=query)


def test_a_manifest_is_published_and_read(clustered: Space) -> None:
    """What was stated comes back, with a version, the clustering and the digest's reference."""
    data = gene()
    said: dict[str, Any] = {"members": 5, "rounds": 20, "metrics": {"accuracy": 0.9, "n": 3}}
    made = publish(clustered, data, note="of July", **said)
    assert 201 == made.status_code, made.text
    shown = ok(clustered.http.get(path(clustered)))
    assert made.json() == shown
    stated = manifest_of(data, note="of July", **said)
    assert stated == {name: shown[name] for name in stated}
    latest = ok(clustered.http.get(clustered.path("clusterings") + "/latest"))
    assert (clustered.name, 0, 1, latest["id"]) == tuple(
        shown[name] for name in ("space", "cluster", "version", "clustering")
    )
    assert (False, False, 2) == (shown["kept"], shown["stale"], shown["num_tensors"])
    assert made.headers["etag"] == shown["etag"]


def test_versions_count_on(clustered: Space) -> None:
    """The newest is read by default, each by its number; a deleted number is not used again."""
    for seed in range(3):
        assert seed + 1 == publish(clustered, gene(seed)).json()["version"]
    assert 3 == ok(clustered.http.get(path(clustered)))["version"]
    assert (
        manifest_of(gene(0))["digest"]
        == ok(clustered.http.get(path(clustered), params={"version": 1}))["digest"]
    )
    assert 204 == clustered.http.delete(path(clustered)).status_code
    assert 2 == ok(clustered.http.get(path(clustered)))["version"]
    gone = clustered.http.get(path(clustered), params={"version": 3})
    assert_problem(gone, 404, "learngene_not_found")
    assert 204 == clustered.http.delete(path(clustered), params={"version": 1}).status_code
    assert 4 == publish(clustered, gene(3)).json()["version"]


def test_the_same_content_again_changes_nothing(clustered: Space) -> None:
    """A repeated publication answers 200; an older content is a new version."""
    first = publish(clustered, gene(1))
    again = publish(clustered, gene(1), note="again")
    assert (201, 200) == (first.status_code, again.status_code)
    assert first.json() == again.json()
    publish(clustered, gene(2))
    assert (201, 3) == ((back := publish(clustered, gene(1))).status_code, back.json()["version"])


def test_clusters_have_versions_of_their_own(clustered: Space) -> None:
    """Two clusters and the whole space count apart, and are listed newest first."""
    for of in (0, 1, "all", 0):
        number = len(ok(clustered.http.get(clustered.path("learngenes")))["items"])
        assert 201 == publish(clustered, gene(number), of).status_code
    listed = ok(clustered.http.get(clustered.path("learngenes")))["items"]
    assert [(0, 2), ("all", 1), (1, 1), (0, 1)] == [(i["cluster"], i["version"]) for i in listed]
    assert "tensors" not in listed[0]
    whole = ok(clustered.http.get(path(clustered, "all")))
    assert (None, "all") == (whole["clustering"], whole["cluster"])
    one = ok(clustered.http.get(clustered.path("learngenes"), params={"cluster": 0, "limit": 1}))
    more = {"cluster": 0, "limit": 1, "cursor": one["next_cursor"]}
    two = ok(clustered.http.get(clustered.path("learngenes"), params=more))
    assert [2, 1, None] == [
        *(i["version"] for i in one["items"] + two["items"]),
        two["next_cursor"],
    ]


def test_a_file_is_kept_byte_for_byte(clustered: Space) -> None:
    """It is published with what the query says, and read back whole and in parts."""
    data = gene()
    made = send(clustered, data, members=3, rounds=1, metrics='{"accuracy": 0.5}', note="n")
    assert 201 == made.status_code, made.text
    shown = made.json()
    assert (True, None, {"accuracy": 0.5}) == (shown["kept"], shown["reference"], shown["metrics"])
    assert manifest_of(data)["tensors"] == shown["tensors"]
    file = clustered.http.get(path(clustered, tail="/file"))
    assert data == file.content
    assert (f'"{shown["digest"]}"', SAFETENSORS) == (
        file.headers["etag"],
        file.headers["content-type"],
    )
    assert "bytes" == file.headers["accept-ranges"]


@on_one_database
@pytest.mark.parametrize(
    ("asked", "begin", "end"),
    [
        ("bytes=0-9", 0, 10),
        ("bytes=10-", 10, None),
        ("bytes=-7", -7, None),
        ("bytes=3-99999", 3, None),
    ],
)
def test_a_part_of_a_file(clustered: Space, asked: str, begin: int, end: int | None) -> None:
    """A range is answered as 206, with where it lies."""
    data = gene()
    send(clustered, data).raise_for_status()
    part = clustered.http.get(path(clustered, tail="/file"), headers={"Range": asked})
    assert (206, data[begin:end]) == (part.status_code, part.content)
    first = len(data) + begin if begin < 0 else begin
    assert (
        f"bytes {first}-{first + len(part.content) - 1}/{len(data)}"
        == part.headers["content-range"]
    )


@on_one_database
@pytest.mark.parametrize(
    "headers",
    [
        {"Range": "bytes=0-1,5-6"},
        {"Range": "items=0-1"},
        {"Range": "bytes=5-2"},
        {"Range": "bytes=0-9", "If-Range": '"another"'},
    ],
)
def test_ranges_that_are_ignored(clustered: Space, headers: dict[str, str]) -> None:
    """Several parts, other units and another file's are answered whole."""
    send(clustered, gene()).raise_for_status()
    whole = clustered.http.get(path(clustered, tail="/file"), headers=headers)
    assert (200, gene()) == (whole.status_code, whole.content)


def test_a_range_beyond_the_end(clustered: Space) -> None:
    """It is refused with the length of the file."""
    send(clustered, gene()).raise_for_status()
    headers = {"Range": "bytes=100000-"}
    refused = clustered.http.get(path(clustered, tail="/file"), headers=headers)
    assert_problem(refused, 416, "range_not_satisfiable")
    assert f"bytes */{len(gene())}" == refused.headers["content-range"]


def test_a_file_for_a_manifest(clustered: Space) -> None:
    """The file of the newest manifest is kept as the same version, which keeps its reference."""
    first = publish(clustered, gene(), members=4)
    again = send(clustered, gene())
    assert (200, 1, True) == (again.status_code, again.json()["version"], again.json()["kept"])
    assert {**first.json(), "kept": True} == again.json()
    assert gene() == clustered.http.get(path(clustered, tail="/file")).content
    assert 200 == send(clustered, gene()).status_code


def test_a_manifest_alone_has_no_file(clustered: Space) -> None:
    """The refusal names where the owner has it."""
    publish(clustered, gene()).raise_for_status()
    refused = clustered.http.get(path(clustered, tail="/file"))
    assert "https://huggingface.co/org/start/resolve/" in assert_problem(
        refused, 409, "values_not_kept"
    )
    assert REFERENCE == refused.json()["reference"]


def test_the_files_of_the_newest_versions_are_kept(clustered: Space) -> None:
    """Older ones keep their manifests, and other clusters their files."""
    send(clustered, gene(9), 1).raise_for_status()
    for seed in range(4):
        send(clustered, gene(seed)).raise_for_status()
    listed = ok(clustered.http.get(clustered.path("learngenes"), params={"cluster": 0}))["items"]
    assert [(4, True), (3, True), (2, False), (1, False)] == [
        (item["version"], item["kept"]) for item in listed
    ]
    old = clustered.http.get(path(clustered, tail="/file"), params={"version": 2})
    assert "not kept any more" in assert_problem(old, 409, "values_not_kept")
    assert None is old.json()["reference"]
    assert gene(9) == clustered.http.get(path(clustered, 1, "/file")).content


def test_a_condition_on_the_newest_version(clustered: Space) -> None:
    """If-Match publishes only after the version that the publisher has seen."""
    at = path(clustered)
    early = clustered.http.put(at, json=manifest_of(gene(1)), headers={"If-Match": "*"})
    assert_problem(early, 412, "precondition_failed")
    seen = publish(clustered, gene(1)).headers["etag"]
    second = clustered.http.put(at, json=manifest_of(gene(2)), headers={"If-Match": seen})
    assert 201 == second.status_code
    late = clustered.http.put(at, json=manifest_of(gene(3)), headers={"If-Match": seen})
    assert_problem(late, 412, "precondition_failed")


def test_what_the_newest_clustering_lacks_is_stale(clustered: Space) -> None:
    """A cluster that is gone keeps its learngenes, which say so; that of the space never does."""
    before = ok(clustered.http.get(clustered.path("clusterings") + "/latest"))["id"]
    publish(clustered, gene(1), 0).raise_for_status()
    publish(clustered, gene(2), "all").raise_for_status()
    for name in ("near0", "near1", "near2", "far0", "far1", "far2"):
        clustered.http.delete(clustered.path("models", name)).raise_for_status()
    for at in range(3):
        clustered.put(f"new{at}", Support.from_indices(range(at, M, 3), M))
    after = cluster(clustered)
    assert ok(clustered.http.get(path(clustered)))["stale"]
    assert not ok(clustered.http.get(path(clustered, "all")))["stale"]
    assert_problem(publish(clustered, gene(3), 0), 404, "cluster_not_found")
    assert 201 == publish(clustered, gene(3), 0, clustering=before).status_code
    labels = ok(clustered.http.get(f"{clustered.path('clusterings')}/{after}"))["labels"]
    assert 201 == publish(clustered, gene(4), labels["new0"]).status_code


def test_a_space_without_clusters_has_the_one_of_all(keeper: httpx.Client) -> None:
    """Of an id there is nothing yet, and the error says what to do."""
    space = Space(keeper, M)
    assert "POST" in assert_problem(publish(space, gene(), 0), 404, "cluster_not_found")
    assert 201 == publish(space, gene(), "all").status_code


def test_deleting_a_space_deletes_its_learngenes(clustered: Space) -> None:
    """A new space of the name has none."""
    send(clustered, gene(), "all").raise_for_status()
    clustered.http.delete(f"/v1/spaces/{clustered.name}").raise_for_status()
    body = {"name": clustered.name, "num_parameters": M}
    clustered.http.post("/v1/spaces", json=body).raise_for_status()
    assert [] == ok(clustered.http.get(clustered.path("learngenes")))["items"]
