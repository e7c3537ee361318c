"""Subspaces and learngenes of a federation in a service, for newcomers outside of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context

import modelkin
from modelkin.integrations.flower import ClusteredStrategy, DataMod, LearngeneStrategy
from tests.sdk.integrations.flower.learngenes.partial_federation import (
    NODES,
    NotingGrid,
    app,
    averaging,
    grid_of,
    learngene_mod,
    run,
    subspace,
)

COMMIT = "0123456789" * 4


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Flower logs every step of every round."""
    caplog.set_level(logging.ERROR, "flwr")


def published(
    client: modelkin.Client, space: str, folder: Path, **settings: Any
) -> ClusteredStrategy:
    """A federation that uploads its subspaces and publishes its learngenes.

    Args:
        client: of the service.
        space: of the subspaces.
        folder: of the files.
        settings: of the clusters.
    """
    inner = LearngeneStrategy(
        averaging(),
        depth=1,
        save=folder,
        client=client,
        space=space,
        reference=lambda cluster, path: modelkin.HubFile(
            repo="org/start", revision=COMMIT, file=path.name
        ),
    )
    return ClusteredStrategy(
        inner, by="data", per_cluster=True, client=client, space=space, **settings
    )


@pytest.mark.slow
def test_a_newcomer_outside_finds_its_learngene(
    client: modelkin.Client, space: str, tmp_path: Path
) -> None:
    """The service places its data, and answers the manifest of its cluster's learngene."""
    run(grid_of(), published(client, space, tmp_path), 2)
    assert len(NODES) == len(list(client.models.list(space)))
    place = client.clusterings.assign(space, subspace(11))
    assert place.learngene is not None
    assert (4, 2) == (place.learngene.members, place.learngene.rounds)
    kept = {path.name for path in tmp_path.glob("*.safetensors")}
    reference = place.learngene.reference
    assert reference is not None
    assert reference["file"] in kept - {"all.safetensors"}
    everyone = client.learngenes.get(space, "all")
    assert len(NODES) == everyone.members


@pytest.mark.slow
@pytest.mark.parametrize(
    ("division", "saved"), [({"n_clusters": 3}, [0, 1]), ({"distance_threshold": 0.9}, [0])]
)
def test_the_service_is_asked_for_the_clusters_of_the_federation(
    division: dict[str, Any],
    saved: list[int],
    client: modelkin.Client,
    space: str,
    tmp_path: Path,
) -> None:
    """As many as were asked for, or as far apart, though the service alone would find two."""
    strategy = published(client, space, tmp_path, **division)
    run(grid_of(), strategy, 1)
    assert strategy.clusters is not None
    newest = client.clusterings.get(space)
    assert ("agglomerative", "whole") == (newest.algorithm, newest.parameters["compare"])
    members = strategy.clusters.members
    labels = {f"flower/{node}": each for each, nodes in members.items() for node in nodes}
    assert _partition(labels) == _partition(newest.labels)
    published_for = {each.cluster for each in client.learngenes.list(space)}
    assert {
        "all",
        *(newest.labels[f"flower/{members[each][0]}"] for each in saved),
    } == published_for
    manifest = json.loads((tmp_path / "cluster-0.json").read_text())
    assert sorted(f"flower/{node}" for node in members[0]) == manifest["models"]


def _partition(labels: Mapping[str, int]) -> set[frozenset[str]]:
    """The clusters, however they are numbered."""
    return {frozenset(name for name in labels if labels[name] == each) for each in labels.values()}


def test_members_are_found_by_the_names_that_they_send(
    client: modelkin.Client, space: str, tmp_path: Path
) -> None:
    """With their data, before any training; the learngenes of their clusters are published."""

    def ward(context: Context) -> str:
        return f"ward-{context.node_id}"

    mod = DataMod(lambda context: subspace(context.node_id), name=ward, tags=["wards"])
    grid = NotingGrid({node: app([mod, learngene_mod(node)]) for node in NODES})
    strategy = published(client, space, tmp_path)
    run(grid, strategy, 1)
    assert strategy.clusters is not None
    odd, even = (tuple(f"ward-{node}" for node in NODES if node % 2 == left) for left in (1, 0))
    assert strategy.clusters.named == {0: odd, 1: even}
    models = {each.model: each.tags for each in client.models.list(space)}
    assert models == {f"flower/ward-{node}": ("round-1", "wards") for node in NODES}
    place = client.clusterings.assign(space, subspace(11))
    assert place.exemplar in [f"flower/{name}" for name in odd]
    assert place.learngene is not None
    assert 4 == place.learngene.members


def test_a_service_that_is_away_ends_no_run(
    away: Any, space: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The files are there; the log says what was not published."""
    caplog.set_level(logging.WARNING, "modelkin.integrations")
    with away.client() as client:
        run(grid_of(), published(client, space, tmp_path), 1)
    assert "the learngene of cluster all is not published" in caplog.text
    assert (tmp_path / "all.safetensors").exists()
