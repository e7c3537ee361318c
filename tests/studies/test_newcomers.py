"""The study of newcomers: kin of a small cluster find it, and noise finds none."""

from __future__ import annotations

import pytest

from studies.cells import Cells
from studies.hub import Hub
from studies.sections.summaries import mean
from studies.tables import newcomers
from tests.support.servers.server_process import Server


@pytest.mark.slow
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


@pytest.mark.parametrize(("network", "noise"), [("cnn", 1.0), ("mlp", 0.0)])
def test_the_page_on_clustering_says_what_cells_say(network: str, noise: float) -> None:
    """Its words about noise, unknown groups, other weights and few images hold of the means."""
    cells = [each for each in Cells().of(newcomers.NAME) if each.setting.network == network]
    placed, noted = (
        {name: mean(cells, judged, name) for name in newcomers.STRANGERS}
        for judged in newcomers.JUDGED
    )
    many, some, few = newcomers.KIN
    images_of_noise, other_weights, unknown = newcomers.FOREIGN
    assert placed == dict.fromkeys(newcomers.STRANGERS, 1.0) | {
        images_of_noise: noise,
        other_weights: 0.0,
    }
    assert 0 < noted.pop(some) < 1
    assert noted == {
        many: 0.0,
        few: 1.0,
        newcomers.TRAINED: 1.0,
        images_of_noise: noise,
        other_weights: 0.0,
        unknown: 1.0,
    }
