"""fisher_resamples: the importance, and what it would be of other mini-batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import modelkin
from modelkin.errors import InvalidParameter
from modelkin.torch import fisher_importance, fisher_resamples

INPUTS, TARGETS = (
    torch.randn(22, 4, generator=torch.Generator().manual_seed(0)),
    torch.arange(22) % 3,
)


def loader(size: int) -> list[tuple[Tensor, Tensor]]:
    return list(zip(INPUTS.split(size), TARGETS.split(size), strict=True))


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def test_the_importance_is_fisher_importance() -> None:
    """The first of the two answers does not know of resamples."""
    net = model()
    importance, resamples = fisher_resamples(net, cross_entropy, loader(4), resamples=3)
    torch.testing.assert_close(
        fisher_importance(net, cross_entropy, loader(4)), importance, rtol=1e-6, atol=0.0
    )
    assert (3, importance.numel()) == resamples.shape


def test_resamples_weigh_batches_at_random() -> None:
    """Each resample is the mean over samples with the exponential weights of its batches."""
    net = model()
    net[0].requires_grad_(False)
    batches = loader(4)
    each = torch.stack([fisher_importance(net, cross_entropy, [b]) for b in batches]).double()
    sizes = torch.tensor([len(b[1]) for b in batches])
    generator = np.random.default_rng(5)
    weights = np.array([generator.standard_exponential(4) for _ in batches])
    shares = sizes[:, None] * torch.from_numpy(weights)
    expected = (shares / shares.sum(0)).T @ each
    _, actual = fisher_resamples(net, cross_entropy, batches, resamples=4, seed=5)
    torch.testing.assert_close(expected.float(), actual, rtol=1e-5, atol=1e-12)


def test_the_seed_decides() -> None:
    """The same seed gives the same resamples to the bit, another one others."""
    net = model()
    first, again, other = (
        fisher_resamples(net, cross_entropy, loader(4), seed=seed)[1] for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_what_select_needs() -> None:
    """select takes importance and resamples unchanged, and measures how stable a support is."""
    importance, resamples = fisher_resamples(model(), cross_entropy, loader(2))
    selection = modelkin.select(importance, coverage=0.8, k_max=1.0, resamples=resamples)
    assert selection.stability is not None
    assert 0.5 < selection.stability < 1.0


@pytest.mark.parametrize("resamples", [0, 1, True, 2.0])
def test_one_resample_is_none(resamples: Any) -> None:
    """Stability compares resamples, so there are two at least."""
    with pytest.raises(InvalidParameter, match="resamples must be an integer of at least 2"):
        fisher_resamples(model(), cross_entropy, loader(4), resamples=resamples)


def test_one_batch_cannot_be_resampled() -> None:
    """A loader of one batch would make all resamples the same: smaller batches are asked for."""
    with pytest.raises(InvalidParameter, match="only one: give it smaller batches"):
        fisher_resamples(model(), cross_entropy, loader(22))


def out_of_memory(net: nn.Module, x: Tensor) -> Tensor:
    """A forward pass that fits only where no gradients are kept."""
    if torch.is_grad_enabled():
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
    return net(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize("function", [fisher_importance, fisher_resamples])
@pytest.mark.parametrize(
    ("max_memory", "message"),
    [
        (
            43 * 4 * 4,
            "4 samples ran together within max_memory=688: pass a smaller one, max_memory=172",
        ),
        (1, "one sample alone is too much: pass vectorize=False"),
    ],
)
def test_out_of_memory_says_what_to_set(function: Any, max_memory: int, message: str) -> None:
    """The device's out-of-memory error becomes one that names max_memory or vectorize."""
    with pytest.raises(InvalidParameter, match=message) as caught:
        function(model(), cross_entropy, loader(8), max_memory=max_memory, forward=out_of_memory)
    assert isinstance(caught.value.__cause__, torch.OutOfMemoryError)


def test_out_of_memory_for_the_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where not even the sums fit no bound would help, and the error says how much they need."""

    def full(*_: Any, **__: Any) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch, "zeros_like", full)
    with pytest.raises(InvalidParameter, match="12 bytes for each of 43 parameters"):
        fisher_importance(model(), cross_entropy, loader(8))
