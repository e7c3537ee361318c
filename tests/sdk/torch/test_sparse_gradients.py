"""fisher_importance of models whose embeddings ask for sparse gradients: as of dense ones."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from modelkin.errors import InvalidParameter
from modelkin.torch import fisher_importance, fisher_resamples


class Reader(nn.Module):
    """Looks words up, and classifies what it read."""

    def __init__(self, look_up: nn.Module, classes: int = 3) -> None:
        super().__init__()
        self.look_up = look_up
        self.head = nn.Linear(8, classes)

    def forward(self, words: Tensor) -> Tensor:
        found: Tensor = self.look_up(words)
        return self.head(found.mean(1) if found.dim() == 3 else found)  # type: ignore[no-any-return]


class ByFunction(nn.Module):
    """Asks for sparse gradients by a function, which no attribute shows."""

    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(40, 8))
        self.asks = sparse

    def forward(self, words: Tensor) -> Tensor:
        return nn.functional.embedding(words, self.weight, sparse=self.asks)


LOOK_UPS: dict[str, Callable[[bool], nn.Module]] = {
    "embedding": lambda sparse: nn.Embedding(40, 8, sparse=sparse),
    "padded, by frequency": lambda sparse: nn.Embedding(40, 8, padding_idx=0, sparse=sparse),
    "a bag": lambda sparse: nn.EmbeddingBag(40, 8, mode="mean", sparse=sparse),
    "a sum": lambda sparse: nn.EmbeddingBag(40, 8, mode="sum", sparse=sparse),
}


def loader() -> list[Any]:
    generator = torch.Generator().manual_seed(3)
    words = torch.randint(0, 20, (12, 5), generator=generator)
    return [(words, torch.randint(0, 3, (12,), generator=generator))]


def twins(make: Callable[[bool], nn.Module]) -> tuple[nn.Module, nn.Module]:
    """One model with sparse gradients, and with dense ones."""
    torch.manual_seed(1)
    sparse, dense = Reader(make(True)), Reader(make(False))
    dense.load_state_dict(copy.deepcopy(sparse.state_dict()))
    return sparse.eval(), dense.eval()


@pytest.mark.parametrize(
    ("kind", "vectorize"),
    [(kind, False) for kind in LOOK_UPS]
    + [(kind, True) for kind in LOOK_UPS if "embedding" in kind or "padded" in kind],  # no bags
)
def test_sparse_gradients_give_the_same_importance(kind: str, vectorize: bool) -> None:
    """All entries are those of dense gradients, also in resamples, and the model stays sparse."""
    sparse, dense = twins(LOOK_UPS[kind])
    loss = nn.CrossEntropyLoss()
    expected = fisher_importance(dense, loss, loader(), vectorize=vectorize)
    actual = fisher_importance(sparse, loss, loader(), vectorize=vectorize)
    torch.testing.assert_close(expected, actual, rtol=1e-6, atol=0)
    assert bool((actual[: 40 * 8] > 0).any())
    assert getattr(sparse.look_up, "sparse")  # noqa: B009 - a module's attribute is of any type
    halves = [(words, to) for words, to in zip(*(t.split(6) for t in loader()[0]), strict=True)]
    again = [fisher_resamples(m, loss, halves, vectorize=vectorize)[1] for m in (sparse, dense)]
    torch.testing.assert_close(again[0], again[1], rtol=1e-6, atol=0)


def test_sparse_gradients_by_a_function() -> None:
    """One by one they are read; together they are refused with the advice that works."""
    sparse, dense = twins(ByFunction)
    loss = nn.CrossEntropyLoss()
    with pytest.raises(InvalidParameter, match=r"sparse gradients by a function.*vectorize=False"):
        fisher_importance(sparse, loss, loader())
    expected = fisher_importance(dense, loss, loader(), vectorize=False)
    actual = fisher_importance(sparse, loss, loader(), vectorize=False)
    torch.testing.assert_close(expected, actual, rtol=1e-6, atol=0)
