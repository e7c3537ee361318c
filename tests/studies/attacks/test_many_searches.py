"""Searches side by side end where each would alone, and where others' searches do."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from studies.attacks.many_searches import minimized


def test_quadratics_end_where_equations_are_solved() -> None:
    """Five problems of seven unknowns, beside numpy's solutions."""
    rng = np.random.default_rng(0)
    roots = rng.normal(size=(5, 9, 7))
    matrices = torch.from_numpy(np.einsum("kij,kil->kjl", roots, roots))
    wanted = torch.from_numpy(rng.normal(size=(5, 7)))

    def losses(rows: Tensor, at: Tensor) -> Tensor:
        quadratic = torch.einsum("ki,kij,kj->k", at, matrices[rows], at) / 2
        return quadratic - (at * wanted[rows]).sum(1)

    found, values = minimized(losses, torch.zeros(5, 7, dtype=torch.float64), 200)
    for matrix, vector, end in zip(matrices.numpy(), wanted.numpy(), found.numpy(), strict=True):
        assert np.allclose(end, np.linalg.solve(matrix, vector), atol=1e-6)
    assert torch.allclose(values, losses(torch.arange(5), found))


def rosenbrock(rows: Tensor, at: Tensor) -> Tensor:
    """A curved valley for each row, whose lowest place is at ones."""
    del rows
    return (100 * (at[:, 1:] - at[:, :-1] ** 2) ** 2 + (1 - at[:, :-1]) ** 2).sum(1)


def test_a_curved_valley_is_followed() -> None:
    """From several starts, of which one begins at the end and stays there."""
    start = torch.tensor([[-1.2, 1.0], [1.0, 1.0], [2.0, -1.0]], dtype=torch.float64)
    found, values = minimized(rosenbrock, start, 300)
    assert torch.allclose(found, torch.ones_like(found), atol=1e-5)
    assert float(values.max()) < 1e-10
    assert torch.equal(found[1], start[1])


def test_a_search_does_not_depend_on_the_others() -> None:
    """Alone and among others it takes the same steps."""
    start = torch.tensor([[-1.2, 1.0], [0.5, 3.0]], dtype=torch.float64)
    together, _ = minimized(rosenbrock, start, 12)
    alone, _ = minimized(rosenbrock, start[:1], 12)
    assert torch.allclose(together[:1], alone)


def test_a_loss_that_is_not_finite_is_not_entered() -> None:
    """A wall of infinity is stepped back from."""

    def walled(rows: Tensor, at: Tensor) -> Tensor:
        del rows
        return torch.where(at[:, 0] > 1, torch.inf, (at[:, 0] - 3) ** 2)

    found, values = minimized(walled, torch.zeros(1, 1), 50)
    assert float(found) <= 1
    assert torch.isfinite(values).all()
