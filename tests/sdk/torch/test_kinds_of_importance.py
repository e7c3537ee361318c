"""What docs/method.md says of supports of different kinds of importance: they do not compare."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import modelkin
from modelkin import Support
from modelkin.core.importance import ImportanceKind
from modelkin.core.similarity import chance
from modelkin.torch import (
    GradientMoment,
    adam_importance,
    delta_importance,
    fisher_importance,
    layout_of,
    weight_importance,
)

pytestmark = pytest.mark.slow

GRADIENTS, VALUES = ("fisher", "grad_moment", "adam"), ("weight", "delta")
Kinds = dict[str, Support]


@pytest.fixture(scope="module")
def pairs() -> list[tuple[Kinds, Kinds]]:
    """The supports of two fine-tunes of one base on different digits, by kind; three bases."""
    return [_fine_tunes(seed) for seed in range(3)]


def test_two_fine_tunes_are_kin_by_one_kind(pairs: list[tuple[Kinds, Kinds]]) -> None:
    """Beyond chance they share a third at least, whatever the kind is."""
    for kind in (*GRADIENTS, *VALUES):
        assert _kappa(pairs, kind, kind) > 0.3


def test_they_are_strangers_by_gradients_and_by_values(pairs: list[tuple[Kinds, Kinds]]) -> None:
    """One by gradients and the other by weights or a difference share what chance gives."""
    for gradient, value in itertools.product(GRADIENTS, VALUES):
        assert abs(_kappa(pairs, gradient, value)) < 0.1
        assert abs(_kappa(pairs, value, gradient)) < 0.1


def test_weights_and_differences_are_not_one_kind(pairs: list[tuple[Kinds, Kinds]]) -> None:
    """The kappa of weights falls by more than half where the other side is a difference."""
    assert _kappa(pairs, "weight", "delta") < _kappa(pairs, "weight", "weight") / 2


def _kappa(pairs: list[tuple[Kinds, Kinds]], one: str, other: str) -> float:
    """The mean kappa of the first fine-tunes by one kind and the second ones by another."""
    return float(np.mean([_beyond_chance(a[one], b[other]) for a, b in pairs]))


def _beyond_chance(a: Support, b: Support) -> float:
    layout = a.origin.layout if a.origin is not None else None
    assert layout is not None
    sizes = [tensor.size for tensor in layout.tensors]
    random = 2 * np.sum(layout.counts(a.indices) * layout.counts(b.indices) / sizes) / (a.k + b.k)
    # Without their origins, since the SDK refuses to compare two kinds.
    similarity = modelkin.similarity(a.with_origin(None), b.with_origin(None))
    found = chance.kappa(similarity, float(random))
    assert found is not None
    return found


def _fine_tunes(seed: int) -> tuple[Kinds, Kinds]:
    """A network of 4,810 parameters learns 900 digits; two copies learn 448 others each."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    pixels, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
    pixels = (pixels / 16).float()
    rows = torch.randperm(len(pixels), generator=generator)
    base = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    _train(base, TensorDataset(pixels[rows[:900]], labels[rows[:900]]), 10)
    halves = rows[900:1796].chunk(2)
    one, other = (_supports(base, TensorDataset(pixels[i], labels[i])) for i in halves)
    return one, other


def _train(
    model: torch.nn.Module, data: TensorDataset, epochs: int
) -> tuple[torch.optim.Adam, GradientMoment]:
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    with GradientMoment(model, optimizer) as moment:
        for _ in range(epochs):
            for inputs, targets in DataLoader(data, 32, shuffle=True):
                optimizer.zero_grad()
                cross_entropy(model(inputs), targets).backward()
                optimizer.step()
    return optimizer, moment


def _supports(base: torch.nn.Module, data: TensorDataset) -> Kinds:
    """A tenth of the parameters of a fine-tune, by each kind."""
    model = copy.deepcopy(base)
    optimizer, moment = _train(model, data, 5)
    layout = layout_of(model)
    importances: dict[ImportanceKind, Tensor] = {
        "fisher": fisher_importance(model, cross_entropy, DataLoader(data, 64)),
        "grad_moment": moment.importance(),
        "adam": adam_importance(optimizer, model),
        "weight": weight_importance(model),
        "delta": delta_importance(model, base),
    }
    return {
        kind: modelkin.select_support(importance.numpy(), fraction=0.1, kind=kind, layout=layout)
        for kind, importance in importances.items()
    }
