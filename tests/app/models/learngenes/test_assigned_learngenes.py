"""A newcomer's way: its cluster, the manifest that the assignment answers, and the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from modelkin import Client, LearngeneInfo, Support
from tests.app.models.learngenes.conftest import M
from tests.support.http_space import Space
from tests.support.models.learngene_files import gene
from tests.support.servers.server_process import Server

NEAR = Support.from_indices(np.arange(0, M, 4), M)
STRANGER = Support.from_indices([1, 5], M)
"""Like the last of the models near 0 alone, which the test deletes."""


def test_a_newcomer_gets_what_its_cluster_starts_from(
    clustered: Space, keeping: Server, tmp_path: Path
) -> None:
    """The newest version of its cluster's; where no model is near, that of the whole space."""
    with Client(keeping.url) as client:
        before = client.clusterings.assign(clustered.name, NEAR)
        assert None is before.learngene
        places: list[int | str] = [before.cluster, before.cluster, "all"]
        for seed, of in enumerate(places):
            file = tmp_path / f"{seed}.safetensors"
            file.write_bytes(gene(seed))
            client.learngenes.publish(clustered.name, of, file, members=3)
        placed = client.clusterings.assign(clustered.name, NEAR)
        client.models.delete(clustered.name, "near2")
        stranger = client.clusterings.assign(clustered.name, STRANGER)
        assert isinstance(placed.learngene, LearngeneInfo)
        assert (before.cluster, 2, False) == (
            placed.learngene.cluster,
            placed.learngene.version,
            placed.learngene.stale,
        )
        path = client.learngenes.fetch(placed.learngene, tmp_path / "mine")
        assert gene(1) == path.read_bytes()
        assert -1 == stranger.cluster
        assert gene(2) == client.learngenes.fetch(stranger.learngene, path).read_bytes()
