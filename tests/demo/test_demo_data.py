"""The demo's split is fair, and what it measures against is right."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from torch.nn.functional import cross_entropy

from demo import training
from demo.data import Split, chance, jensen_shannon, load_split, recall, true_neighbors


@pytest.fixture(scope="module")
def split() -> Split:
    """The split that the demo runs on."""
    return load_split()


def test_no_sample_is_dealt_twice(split: Split) -> None:
    """Clients and test set share no sample, and no client has one twice."""
    dealt = np.concatenate([*split.clients, split.test])
    assert len(np.unique(dealt)) == len(dealt)


def test_all_clients_have_equally_many_samples(split: Split) -> None:
    """Forty clients share the training digits evenly, but for a rest of less than one each."""
    left = len(split.labels) - len(split.test) - sum(len(mine) for mine in split.clients)
    assert (40, 1, True) == (
        len(split.clients),
        len({len(mine) for mine in split.clients}),
        0 <= left < 40,
    )


def test_counts_are_those_of_the_samples_dealt(split: Split) -> None:
    """The table of counts is what the clients' labels say."""
    actual = [np.bincount(split.labels[mine], minlength=10) for mine in split.clients]
    np.testing.assert_array_equal(split.counts, actual)


def test_a_small_alpha_gives_few_digits_a_client() -> None:
    """Dirichlet(0.1) gives a client mostly one to three digits, Dirichlet(100) all of them."""
    largest = [load_split(alpha=alpha).mixes.max(axis=1).mean() for alpha in (0.1, 100.0)]
    assert largest[0] > 0.5
    assert largest[1] < 0.2


def test_the_seed_decides_the_split(split: Split) -> None:
    """The same seed deals the same samples, another one others."""
    assert all(
        np.array_equal(a, b) for a, b in zip(split.clients, load_split().clients, strict=True)
    )
    assert not np.array_equal(split.counts, load_split(seed=1).counts)


def test_divergence_is_scipys(split: Split) -> None:
    """The Jensen-Shannon divergence in base 2 is the square of scipy's distance."""
    expected = [[jensenshannon(p, q, base=2) ** 2 for q in split.mixes] for p in split.mixes]
    np.testing.assert_allclose(expected, jensen_shannon(split.mixes), atol=1e-7)


def test_disjoint_mixes_are_one_apart() -> None:
    """Base 2 puts clients without a common label at 1 and equal ones at 0."""
    np.testing.assert_allclose(np.eye(2), 1 - jensen_shannon(np.eye(2)), atol=1e-15)


DIVERGENCES = np.array([[0.0, 0.1, 0.2, 0.2, 0.9]] + [[1.0] * 5] * 4)


def test_ties_with_the_last_neighbour_count() -> None:
    """Of two clients equally far, neither is a wrong second neighbour."""
    assert [False, True, True, True, False] == true_neighbors(DIVERGENCES, 0, 2).tolist()
    assert (1.0, 1.0, 0.5) == tuple(
        recall(found, DIVERGENCES, 0) for found in ([1, 2], [1, 3], [1, 4])
    )


def test_chance_counts_ties_as_recall_does() -> None:
    """Where all clients are equally far every draw is right; without ties chance is k / (n - 1)."""
    line = np.abs(np.subtract.outer(np.array([0, 1, 3, 7, 15.0]), np.array([0, 1, 3, 7, 15.0])))
    assert (1.0, 0.5) == (chance(1 - np.eye(5), 2), chance(line, 2))


@pytest.mark.slow
def test_few_examples_are_trained_as_by_an_optimizer(split: Split) -> None:
    """Training many clients at once is torch's SGD, client by client; examples are one's own."""
    samples = training.few_examples(split, 5)
    assert all(set(few) <= set(own) for few, own in zip(samples, split.clients, strict=True))
    few = samples[:3]
    model = training.common_model()
    start = torch.nn.utils.parameters_to_vector(model.parameters()).detach().repeat(3, 1)
    before, after = training.train_few(model, start, split, few, (0, 4))
    assert torch.equal(before, start)
    for mine, weights in zip(few, after, strict=True):
        alone = training.common_model()
        optimizer = torch.optim.SGD(alone.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
        for _ in range(4):
            optimizer.zero_grad()
            out = alone(torch.as_tensor(split.images[mine]))
            torch.autograd.backward(cross_entropy(out, torch.as_tensor(split.labels[mine])))
            optimizer.step()
        expected = torch.nn.utils.parameters_to_vector(alone.parameters()).detach()
        torch.testing.assert_close(weights, expected, atol=1e-5, rtol=1e-4)
