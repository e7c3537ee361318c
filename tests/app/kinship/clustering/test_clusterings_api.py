"""Clusterings over HTTP: requested, made by a job, read, and used to assign new models."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score, silhouette_score

import modelkin
from modelkin import Importance, Support
from modelkin.core.importance import Origin
from tests.support.fixtures import on_one_database
from tests.support.http_space import SIGNATURE, SUPPORT, Space, assert_problem, ok, true_similarity
from tests.support.models.planted_clusters import GROUPS, M, member, named, planted
from tests.support.servers.server_process import Server

SIZES = (12, 10, 8, 6)


@pytest.fixture(scope="module")
def http(working_http: httpx.Client) -> httpx.Client:
    """HTTP to a service that does its own jobs."""
    return working_http


@pytest.fixture(scope="module")
def sdk(working: Server) -> Iterator[modelkin.Client]:
    """The SDK's client for it."""
    with modelkin.Client(working.url) as client:
        yield client


@pytest.fixture
def space(http: httpx.Client) -> Space:
    """An empty space for the planted groups."""
    return Space(http, M)


@pytest.fixture(scope="module")
def kin(http: httpx.Client) -> Space:
    """A space with four groups of models and a clustering; tests do not change it."""
    made = Space(http, M)
    supports, labels = planted(GROUPS)
    models = named(supports)
    tags = {n: {"tags": [f"group-{label}"]} for n, label in zip(models, labels, strict=True)}
    made.put_all(models, tags)
    cluster(made)
    return made


def requested(space: Space, **body: Any) -> httpx.Response:
    """The answer to a request for a clustering."""
    return space.http.post(space.path("clusterings"), json=body)


def ended(space: Space, answer: httpx.Response) -> dict[str, Any]:
    """The job of an answer, once it has ended."""
    assert answer.status_code == 202, answer.text
    assert f"/v1/jobs/{answer.json()['id']}" == answer.headers["Location"]
    for _ in range(600):
        job = ok(space.http.get(answer.headers["Location"]))
        if job["state"] in {"succeeded", "failed", "cancelled"}:
            return job
        time.sleep(0.05)
    raise AssertionError(job)


def cluster(space: Space, **body: Any) -> dict[str, Any]:
    """A new clustering."""
    job = ended(space, requested(space, **body))
    assert job["state"] == "succeeded", job
    return ok(space.http.get(job["result"]["url"]))


def latest(space: Space, **params: Any) -> dict[str, Any]:
    """The newest clustering."""
    return ok(space.http.get(space.path("clusterings/latest"), params=params))


def assign(space: Space, content: bytes, kind: str = SUPPORT, which: str = "latest") -> Any:
    """The assignment of a new model."""
    return space.http.post(
        space.path(f"clusterings/{which}/assign"), content=content, headers={"Content-Type": kind}
    )


def truth(labels: np.ndarray) -> dict[str, int]:
    """The planted group of each model."""
    return {f"org/m{number:03d}": int(label) for number, label in enumerate(labels)}


def agreed(expected: Mapping[str, int], labels: Mapping[str, int]) -> float:
    """The adjusted Rand index of two labellings of the same models."""
    assert expected.keys() == labels.keys()
    return float(adjusted_rand_score([expected[m] for m in labels], list(labels.values())))


def test_a_clustering_is_made_by_a_job(kin: Space) -> None:
    """A request is a 202 with the job, whose result leads to the clustering of the same id."""
    job = ended(kin, requested(kin, algorithm="agglomerative"))
    assert ("clustering", "succeeded", kin.name) == (job["kind"], job["state"], job["space"])
    assert "measuring" == job["progress"]["stage"]
    assert job["progress"]["done"] == job["progress"]["total"] == sum(GROUPS)
    made = ok(kin.http.get(job["result"]["url"]))
    assert job["id"] == made["id"] == job["result"]["clustering"]
    assert {"algorithm": "agglomerative", "seed": 0, "similarity": "auto"} == made["parameters"]
    assert {"n_clusters": 4} == made["chosen"]
    assert kin.show()["version"] == made["version"]


