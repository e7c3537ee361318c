"""Subspaces of loaders: what numpy makes of the same samples, and a bounded sample of many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import modelkin
from modelkin.errors import InvalidParameter
from modelkin.torch import fit_subspace

X = torch.randn(120, 3, 4, generator=torch.Generator().manual_seed(0)) + 1
Y = torch.arange(120) % 3
BATCHES = [(X[at : at + 32], Y[at : at + 32]) for at in range(0, 120, 32)]
FEW: dict[str, Any] = {"samples_per_direction": 1, "whole_rank": 4}


def test_a_loader_is_its_samples() -> None:
    """With labels, without them, and as plain batches; whatever the batches are."""
    expected = modelkin.fit_subspace(X.numpy(), Y.numpy(), **FEW)
    found = fit_subspace(BATCHES, **FEW)
    assert modelkin.affinity(expected, found) == pytest.approx(1.0, abs=1e-6)
    assert expected.labels == found.labels
    bare = modelkin.fit_subspace(X.numpy(), **FEW)
    for loader in (BATCHES, [(X, Y)]):
        made = fit_subspace(loader, labels=False, **FEW)
        assert modelkin.affinity(bare, made) == pytest.approx(1.0, abs=1e-6)
    assert () == fit_subspace([X], **FEW).labels


def test_features_are_those_of_the_encoder() -> None:
    """In evaluation mode, without gradients; the module has its own mode back."""
    seen: list[tuple[bool, bool]] = []

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(12, 5)

        def forward(self, x: Tensor) -> Tensor:
            seen.append((self.training, torch.is_grad_enabled()))
            made: Tensor = self.linear(x.flatten(1))
            return made

    encoder = Encoder().train()
    found = fit_subspace(BATCHES, features=encoder, **FEW)
    assert {(False, False)} == set(seen)
    assert encoder.training
    expected = modelkin.fit_subspace(
        encoder.linear(X.flatten(1)).detach().numpy(), Y.numpy(), **FEW
    )
    assert modelkin.affinity(expected, found) == pytest.approx(1.0, abs=1e-5)


def test_few_of_many_are_kept_evenly() -> None:
    """Each sample has the same chance, and no more than so many are encoded at once."""
    kept = np.zeros(40)
    rows = torch.eye(40) + 0.001
    for seed in range(300):
        encoded: list[Tensor] = []

        def features(x: Tensor, into: list[Tensor] = encoded) -> Tensor:
            into.append(x)
            return x

        made = fit_subspace(
            [rows[:25], rows[25:]], samples=10, seed=seed, features=features, whole_rank=40,
            samples_per_direction=1, constant=0.0,
        )  # fmt: skip
        assert 10 == made.num_columns
        # A kept sample lies in the span of the columns.
        columns = made.blocks[0].columns.astype(np.float64)
        kept += np.linalg.norm(columns @ rows.numpy().T, axis=0) > 0.99
    assert abs(kept / 300 - 0.25).max() < 0.12
    assert kept.sum() == 300 * 10


def test_the_same_seed_keeps_the_same() -> None:
    """Another keeps others."""
    one, same, other = (fit_subspace(BATCHES, samples=9, seed=seed, **FEW) for seed in (1, 1, 2))
    assert one == same
    assert one != other


@pytest.mark.parametrize(
    ("loader", "options", "says"),
    [
        ([], {}, "the loader yields no samples"),
        ([X[:0]], {}, "the loader yields no samples"),
        ([torch.ones(3)], {}, "batch 0 of the loader is a tensor of shape"),
        ([(X, Y, Y)], {}, "batch 0 of the loader is a tuple of 3"),
        ([(X, Y[:5])], {}, "labels of batch 0"),
        ([(X, Y.float())], {}, "labels must be integers, not float32"),
        (BATCHES, {"samples": 0}, "samples must be 1 or more"),
        (BATCHES, {"features": lambda x: x.sum()}, "of as many rows"),
        ([X[:5], X[5:, :2]], {}, "different numbers of features"),
        (BATCHES, {"samples": 5, "epsilon": 1.0, "classes": range(3)}, "raise samples"),
    ],
)
def test_what_cannot_be_fitted_is_named(loader: Any, options: Any, says: str) -> None:
    """Before anything is sent."""
    with pytest.raises(InvalidParameter, match=says):
        fit_subspace(loader, **FEW, **options)
