"""Attacks on membership: three scores, by an aggregator's values, for candidates of a batch.

Only the coordinates that the aggregator saw count. To take the rest for zero, or to score a model
that is mostly the global one, makes an attack weaker than the aggregator is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from modelkin.torch.privacy.simulation import Round, Samples, View

__all__ = ["ATTACKS", "alignment", "least_squares", "scores"]

ATTACKS: Final = ("alignment", "least squares", "loss")

_RANK_CUT = 1e-8
"""The share of the largest eigenvalue of the Gram matrix below which eigenvalues are rounding."""

Floats = npt.NDArray[np.float64]


def scores(round_: Round, view: View, seed: int) -> dict[str, Floats]:
    """The score of each candidate by attack, higher for "in", of shape ``(clients * canaries,)``.

    Client k is attacked by the aggregator of shard ``k mod shards``. Scores have mean 0 and
    deviation 1 within each client, so that clients may be ranked together.
    """
    found = {attack: np.zeros(round_.truth.shape) for attack in ATTACKS}
    attacked = _attack_sums if view.conceal else _attack_each
    for shard in range(min(view.shards, round_.clients)):
        at = view.positions(round_.network.size, shard, seed).to(round_.updates.device)
        mine = range(shard, round_.clients, view.shards)
        for attack, rows in attacked(round_, at, mine).items():
            found[attack][list(mine)] = rows.double().cpu().numpy()
    return {attack: _standardize(rows).ravel() for attack, rows in found.items()}


def alignment(gradients: Tensor, seen: Tensor) -> Tensor:
    """The inner product of the seen values with minus each candidate's gradient.

    Args:
        gradients: the candidates' gradients on the seen coordinates, ``(candidates, values)``.
        seen: the values of the update at these coordinates, of shape ``(values,)``.
    """
    return -(gradients.double() @ seen.double())


def least_squares(gradients: Tensor, seen: Tensor) -> Tensor:
    """The weights of the candidates' steps that together fit the seen values best.

    Where several fit alike, the weights have the least norm. The arguments are those of
    :func:`alignment`.
    """
    wide = gradients.double()
    values, vectors = torch.linalg.eigh(wide @ wide.T)
    inverse = torch.where(values > _RANK_CUT * values[-1], 1 / values, torch.zeros_like(values))
    solution: Tensor = vectors @ (inverse * (vectors.T @ alignment(gradients, seen)))
    return solution


_ON_GRADIENTS: Final[dict[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "alignment": alignment,
    "least squares": least_squares,
}


def _attack_each(round_: Round, at: Tensor, clients: range) -> dict[str, Tensor]:
    """Attack each client's values with the client's own candidates."""
    rows: dict[str, list[Tensor]] = {attack: [] for attack in ATTACKS}
    for client in clients:
        gradients, seen = round_.gradients[client][:, at], round_.updates[client][at]
        for attack, score in _ON_GRADIENTS.items():
            rows[attack].append(score(gradients, seen))
        rows["loss"].append(_loss_scores(round_, at, seen, _candidates(round_, client)))
    return {attack: torch.stack(scored) for attack, scored in rows.items()}


def _attack_sums(round_: Round, at: Tensor, clients: range) -> dict[str, Tensor]:
    """Attack the mean over all clients with the candidates of all clients."""
    seen = round_.updates[:, at].mean(0)
    gradients = round_.gradients.flatten(0, 1)[:, at]
    rows = {
        attack: score(gradients, seen).view(round_.truth.shape)[list(clients)]
        for attack, score in _ON_GRADIENTS.items()
    }
    losses = [_loss_scores(round_, at, seen, _candidates(round_, client)) for client in clients]
    return {**rows, "loss": torch.stack(losses)}


def _loss_scores(round_: Round, at: Tensor, seen: Tensor, candidates: Samples) -> Tensor:
    """The paper's score: minus the loss at the global model with the seen values put in."""
    weights = round_.network.weights.index_add(0, at, seen)
    return -round_.network.losses(weights, candidates.inputs, candidates.targets)


def _candidates(round_: Round, client: int) -> Samples:
    canaries = round_.truth.shape[1]
    return round_.candidates.take(torch.arange(client * canaries, (client + 1) * canaries))


def _standardize(rows: Floats) -> Floats:
    centered = rows - rows.mean(1, keepdims=True)
    spread = rows.std(1, keepdims=True)
    result: Floats = centered / np.where(spread > 0, spread, 1)
    return result
