"""Votes of samples: each counts once for the parameters that its own gradient moves most."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from modelkin import private_support
from modelkin.core.importance import origin_of
from modelkin.errors import InvalidImportance, InvalidParameter
from modelkin.torch import layout_of, vote_counts


def case() -> tuple[nn.Module, Tensor, Tensor]:
    """A perceptron of 66 parameters, and 11 samples."""
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    return model, torch.randn(11, 5), torch.arange(11) % 3


def by_hand(model: nn.Module, x: Tensor, y: Tensor, votes: int) -> Tensor:
    """The same by a backward pass a sample."""
    counts = torch.zeros(sum(p.numel() for p in model.parameters()), dtype=torch.int64)
    for i in range(len(x)):
        model.zero_grad()
        cross_entropy(model(x[i : i + 1]), y[i : i + 1]).backward()
        own = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        counts[own.abs().topk(votes).indices] += 1
    model.zero_grad(set_to_none=True)
    return counts


@pytest.mark.parametrize("vectorize", [True, False])
@pytest.mark.parametrize("max_memory", [1, 2**30])
def test_votes_are_those_of_each_sample_alone(vectorize: bool, max_memory: int) -> None:
    """Whatever runs together, each sample votes for its own largest gradients."""
    model, x, y = case()
    loader = [(x[:8], y[:8]), (x[8:], y[8:])]
    found = vote_counts(model, cross_entropy, loader, 9, vectorize=vectorize, max_memory=max_memory)
    assert by_hand(model, x, y, 9).tolist() == found.tolist()
    assert 11 * 9 == int(found.sum())


@pytest.mark.parametrize("left_out", range(0, 11, 5))
def test_one_sample_changes_as_many_counts_as_it_has_votes(left_out: int) -> None:
    """By one each, however large its loss is: so the clip is the root of the votes."""
    model, x, y = case()
    x[left_out] *= 100
    kept = [i for i in range(11) if i != left_out]
    all_votes = vote_counts(model, cross_entropy, [(x, y)], 9)
    change = all_votes - vote_counts(model, cross_entropy, [(x[kept], y[kept])], 9)
    assert {0, 1} == set(change.tolist())
    assert 9 == int(change.sum())


def test_frozen_and_unmoved_parameters_get_no_vote() -> None:
    """A gradient of zero gives no vote, so such a sample has fewer; a frozen parameter has none."""
    model, x, y = case()
    first = next(iter(model.parameters()))
    first.requires_grad_(False)
    found = vote_counts(model, cross_entropy, [(x, y)], 5)
    assert {0} == set(found[: first.numel()].tolist())
    assert 11 * 5 == int(found.sum())
    unmoved = vote_counts(model, lambda output, target: (output * 0).sum(), [(x, y)], 5)
    assert 0 == int(unmoved.sum())


def test_votes_become_a_private_support_of_the_model_s_layout() -> None:
    """The layout goes along, so that the service can check and reorder it."""
    model, x, y = case()
    counts = vote_counts(model, cross_entropy, [(x, y)], 9)
    support = private_support(counts, 20, 5.0, 1e-5, 3.0, samples=11)
    assert 20 == support.k
    assert support.origin == origin_of(counts)
    assert support.origin is not None
    assert layout_of(model) == support.origin.layout


def test_wrong_votes_and_samples_are_refused() -> None:
    """No votes, more than parameters, no samples, a gradient that is not finite."""
    model, x, y = case()
    for votes in (0, 67, 2.5, True):
        with pytest.raises(InvalidParameter, match="votes must be 1 to 66"):
            vote_counts(model, cross_entropy, [(x, y)], votes)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="loader is empty"):
        vote_counts(model, cross_entropy, [], 5)
    with pytest.raises(InvalidImportance, match="NaN or infinite"):
        vote_counts(model, cross_entropy, [(x * float("nan"), y)], 5)
