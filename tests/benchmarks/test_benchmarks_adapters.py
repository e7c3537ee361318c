"""The federation of adapters trains each client in its own rank, and averages as it says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.federation.adapters import first_rows, of_factors
from benchmarks.federation.dialects import (
    RANKS,
    SHAPES,
    Clients,
    begin,
    clients_of,
    factors_of,
    tensors_of,
    train,
)
from modelkin.federation.adapters import Adapter, read_adapter


@pytest.fixture(scope="module")
def clients() -> Clients:
    return clients_of(0, steps=1, tests=2)


def adapters(clients: Clients) -> list[Adapter]:
    """What the clients have after two steps."""
    factors = train(clients, begin(clients, 0), 0, steps=2)
    return [read_adapter(tensors_of(clients, factors, number)) for number in range(4)]


def test_a_client_has_no_more_than_its_rank(clients: Clients) -> None:
    """Zeros beyond it stay zeros; the rest is trained, and begins alike for all ranks."""
    first = begin(clients, 0)
    for a, b in train(clients, first, 0, steps=2).values():
        for number, rank in enumerate(clients.ranks):
            assert not a[number, rank:].any()
            assert not b[number, :, rank:].any()
            assert b[number, :, :rank].any(dim=0).all()
    for a, _ in first.values():
        assert torch.equal(a[0, :2], a[3, :2])


def test_tensors_hold_all_of_a_client(clients: Clients) -> None:
    """There and back."""
    factors = train(clients, begin(clients, 0), 0, steps=2)
    held = [tensors_of(clients, factors, number) for number in range(len(clients.ranks))]
    for name, pair in factors_of(held).items():
        assert all(map(torch.equal, pair, factors[name]))


@pytest.mark.parametrize("padded", [False, True])
def test_means_of_factors_are_of_each_row(clients: Clients, padded: bool) -> None:
    """Over all clients, zeros for those that have none, or over those that have one."""
    held = adapters(clients)
    mean = of_factors(held, padded=padded)
    for name in SHAPES:
        own = [each[f"{name}.weight"] for each in held]
        for row in range(max(RANKS)):
            rows = [each.a[row] for each in own if each.rank > row]
            columns = [each.b[:, row] for each in own if each.rank > row]
            share = len(own) if padded else len(rows)
            found = mean[f"{name}.weight"]
            np.testing.assert_allclose(found.a[row], sum(rows) / share, atol=1e-12)
            np.testing.assert_allclose(found.b[:, row], sum(columns) / share, atol=1e-12)


def test_a_mean_of_factors_is_cut_by_rows(clients: Clients) -> None:
    """As HetLoRA hands it out."""
    mean = of_factors(adapters(clients), padded=True)
    for name, cut in first_rows(mean, 4).items():
        assert np.array_equal(mean[name].a[:4], cut.a)
        assert np.array_equal(mean[name].b[:, :4], cut.b)