def test_the_groups_are_found(kin: Space) -> None:
    """Labels, sizes, members and exemplars are those of the planted groups, and agree."""
    supports, labels = planted(GROUPS)
    found = latest(kin)
    assert 1.0 == agreed(truth(labels), found["labels"])
    assert (36, 4, 0, "exact") == tuple(
        found[field] for field in ("models", "num_clusters", "noise", "similarity")
    )
    assert list(SIZES) == [c["size"] for c in found["clusters"]]
    by_name = named(supports)
    for each in found["clusters"]:
        members = [m for m, label in found["labels"].items() if label == each["cluster"]]
        assert sorted(members) == each["members"]
        assert len(members) == each["size"]
        central = {
            m: sum(true_similarity(by_name[m], by_name[o]) for o in members) for m in members
        }
        assert max(central.values()) == pytest.approx(central[each["exemplar"]])


def test_the_quality_is_that_of_the_exact_distances(kin: Space) -> None:
    """The silhouette is scikit-learn's on 1 - S of the supports themselves."""
    supports, _ = planted(GROUPS)
    found = latest(kin)
    distances = np.array([[1 - true_similarity(a, b) for b in supports] for a in supports])
    expected = silhouette_score(distances, list(found["labels"].values()), metric="precomputed")
    assert expected == pytest.approx(found["quality"]["silhouette"])
    assert 36 == found["quality"]["models"]
    assert found["quality"]["davies_bouldin"] > 0
    assert found["quality"]["calinski_harabasz"] > 1


@on_one_database
@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["affinity_propagation", "leiden", "hdbscan"])
def test_every_algorithm_finds_them(kin: Space, algorithm: str) -> None:
    """By default each algorithm finds the groups, with the ids of the others."""
    before = latest(kin)
    found = cluster(kin, algorithm=algorithm)
    assert before["labels"] == found["labels"]
    assert (before["id"], 1.0, algorithm) == (
        found["previous"],
        found["agreement"],
        found["algorithm"],
    )


def test_clusterings_are_listed_newest_first(kin: Space) -> None:
    """Pages follow each other down to the first; an item has everything but the models."""
    seen: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        page = ok(kin.http.get(kin.path("clusterings"), params={"limit": 1, **cursor}))
        seen += page["items"]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert len(seen) > 1
    assert list(range(len(seen), 0, -1)) == [item["number"] for item in seen]
    newest = latest(kin)
    assert {k: v for k, v in newest.items() if k not in {"labels", "clusters"}} == seen[0]
    assert newest == ok(kin.http.get(kin.path(f"clusterings/{newest['id']}")))
    wrong = kin.http.get(kin.path("clusterings"), params={"cursor": "bm8"})
    assert_problem(wrong, 422, "invalid_parameter", "cursor")


@pytest.mark.slow
def test_ids_of_clusters_last(space: Space) -> None:
    """Groups that persist keep their ids, and a new group has an id of its own."""
    supports, labels = planted((6, 5, 4))
    by_name = named(supports)
    space.put_all(by_name)
    first = cluster(space)
    assert [0, 1, 2] == [c["cluster"] for c in first["clusters"]]
    assert (1, None, None) == (first["number"], first["previous"], first["agreement"])
    gone = [m for m, label in truth(labels).items() if label == 1]
    for model in gone:
        space.http.delete(space.path("models", model))
    second = cluster(space)
    assert {0, 2} == {c["cluster"] for c in second["clusters"]}
    assert all(first["labels"][m] == label for m, label in second["labels"].items())
    assert (first["id"], 1.0) == (second["previous"], second["agreement"])
    newcomers, _ = planted((7,), seed=99)
    space.put_all({f"new/{number}": support for number, support in enumerate(newcomers)})
    third = cluster(space)
    assert {0, 2, 3} == {c["cluster"] for c in third["clusters"]}
    assert {3} == {third["labels"][f"new/{number}"] for number in range(7)}
    assert all(second["labels"][m] == third["labels"][m] for m in second["labels"])
    assert (
        second["labels"] == ok(space.http.get(space.path(f"clusterings/{second['id']}")))["labels"]
    )


