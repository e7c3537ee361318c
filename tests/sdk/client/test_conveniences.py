"""What one call does where several were needed: metadata, filters, matrices and graph files."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import modelkin
from modelkin.client._protocol import search
from modelkin.client._transport.progress import following
from modelkin.errors import InvalidParameter, MissingExtra
from modelkin.types import BulkItem, Graph, GraphEdge, GraphNode, JobInfo, JobProgress
from tests.sdk.test_printing import NOW

M = 10_000
SUPPORTS = [
    modelkin.Support.from_indices(range(start, start + 400), M) for start in (0, 100, 200, 5000)
]
GRAPH = Graph(
    nodes=(
        GraphNode("org/<a>&b", "support", 3, ("x", "y"), None, ("org/base", "org/b")),
        GraphNode("b", "signature", 4, ()),
        GraphNode("alone\x1b", "support", 5, ("z",)),
    ),
    edges=(GraphEdge("b", "org/<a>&b", 0.25, "exact", 0.0, kappa=0.125),),
    k=1,
    version=3,
)
_COUNTER = itertools.count()


@pytest.fixture
def space(client: modelkin.Client) -> str:
    """A new space."""
    name = f"conveniences-{next(_COUNTER)}"
    client.ensure_space(name, num_parameters=M)
    return name


def fill(client: modelkin.Client, space: str) -> None:
    """Store four models with metadata, in one call."""
    names = ["acme/a", "acme/b", "org/c", "org/d"]
    client.put_many(
        space,
        [
            BulkItem(name, support, attributes={"n": n, "even": n % 2 == 0}, base_model="acme/a")
            for n, (name, support) in enumerate(zip(names, SUPPORTS, strict=True))
        ],
    )


def test_a_model_is_stored_with_all_its_metadata(client: modelkin.Client, space: str) -> None:
    """One call stores the content, tags, attributes, source and base; None keeps what is there."""
    given: dict[str, Any] = {"attributes": {"n": 1}, "source": "here", "base_model": "org/base"}
    info = client.put_support(space, "a", SUPPORTS[0], tags=["t"], **given)
    assert info == client.models.get(space, "a")
    assert (("t",), {"n": 1}, "here", "org/base") == (
        info.tags,
        info.attributes,
        info.source,
        info.base_model,
    )
    again = client.put_support(space, "a", SUPPORTS[0], **given)
    assert info.version == again.version
    moved = client.put_support(space, "a", SUPPORTS[1], base_model="org/other")
    assert ({"n": 1}, "here", "org/other") == (moved.attributes, moved.source, moved.base_model)
    importance = np.random.default_rng(0).random(M, np.float32)
    assert "imp" == client.put_importance(space, "b", importance, source="imp").source
    signature = SUPPORTS[0].signature()
    assert {"s": 1} == client.put_signature(space, "c", signature, attributes={"s": 1}).attributes


def test_attributes_are_merged(client: modelkin.Client, space: str) -> None:
    """One attribute changes, one goes, the others stay."""
    client.put_support(space, "a", SUPPORTS[0], attributes={"a": 1, "b": 2, "c": 3})
    changed = client.models.update(space, "a", merge_attributes={"a": 9, "b": None})
    assert {"a": 9, "c": 3} == changed.attributes


def test_listings_are_filtered(client: modelkin.Client, space: str) -> None:
    """Each filter asks the service for what it says."""
    fill(client, space)

    def names(**filters: Any) -> list[str]:
        return [info.model for info in client.models.list(space, **filters)]

    assert ["acme/a", "acme/b"] == names(prefix="acme/")
    assert ["org/c"] == names(text="rg/C")
    assert ["org/d"] == names(attributes={"n": 3})
    assert ["acme/a", "org/c"] == names(attributes={"even": True, "n": None})
    assert 4 == len(names(base_model="acme/a"))
    assert ["org/d", "org/c", "acme/b", "acme/a"] == names(order="newest")
    assert [] == names(prefix="acme/", attributes={"n": 3})


@pytest.mark.parametrize("wanted", [{"a=b": 1}, {"": 1}, {"a": [1]}, {1: 2}])
def test_filters_that_cannot_be_asked_are_refused(client: modelkin.Client, wanted: Any) -> None:
    """The message says what an attribute is filtered by."""
    with pytest.raises(InvalidParameter, match="filter"):
        client.models.list("any", attributes=wanted)


def test_a_matrix_of_all_models_needs_no_names(client: modelkin.Client, space: str) -> None:
    """The models are those of the listing, in both clients."""
    fill(client, space)
    matrix = client.similarity(space)
    assert ("acme/a", "acme/b", "org/c", "org/d") == matrix.models
    assert np.array_equal(client.similarity(space, matrix.models).values, matrix.values)
    assert 0.75 == matrix.values[0, 1]

    async def asked() -> Any:
        async with modelkin.AsyncClient(client.url) as other:
            return await other.similarity(space)

    assert np.array_equal(matrix.values, asyncio.run(asked()).values)


def test_a_matrix_of_too_many_names_the_limit() -> None:
    """A space with more models than a matrix is refused."""
    search.check_matrix_size("s", 1000)
    with pytest.raises(InvalidParameter, match="more than 1,000 models"):
        search.check_matrix_size("s", 1001)


def test_graphs_are_read_by_networkx(tmp_path: Path) -> None:
    """The written file and the graph object have the same nodes, edges and values."""
    path = tmp_path / "kin.graphml"
    document = GRAPH.to_graphml(path)
    assert document == path.read_text()
    read, made = nx.read_graphml(path), GRAPH.to_networkx()
    assert {"org/<a>&b", "b", "alone\\x1b"} == set(read.nodes)
    said = {"support_size": 3, "tags": "x,y", "base_models": "org/base,org/b", "kind": "support"}
    assert said == read.nodes["org/<a>&b"]
    for graph in (read, made):
        edge = graph.edges["b", "org/<a>&b"]
        assert (0.25, 0.125, "exact") == tuple(
            edge[key] for key in ("similarity", "kappa", "estimate")
        )
    assert ["x", "y"] == made.nodes["org/<a>&b"]["tags"]
    assert (1, False) == (read.graph["k"], read.graph["truncated"])


def test_missing_networkx_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """GraphML needs no library, and the object says what brings it."""
    monkeypatch.setitem(__import__("sys").modules, "networkx", None)
    assert "<graphml" in GRAPH.to_graphml()
    with pytest.raises(MissingExtra, match=r"modelkin\[networkx\]"):
        GRAPH.to_networkx()


def test_a_job_is_drawn_while_it_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bar on a terminal, wiped in the end; the caller's function is called as well."""
    monkeypatch.setattr("modelkin.client._transport.progress.is_terminal", lambda: True)
    seen: list[str] = []
    running = JobInfo(
        id="1",
        kind="clustering",
        state="running",
        parameters={},
        progress=JobProgress(1, 4, "comparing"),
        attempts=1,
        cancelling=False,
        created_at=NOW,
    )
    with following(True, "wards", lambda job: seen.append(job.state)) as report:
        assert report is not None
        report(running)
    drawn = capsys.readouterr().err
    assert "wards" in drawn
    assert "25% comparing" in drawn
    assert drawn.endswith("\r\x1b[K")
    assert ["running"] == seen


def test_nothing_is_drawn_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """A file gets no bar, and the caller's function is called itself."""
    with following(True, "wards", print) as report:
        assert report is print
    assert "" == capsys.readouterr().err


@pytest.mark.parametrize("wrong", [[1], "epochs=3", {1: 2}])
def test_attributes_are_values_by_name(client: modelkin.Client, space: str, wrong: Any) -> None:
    """Others are refused before the support is stored."""
    support = modelkin.Support.from_indices([1, 2], client.spaces.get(space).num_parameters)
    with pytest.raises(modelkin.InvalidInput, match="attributes is a dictionary of JSON values"):
        client.put_support(space, "wrong", support, attributes=wrong)
    assert "wrong" not in [each.model for each in client.models.list(space)]
