"""The further studies, on few clients with a small network, by a service."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from modelkin import Banding
from studies.federations import Federation
from studies.hub import Hub
from studies.settings import Setting
from studies.tables import bounds, clusters, estimates, samples
from tests.support.servers.server_process import Server

SETTING = Setting(network="mlp", clients=8)


@pytest.fixture
def hub(sqlite_server: Server) -> Iterator[Hub]:
    """A service that carries out jobs by itself: on Postgres it would need a worker."""
    with Hub(sqlite_server.url) as started:
        yield started


@pytest.mark.slow
def test_bounds_hold(hub: Hub) -> None:
    """No cosine is below Proposition 1, and Theorem 1 grants no more than what is seen."""
    found = bounds.figures(Setting(network="mlp", clients=20), hub)
    assert 1.0 == found[bounds.COSINE]["pairs above their bound"]
    assert found[bounds.COSINE]["log10 of the largest bound"] < -2
    seen = found[bounds.SUPPORT]
    assert seen["bound, noisiest entry"] <= seen["bound, boundary"] <= seen["supports unchanged"]
    assert 0 < seen["S of one estimate and the mean"] < 1


@pytest.mark.slow
def test_more_is_estimated_better(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors fall with r and with h, and the service compares the models that theory expects."""
    monkeypatch.setattr(estimates, "RESAMPLES", (2, 16))
    monkeypatch.setattr(estimates, "VALUES", (16, 1024))
    monkeypatch.setattr(estimates, "PER_STEP", (0.8,))
    monkeypatch.setattr(estimates, "BANDINGS", (Banding(64, 4),))
    found = estimates.figures(SETTING, hub)
    assert found["rho of 16 resamples"]["RMSE"] < found["rho of 2 resamples"]["RMSE"]
    assert found["signature of 1024"]["RMSE"] < found["signature of 16"]["RMSE"]
    shared = found["banding 64 x 4"]
    assert shared["candidates"] == pytest.approx(shared["Theorem E.3"], abs=2)
    assert 0 < found["average, 0.8 an epoch"]["R@8"] <= 1


@pytest.mark.slow
def test_groups_show_with_many_samples(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """With some 200 samples a client, supports and data subspaces show which labels are swapped."""
    monkeypatch.setattr(samples, "SHARES", (1.0,))
    found = samples.figures(Setting(split=samples.SPLIT, network="mlp", clients=8), hub)
    assert found["samples"]["100%"] > 200
    for name in (clusters.IOS, samples.DATA_SPACES):
        assert 1.0 == found[clusters.row(name, samples.KNOWN)]["100%"]
    assert found["S apart"]["100%"] > 0


def test_clients_test_on_a_quarter_of_their_own() -> None:
    """A client's samples and tests together are what it was dealt."""
    dealt = Federation.of(SETTING)
    own = dealt.tested_by_clients()
    assert own.labels.shape[1] + own.test_labels.shape[1] == dealt.labels.shape[1]
    for before, kept, tested in zip(dealt.samples, own.samples, own.test_samples, strict=True):
        rows = [row.numpy().tobytes() for row in (*kept, *tested)]
        assert sorted(row.numpy().tobytes() for row in before) == sorted(rows)
