"""Both clients against a real service: every operation, and the same answers from either."""

from __future__ import annotations

import asyncio
import statistics
import uuid
from collections.abc import Callable, Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import modelkin.checkpoints
from modelkin import (
    ApiError,
    AsyncClient,
    Client,
    Layout,
    SignatureSpec,
    Subspace,
    SubspaceSpec,
    Support,
)
from tests.sdk.client.operations import operations
from tests.support.blocking_client import Connect
from tests.support.servers.server_process import Server

LAYOUT = Layout.of([("conv.weight", (40, 50)), ("conv.bias", (50,)), ("head.weight", (79, 50))])
M = LAYOUT.num_parameters
INDICES = np.arange(0, M, 9)
SUPPORTS = {f"org/m{n}": Support.from_indices(INDICES + n // 2, M) for n in range(4)}
ALONE = Support.from_indices(INDICES + 1, M).signature(num_perm=64)
SPEC = SignatureSpec(num_perm=64)
WEIGHTS = modelkin.checkpoints.Weights(f"sha256:{7:064x}", {"w": f"{7:064x}"}, 1, 4 * M, {"F32": M})
AXES = Subspace.of_basis(np.eye(5)[:, :2])

QUESTIONS: dict[str, Callable[[Any, str], Any]] = {
    "space": lambda client, space: client.spaces.get(space),
    "spaces": lambda client, space: [s for s in client.spaces.list() if s.name == space],
    "ensure_space": lambda client, space: client.ensure_space(space, layout=LAYOUT, signature=SPEC),
    "support_size": lambda client, space: client.spaces.support_size(space),
    "report_support_size": lambda client, space: client.spaces.report_support_size(
        space, 7, client="a"
    ),
    "models": lambda client, space: list(client.models.list(space)),
    "models by tag": lambda client, space: list(client.models.list(space, tags=["even"])),
    "model": lambda client, space: client.models.get(space, "org/m1"),
    "weights": lambda client, space: client.models.weights(space, "org/m1"),
    "duplicates": lambda client, space: list(client.models.duplicates(space)),
    "duplicates of a model": lambda client, space: list(client.models.duplicates(space, "org/m1")),
    "get_support": lambda client, space: client.supports.get(space, "org/m1"),
    "get_support of a revision": lambda client, space: client.supports.get(
        space, "org/m1", revision=1
    ),
    "revisions": lambda client, space: client.revisions.list(space, "org/m1"),
    "get_signature": lambda client, space: client.signatures.get(space, "alone"),
    "get_sketch": lambda client, space: client.sketches.get(space, "org/m1"),
    "neighbors": lambda client, space: client.neighbors(space, "org/m1", k=3),
    "neighbors of a support": lambda client, space: client.neighbors(
        space, SUPPORTS["org/m2"], min_similarity=0.5, method="exact", tags=["even"]
    ),
    "neighbors of a signature": lambda client, space: client.neighbors(space, ALONE),
    "donors": lambda client, space: client.donors(space, "org/m1", k=2),
    "donors of a support": lambda client, space: client.donors(space, SUPPORTS["org/m2"]),
    "donors that cover": lambda client, space: client.donors(
        space,
        "org/m1",
        method="cover",
        exclude=["org/m3"],
        min_similarity=0.1,
        weights="similarity",
    ),
    "graph": lambda client, space: client.spaces.graph(space, k=2, tags=["even"]),
    "tensors": lambda client, space: client.spaces.tensors(space),
    "graph as GraphML": lambda client, space: client.spaces.graphml(space, k=2, tags=["even"]),
    "graph from a threshold": lambda client, space: client.spaces.graph(space, threshold=0.2),
    "lineage": lambda client, space: client.lineage(space, "org/m1"),
    "lineages": lambda client, space: list(client.lineages(space)),
    "lineages of a verdict": lambda client, space: list(
        client.lineages(space, verdict=["undeclared", "mismatch"])
    ),
    "lineage totals": lambda client, space: client.lineage_totals(space),
    "overlap": lambda client, space: client.overlap(space, "org/m0", "org/m2"),
    "get_subspace": lambda client, space: client.subspaces.get(f"{space}-data", "one"),
    "space of subspaces": lambda client, space: client.spaces.get(f"{space}-data"),
    "neighbors of a subspace": lambda client, space: client.neighbors(
        f"{space}-data", AXES, compare="whole"
    ),
    "angles": lambda client, space: client.overlap(f"{space}-data", "one", "two", compare="whole"),
    "donors of data": lambda client, space: client.donors(f"{space}-data", "one", compare="whole"),
    "graph of data": lambda client, space: client.spaces.graph(
        f"{space}-data", k=1, compare="whole"
    ),
    "ready": lambda client, space: client.ready(),
}
REFUSALS: dict[str, tuple[Callable[[Any, str], Any], int, str]] = {
    "no space": (lambda client, space: client.spaces.get("nowhere"), 404, "space_not_found"),
    "no model": (lambda client, space: client.models.get(space, "none"), 404, "model_not_found"),
    "another space": (
        lambda client, space: client.ensure_space(space, num_parameters=M),
        409,
        "space_exists",
    ),
    "another M": (
        lambda client, space: client.put_support(space, "x", Support.from_indices([1], 9)),
        409,
        "space_mismatch",
    ),
    "no support": (
        lambda client, space: client.supports.get(space, "alone"),
        409,
        "support_missing",
    ),
    "no sketch": (
        lambda client, space: client.sketches.get(space, "alone"),
        409,
        "sketch_missing",
    ),
    "a support there": (
        lambda client, space: client.put_signature(space, "org/m1", ALONE),
        409,
        "support_exists",
    ),
    "no revision": (
        lambda client, space: client.supports.get(space, "org/m1", revision=9),
        404,
        "revision_not_found",
    ),
    "no model's revisions": (
        lambda client, space: client.revisions.list(space, "none"),
        404,
        "model_not_found",
    ),
    "k": (lambda client, space: client.neighbors(space, "org/m1", k=0), 422, "invalid_parameter"),
    "etag": (
        lambda client, space: client.models.delete(space, "org/m1", if_match='"0"'),
        412,
        "precondition_failed",
    ),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service for the tests of this file."""
    running = Server(tmp_path_factory.mktemp("service")).start()
    yield running
    assert running.stop() == 0, running.log.read_text()


@pytest.fixture(scope="module")
def filled(server: Server) -> str:
    """A space with four supports and a signature, put there by the synchronous client."""
    with Client(server.url) as client:
        fill(client, "filled")
    return "filled"


def fill(client: Any, space: str) -> None:
    client.ensure_space(space, layout=LAYOUT, signature=SPEC)
    for number, (name, support) in enumerate(SUPPORTS.items()):
        client.put_support(space, name, support, tags=["odd" if number % 2 else "even"])
    for name in ("org/m1", "org/m2"):
        client.models.put_weights(space, name, WEIGHTS)
    client.put_signature(space, "alone", ALONE)
    data = f"{space}-data"
    spec = SubspaceSpec(constant=0.0, weighting="flat", compare="whole")
    client.ensure_space(data, kind="subspaces", num_parameters=5, subspaces=spec, features="axes")
    client.subspaces.put(data, "one", AXES, tags=["first"])
    client.put_many(data, [("two", Subspace.of_basis(np.eye(5)[:, 1:3]))])


@pytest.fixture(scope="module")
def many(server: Server) -> list[str]:
    """The names in a space of more models than a page holds, put there all at once."""
    names = [f"m{number:03}" for number in range(101)]

    async def upload() -> None:
        async with AsyncClient(server.url) as client:
            await client.ensure_space("many", num_parameters=M)
            support = SUPPORTS["org/m0"]
            await asyncio.gather(*(client.put_support("many", name, support) for name in names))

    asyncio.run(upload())
    return names


@pytest.fixture
def client(server: Server, connect: Connect) -> Iterator[Any]:
    """Either client, of the service."""
    with connect(server.url) as client:
        yield client


@pytest.fixture
def space() -> str:
    """The name of a space that does not exist yet."""
    return f"s-{uuid.uuid4().hex}"


@pytest.mark.parametrize("connect", [AsyncClient], indirect=True)
@pytest.mark.parametrize("question", QUESTIONS)
def test_answers_are_alike(question: str, client: Any, server: Server, filled: str) -> None:
    """The asynchronous client answers what the synchronous one does, to the last field."""
    with Client(server.url) as other:
        expected = QUESTIONS[question](other, filled)
    assert expected
    assert expected == QUESTIONS[question](client, filled)


@pytest.mark.parametrize("refusal", REFUSALS)
def test_refusals_are_alike(refusal: str, client: Any, filled: str) -> None:
    """A refusal has its status and code in either client, and changes nothing."""
    operation, status, code = REFUSALS[refusal]
    before = client.spaces.get(filled)
    with pytest.raises(ApiError) as caught:
        operation(client, filled)
    assert (status, code) == (caught.value.status, caught.value.problem_code)
    assert caught.value.request_id
    assert before == client.spaces.get(filled)


def test_a_matrix_is_alike(client: Any, filled: str) -> None:
    """The matrix holds the exact similarities in the order asked, and says what it estimated."""
    names = ["org/m3", "alone", "org/m0"]
    matrix = client.similarity(filled, names)
    exact = modelkin.similarity(SUPPORTS["org/m3"], SUPPORTS["org/m0"])
    assert (tuple(names), ("alone",)) == (matrix.models, matrix.estimated)
    assert exact == matrix.to_pandas().loc["org/m0", "org/m3"]


def test_a_space_lives_and_dies(client: Any, space: str) -> None:
    """A space is made with its layout, filled, counted and deleted."""
    assert not client.ensure_space(space, layout=LAYOUT, signature=SPEC).models
    fill(client, space)
    found = client.spaces.get(space)
    assert (LAYOUT, 5, 4, 1) == (found.layout, found.models, found.supports, found.signatures)
    client.spaces.delete(space)
    with pytest.raises(ApiError, match="space_not_found"):
        client.spaces.get(space)


def test_a_model_lives_and_dies(client: Any, space: str) -> None:
    """A model goes from a signature to a support, is described, and is deleted under its etag."""
    client.ensure_space(space, num_parameters=M, signature=SPEC)
    made = client.put_signature(space, "org/a", ALONE, tags=["t"], create_only=True)
    assert "signature" == made.kind
    with pytest.raises(ApiError, match="precondition_failed"):
        client.put_signature(space, "org/a", ALONE, create_only=True)
    support = SUPPORTS["org/m0"]
    stale = client.put_signature(space, "org/a", support.signature(num_perm=64)).etag
    sketched = client.sketches.put(space, "org/a", support.sketch(), if_match=stale)
    assert (("t",), 2) == (sketched.tags, sketched.revision)
    assert support.sketch() == client.sketches.get(space, "org/a")
    with pytest.raises(ApiError, match="precondition_failed"):
        client.sketches.put(space, "org/a", support.sketch(), if_match=stale)
    stored = client.put_support(space, "org/a", support, progress=lambda sent, total: None)
    assert ("support", support.digest, ("t",)) == (stored.kind, stored.digest, stored.tags)
    client.models.update(space, "org/a", attributes={"epochs": 3}, source="hub")
    model = client.models.update(space, "org/a", source=None, base_model="org/base")
    assert ({"epochs": 3}, None, "org/base") == (model.attributes, model.source, model.base_model)
    client.models.delete(space, "org/a", if_match=client.models.get(space, "org/a").etag)
    assert [] == list(client.models.list(space))


def test_pages_are_followed(client: Any, many: list[str]) -> None:
    """A listing of more than a page has every model once, by name, and makes a table."""
    assert many == [model.model for model in client.models.list("many")]
    frame = client.models.list("many").to_pandas()
    assert many == list(frame.model)
    assert {SUPPORTS["org/m0"].digest} == set(frame.digest)


def test_many_models_are_put_alike(client: Any, space: str) -> None:
    """Supports and a signature go in together, and a refused one is reported beside the others."""
    client.ensure_space(space, num_parameters=M, signature=SPEC)
    assert 4 == client.put_many(space, SUPPORTS.items()).created
    summary = client.put_many(space, [("alone", ALONE), ("org/m0", ALONE)])
    assert (1, ["support_exists"]) == (summary.created, [f.code for f in summary.failures])
    assert 5 == client.spaces.get(space).models


def test_clients_come_to_one_size(client: Any, space: str) -> None:
    """Importances are stored at the median of the K* reported so far, one of each model."""
    client.ensure_space(space, num_parameters=M, signature=SPEC, support_size="agreed")
    spread = {"a": 30.0, "b": 10.0, "c": 100.0}
    importances = {
        name: np.exp(-np.arange(M, dtype=np.float32) / scale) for name, scale in spread.items()
    }
    k_stars = [modelkin.select_support(i, coverage=0.8).k for i in importances.values()]
    stored = [
        client.put_importance(space, name, i, coverage=0.8) for name, i in importances.items()
    ]
    expected = [statistics.median_low(k_stars[: n + 1]) for n in range(3)]
    assert expected == [model.support_size for model in stored]
    assert ("agreed", expected[-1], 3) == astuple(client.spaces.support_size(space))
    again = client.put_importance(space, "b", importances["b"], coverage=0.8, tags=["t"])
    assert (expected[-1], ("t",)) == (again.support_size, again.tags)
    best = modelkin.select_support(importances["b"], k=expected[-1])
    assert best == client.supports.get(space, "b")


def test_a_job_lives_and_ends(client: Any, space: str) -> None:
    """A job is started, waited for, found again and listed; cancelling it then is refused."""
    client.ensure_space(space, num_parameters=M, signature=SPEC)
    client.put_signature(space, "alone", ALONE)
    done = client.jobs.wait(client.jobs.create(space, "rebuild_buckets"), timeout=60)
    assert ("succeeded", 1) == (done.state, done.result["models"])
    assert done == client.jobs.get(done.id)
    assert [done] == list(client.jobs.list(space=space, kind="rebuild_buckets"))
    with pytest.raises(ApiError, match="job_finished"):
        client.jobs.cancel(done)


def test_a_damaged_upload_is_not_stored(client: Any, space: str) -> None:
    """An upload that its own progress report ends leaves nothing behind."""
    client.ensure_space(space, num_parameters=10**6)
    indices = np.flatnonzero(np.random.default_rng(3).random(10**6) < 0.2)

    def stop(sent: int, total: int) -> None:
        if sent:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        client.put_support(space, "a", Support.from_indices(indices, 10**6), progress=stop)
    assert [] == list(client.models.list(space))


@pytest.mark.slow
def test_models_are_clustered_alike(client: Any, space: str) -> None:
    """Models are grouped, read, asked about newcomers and forgotten; a policy comes and goes."""
    client.ensure_space(space, layout=LAYOUT, signature=SPEC)
    fill(client, space)
    names = sorted(SUPPORTS)
    made = client.clusterings.create(space, "agglomerative", n_clusters=2, models=names, timeout=60)
    assert dict(zip(names, [0, 0, 1, 1], strict=True)) == made.labels
    assert made == client.clusterings.get(space, made) == client.clusterings.get(space, made.id)
    job = client.clusterings.create(space, wait=False, tags=["even"])
    assert job.id == client.jobs.wait(job, timeout=60).id
    assert ("org/m0", "org/m2") == tuple(client.clusterings.get(space, tags=["even"]).labels)
    assert [job.id, made.id] == [info.id for info in client.clusterings.list(space)]
    placed = client.clusterings.assign(space, SUPPORTS["org/m2"], made)
    assert (1, 1.0, "org/m2") == (placed.cluster, placed.similarity, placed.votes[0].model)
    client.clusterings.delete(space, job.id)
    assert [made.id] == [info.id for info in client.clusterings.list(space)]
    policy = client.clusterings.policy.set(space, "hdbscan", after_changes=9, min_samples=2)
    assert ("hdbscan", 9, 2) == (
        policy.algorithm,
        policy.after_changes,
        policy.parameters["min_samples"],
    )
    assert policy == client.clusterings.policy.get(space)
    client.clusterings.policy.delete(space)
    with pytest.raises(ApiError, match="clustering_not_found"):
        client.clusterings.policy.get(space)
    mistakes: list[Callable[[], object]] = [
        lambda: client.clusterings.get(space, "a/b"),
        lambda: client.clusterings.get(space, made, tags=["even"]),
        lambda: client.clusterings.create(space, models="org/m0"),
        lambda: client.clusterings.assign(space, "org/m0"),
    ]
    for wrong in mistakes:
        with pytest.raises(modelkin.InvalidInput):
            wrong()


@pytest.mark.slow
def test_maps_are_drawn_alike(client: Any, space: str) -> None:
    """A map is awaited or left to its job, printed in few lines, and read as an array."""
    client.ensure_space(space, layout=LAYOUT, signature=SPEC)
    with pytest.raises(ApiError, match="map_not_found"):
        client.maps.get(space)
    fill(client, space)
    drawn = client.maps.create(space, seed=3, timeout=60)
    assert {*SUPPORTS, "alone"} == set(drawn.models)
    assert (len(drawn.models), 2) == drawn.to_numpy().shape
    assert list(drawn.models) == list(drawn.to_pandas().index)
    assert "ModelMap of 5 models" in repr(drawn)
    assert drawn == client.maps.get(space)
    job = client.maps.create(space, wait=False)
    assert job.id == client.jobs.wait(job, timeout=60).id


def test_newcomers_join_alike(client: Any, space: str) -> None:
    """A stored subspace is a member of its cluster from then on."""
    spec = SubspaceSpec(constant=0.0, weighting="flat", compare="whole")
    client.ensure_space(space, kind="subspaces", num_parameters=5, subspaces=spec)
    other = Subspace.of_basis(np.eye(5)[:, 3:])
    client.put_many(space, [("a", AXES), ("b", AXES), ("c", other), ("d", other)])
    made = client.clusterings.create(space, "agglomerative", n_clusters=2, timeout=60)
    client.subspaces.put(space, "e", AXES)
    placed = client.clusterings.join(space, "e")
    assert made.labels["a"] == placed.cluster
    assert pytest.approx(1.0) == placed.margin
    assert {**made.labels, "e": placed.cluster} == client.clusterings.get(space).labels


def test_every_operation_is_asked_here() -> None:
    """No public method is missing from this file, or from that of a resource or of folders."""
    here = Path(__file__)
    folders = here.with_name("test_push_checkpoints.py")
    files = (here, folders, *here.parent.glob("protocol/**/test_*.py"))
    asked = "".join(file.read_text() for file in files)
    methods = operations(Client("http://kin.test")).keys() - {"close"}
    assert {"put_support", "webhooks.replay", "clusterings.policy.set"} <= methods
    assert [] == [name for name in methods if f"client.{name}(" not in asked]
