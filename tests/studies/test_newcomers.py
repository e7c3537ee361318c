"""The study of newcomers: kin of a small cluster find it, and noise finds none."""

from __future__ import annotations

import pytest

from studies.hub import Hub
from studies.tables import newcomers
from tests.support.servers.server_process import Server


def test_kin_find_a_small_cluster_and_noise_none(
    sqlite_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of clusters of 4, 4 and 2 clients, by supports and by signatures; each row has its name."""
    sizes, images = (4, 4, 2), 100
    monkeypatch.setattr(newcomers, "SIZES", (sizes,))
    monkeypatch.setattr(newcomers, "IMAGES", (images,))
    _, setting = newcomers.settings([0], "digits", "mlp")
    assert "mlp" == setting.network
    with Hub(sqlite_server.url) as hub:
        found = newcomers.figures(setting, hub)
    assert {"supports": 1.0, "signatures of 256": 1.0, "ARI of the clusters": 1.0} == found[
        newcomers.row(sizes, images)
    ]
    assert newcomers.STRANGERS == tuple(found["placed"])
    assert (1.0, 0.0) == (
        found["placed"]["kin with 100 images"],
        found["placed"]["images of noise"],
    )
    assert 1.0 == found["placed with a note"][newcomers.TRAINED]
