"""The demo's measurements over several splits: a mean and a deviation for each figure."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from demo import data, newcomers, story, training
from demo.data import load_split
from demo.report import Report
from modelkin import Client
from tests.support.fixtures import on_one_database
from tests.support.servers.server_process import Server

pytestmark = on_one_database


def small(clients: int, alpha: float, seed: int) -> data.Split:
    """A split of which each client keeps a dozen samples, and the test set a few of each digit."""
    split = load_split(clients, alpha, seed)
    kept = tuple(mine[:: mine.size // 12] for mine in split.clients)
    return replace(split, clients=kept, test=split.test[::6])


@pytest.mark.slow
def test_two_splits_have_a_spread(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each split has a space of its own, and the table has the figures of both."""
    monkeypatch.setattr(story, "NUM_CLIENTS", 9)
    monkeypatch.setattr(training, "EPOCHS", 1)
    monkeypatch.setattr(data, "load_split", small)
    monkeypatch.setattr(newcomers, "STEPS", (0, 2, 4))
    out = io.StringIO()
    with Client(server.url) as client:
        story.run_splits(client, Report(Console(file=out, width=100)), 2)
        spaces = [client.spaces.get(name) for name in ("digits-cnn", "digits-cnn-1")]
    assert [9, 9] == [space.models for space in spaces]
    assert {"fisher"} == {space.importance.kind for space in spaces if space.importance}
    assert re.search(r"Mean Recall@8 over 2 splits: [01]\.\d+ ± [01]\.\d+", out.getvalue())
    rows = re.findall(r"((?:0\.\d+ ± 0\.\d+ *){3})$", out.getvalue(), re.MULTILINE)
    assert 3 == len(rows)