@pytest.mark.slow
def test_a_choice_of_models_has_clusterings_of_its_own(kin: Space) -> None:
    """By tags or names only these are clustered; the latest of all models stays the same."""
    whole = latest(kin)
    tagged = cluster(kin, tags=["group-0"])
    assert (12, {"group-0"}) == (tagged["models"], set(tagged["parameters"]["tags"]))
    assert tagged["previous"] is None
    assert whole["id"] == latest(kin)["id"]
    assert tagged["id"] == latest(kin, tag="group-0")["id"]
    again = cluster(kin, tags=["group-0"], seed=1)
    assert tagged["id"] == again["previous"]
    names = list(whole["labels"])[:5]
    few = cluster(kin, models=[*names, names[0]], algorithm="agglomerative", n_clusters=2)
    assert (names, 2) == (list(few["labels"]), few["num_clusters"])
    assert not {c["cluster"] for c in few["clusters"]} & {c["cluster"] for c in whole["clusters"]}
    nothing = kin.http.get(kin.path("clusterings/latest"), params={"tag": "group-3"})
    assert "tagged group-3" in assert_problem(nothing, 404, "clustering_not_found")


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
def test_few_models_are_clustered(space: Space, count: int) -> None:
    """One and two unrelated models are one cluster, with one exemplar."""
    space.put_all(named(planted((), alone=count)[0]))
    for algorithm in ("affinity_propagation", "hdbscan"):
        found = cluster(space, algorithm=algorithm)
        assert [0] * count == list(found["labels"].values())
        assert {"silhouette", "davies_bouldin", "calinski_harabasz"} == {
            name for name, figure in found["quality"].items() if figure is None
        }


@pytest.mark.slow
def test_signatures_alone_are_clustered(space: Space) -> None:
    """Models without a support are grouped by their estimates, and the answer says so."""
    supports, labels = planted((8, 8))
    for name, support in named(supports).items():
        space.put_signature(name, support.signature())
    found = cluster(space)
    assert ("signature", 1.0) == (found["similarity"], agreed(truth(labels), found["labels"]))
    newcomer = ok(assign(space, supports[0].signature().to_bytes(), SIGNATURE))
    assert found["labels"]["org/m000"] == newcomer["cluster"]
    assert "signature" == newcomer["votes"][0]["estimate"]


def test_newcomers_are_assigned(kin: Space) -> None:
    """A support or a signature of each group is assigned to its kin, and not stored."""
    rng = np.random.default_rng(5)
    supports, labels = planted(GROUPS)
    found, before = latest(kin), kin.show()
    for group in range(4):
        own = [s for s, label in zip(supports, labels, strict=True) if label == group]
        counts = np.bincount(np.concatenate([s.indices for s in own]), minlength=M)
        newcomer = member(rng, np.argsort(-counts, kind="stable")[:300], 0.7)
        expected = found["labels"][f"org/m{np.flatnonzero(labels == group)[0]:03d}"]
        for content, kind in (
            (newcomer.to_bytes(), SUPPORT),
            (newcomer.signature().to_bytes(), SIGNATURE),
        ):
            placed = ok(assign(kin, content, kind, found["id"]))
            assert (expected, found["id"]) == (placed["cluster"], placed["clustering"])
            assert placed["share"] > 0.5
            assert placed["exemplar"] == next(
                c["exemplar"] for c in found["clusters"] if c["cluster"] == expected
            )
            nearest = placed["votes"][0]
            assert (expected, placed["similarity"]) == (nearest["cluster"], nearest["similarity"])
            assert len(placed["votes"]) <= 10
    assert before == kin.show()


def test_a_stranger_is_assigned_nowhere(space: Space) -> None:
    """A model that shares nothing with any other is in no cluster."""
    space.put("a", Support.from_indices([0, 1, 2], M))
    space.put("b", Support.from_indices([0, 1, 3], M))
    cluster(space)
    placed = ok(assign(space, Support.from_indices([7, 8], M).to_bytes()))
    assert (-1, None, None, []) == tuple(
        placed[field] for field in ("cluster", "exemplar", "similarity", "votes")
    )


def test_models_that_came_since_have_no_vote(space: Space) -> None:
    """Neighbours that were not clustered do not hide those that were."""
    supports, _ = planted((5, 5))
    space.put_all(named(supports))
    found = cluster(space)
    # Copies of a newcomer, all nearer than any clustered model.
    space.put_all({f"since/{number:02d}": supports[0] for number in range(30)})
    space.http.delete(space.path("models", "org/m000"))
    placed = ok(assign(space, supports[0].to_bytes()))
    assert found["labels"]["org/m000"] == placed["cluster"]
    assert all(vote["model"].startswith("org/") for vote in placed["votes"])


def test_an_invalid_body_is_not_assigned(kin: Space) -> None:
    """Another M is a 409, another media type a 415, nonsense a 422."""
    assert_problem(assign(kin, Support.from_indices([1], M + 1).to_bytes()), 409, "space_mismatch")
    assert_problem(assign(kin, b"{}", "text/plain"), 415, "unsupported_media_type")
    assert_problem(assign(kin, b"nonsense"), 422, "invalid_support")


