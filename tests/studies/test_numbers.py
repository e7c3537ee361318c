"""The study of free numbers: groups are found where their number is not given."""

from __future__ import annotations

import numpy as np
import pytest

from studies.cells import Cells
from studies.hub import Hub
from studies.sections.paragraphs import of_split
from studies.sections.summaries import mean
from studies.settings import NETWORKS, Setting
from studies.tables import clusters, numbers, samples
from tests.support.servers.server_process import Server


@pytest.mark.slow
def test_each_algorithm_finds_styles(sqlite_server: Server) -> None:
    """Each row has all algorithms, and what they find at the known number."""
    with Hub(sqlite_server.url) as hub:
        found = numbers.figures(Setting(split="styles", network="mlp", clients=24), hub)
    columns = [*numbers.ALGORITHMS, numbers.KNOWN]
    for row in (clusters.IOS, samples.DATA_SPACES):
        assert dict.fromkeys(columns, 1.0) == found[row]


def test_clients_in_no_cluster_are_alone() -> None:
    """Three of one group that are in no cluster make no group, and one cluster of all is right."""
    groups = np.zeros(4, np.int64)
    assert 0.0 == numbers.agreement(groups, np.array([0, -1, -1, -1]))
    assert 1.0 == numbers.agreement(groups, np.array([2, 2, 2, 2]))


def test_settings_have_every_network() -> None:
    """Five seeds at most, whichever network is asked for."""
    made = list(numbers.settings(range(10), "digits", "cnn"))
    assert 3 * len(numbers.SPLITS) * 5 == len(made)
    assert {24} == {setting.clients for setting in made}


def test_the_page_on_clustering_says_what_cells_say() -> None:
    """Its words about networks and groups ("The network decides, too") hold of the means."""
    cells = Cells().of(numbers.NAME)

    def worst_and_best(row: str, network: str, split: str) -> tuple[float, float]:
        own = [cell for cell in of_split(cells, split) if cell.setting.network == network]
        found = [mean(own, row, algorithm) for algorithm in numbers.ALGORITHMS]
        return min(found), max(found)

    for network in NETWORKS:
        for split in ("iid", "noisy labels", "styles", "permuted labels"):
            assert worst_and_best(clusters.IOS, network, split)[0] > 0.9
        turned = of_split([c for c in cells if c.setting.network == network], "rotations")
        assert mean(turned, clusters.IOS, numbers.KNOWN) > 0.95
    for split in ("rotations", "swapped labels"):
        assert worst_and_best(clusters.IOS, "two layers", split)[0] > 0.9
        assert worst_and_best(clusters.IOS, "cnn", split)[1] < 0.5
        assert worst_and_best(clusters.IOS, "mlp", split)[1] < 0.5
    for split in numbers.SPLITS:
        assert worst_and_best(samples.DATA_SPACES, "cnn", split)[0] > 0.95