def test_a_newcomer_of_another_kind_is_not_assigned(
    http: httpx.Client, sdk: modelkin.Client
) -> None:
    """The client states the kind of its support, and the service compares it before any vote."""
    space = Space(http, M, importance={"kind": "weight"})
    supports, _ = planted((4, 4))
    space.put_all(named(supports))
    cluster(space, algorithm="agglomerative")
    weights, gradients = (
        supports[0].with_origin(Origin(Importance(kind))) for kind in ("weight", "fisher")
    )
    assert sdk.clusterings.assign(space.name, weights).cluster is not None
    with pytest.raises(modelkin.ConflictError) as error:
        sdk.clusterings.assign(space.name, gradients)
    assert "space_mismatch" == error.value.problem_code


@pytest.mark.slow
def test_a_clustering_is_deleted(space: Space) -> None:
    """It is gone, the one before is the latest again, and no id is used twice."""
    space.put_all(named(planted((4, 3))[0]))
    first, second = cluster(space), cluster(space, algorithm="agglomerative", n_clusters=3)
    url = space.path(f"clusterings/{second['id']}")
    assert 204 == space.http.delete(url).status_code
    assert_problem(space.http.get(url), 404, "clustering_not_found")
    assert first["id"] == latest(space)["id"]
    third = cluster(space, algorithm="agglomerative", n_clusters=3)
    assert (3, first["id"]) == (third["number"], third["previous"])
    used = {c["cluster"] for made in (first, second) for c in made["clusters"]}
    assert 1 == len({c["cluster"] for c in third["clusters"]} - used)


def test_a_job_reports_models_deleted_meanwhile(http: httpx.Client) -> None:
    """A model deleted before the job begins is the job's error, with code and reason."""
    space = Space(http, M)
    space.put_all(named(planted((4, 4))[0]))
    slow = requested(space, algorithm="agglomerative", n_clusters=8)
    removed = space.http.delete(space.path("models", "org/m000"))
    assert 204 == removed.status_code
    job = ended(space, slow)
    if job["state"] == "failed":  # unless it had seen them all before
        assert "invalid_parameter" == job["error"]["code"]
        assert "n_clusters is 8, and there are 7 models" == job["error"]["detail"]
    else:
        assert 8 == job["result"]["models"]


def test_the_SDK_clusters(sdk: modelkin.Client, kin: Space) -> None:
    """With the SDK a clustering is one call, and its answers are those of plain HTTP."""
    stages: list[str] = []
    found = sdk.clusterings.create(
        kin.name,
        "agglomerative",
        seed=3,
        on_progress=lambda job: stages.append(job.state),
    )
    assert latest(kin)["labels"] == dict(found.labels)
    assert "succeeded" == stages[-1]
    assert ({"n_clusters": 4}, 3) == (found.chosen, found.parameters["seed"])
    assert found == sdk.clusterings.get(kin.name) == sdk.clusterings.get(kin.name, found.id)
    assert found.id == next(iter(sdk.clusterings.list(kin.name))).id
    frame = found.to_pandas()
    assert ["model", "cluster", "exemplar"] == list(frame.columns)
    assert dict(found.labels) == dict(zip(frame.model, frame.cluster, strict=True))
    support = planted(GROUPS)[0][0]
    placed = sdk.clusterings.assign(kin.name, support, found)
    assert (found.labels["org/m000"], found.id) == (placed.cluster, placed.clustering)
    assert ("org/m000", 1.0) == (placed.votes[0].model, placed.votes[0].similarity)


def test_the_SDK_need_not_wait(sdk: modelkin.Client, kin: Space) -> None:
    """With ``wait=False`` the job is returned; waiting for it raises its failure."""
    job = sdk.clusterings.create(kin.name, wait=False, tags=["group-1", "group-1"])
    assert job.id == sdk.jobs.wait(job, timeout=30).id
    assert 10 == sdk.clusterings.get(kin.name, job.id).models
    sdk.clusterings.delete(kin.name, job.id)
    with pytest.raises(modelkin.ApiError, match="clustering_not_found"):
        sdk.clusterings.get(kin.name, job.id)
    with pytest.raises(modelkin.ApiError, match="is a parameter of agglomerative"):
        sdk.clusterings.create(kin.name, n_clusters=3)
