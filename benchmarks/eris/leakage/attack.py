"""The scores of canaries, by the values that a receiver has and where it has them.

They are summed over the rounds:

- *alignment*, *least squares* and *ridge*: how the canaries' gradients at a model fit the values,
  on their coordinates. With sums, candidates of one client are known, or those of all;
- *loss*: of the canaries under the model with the values put in, and under the model alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.eris.leakage.receivers import Seen
from benchmarks.eris.membership import Client, Scores
from benchmarks.eris.networks import Flat
from modelkin.torch.privacy.membership import alignment

__all__ = ["ALONE", "Attack", "fits"]

RIDGES: Final = (1e-3, 1e-2)
"""Shares of the Gram matrix's trace that a ridge adds to its diagonal."""

RANK_CUT: Final = 1e-8
"""The share of its largest eigenvalue below which least squares take one for rounding."""

ALONE: Final = ", one client's candidates"
"""The end of a view of sums where candidates of the attacked client alone are known."""


class Attack:
    """The scores of all canaries of one training, summed over its rounds.

    Args:
        flat: the network.
        clients: with their canaries.
    """

    def __init__(self, flat: Flat, clients: list[Client]) -> None:
        self._flat = flat
        self._inputs = torch.stack([client.canary_inputs for client in clients])
        self._labels = torch.stack([client.canary_labels for client in clients])
        self._pending: dict[str, Tensor] = {}
        self._last: Tensor | None = None
        shape = self._labels.shape
        self.scores: dict[tuple[str, str], Scores] = defaultdict(lambda: np.zeros(shape))
        """By view and attack, of shape ``(n, canaries)``; without a view, of the model alone."""

    def gradients(self, models: Tensor) -> Tensor:
        """Those of each client's canaries at the model of its row."""
        return self._flat.sample_gradients(models, self._inputs, self._labels)

    def round(self, models: Tensor, gradients: Tensor, views: Iterable[Seen]) -> None:
        """Score the views of a round.

        Args:
            models: of the receivers, one a client.
            gradients: of the clients' canaries at these.
            views: what the receivers have.
        """
        wide = gradients.double()
        self._add("", "loss of the model", self._minus_losses(models))
        by_view: dict[str, list[Seen]] = defaultdict(list)
        for seen in views:
            by_view[seen.view].append(seen)
        for view, group in by_view.items():
            held, put = self._held(view, group[0], wide), models.clone()
            for seen in group:
                put[_places(seen), seen.at] += seen.values
            if group[0].sender is None:
                self._fit_sums(view, held, *group)
                view = f"{view}{ALONE}"
            else:
                self._fit(view, held, [seen for seen in group if len(seen.at)])
            self._add(view, "loss", self._minus_losses(put))
        self._last = wide

    def _held(self, view: str, seen: Seen, gradients: Tensor) -> Tensor:
        """What the canaries add to the values of a view: of this round, or of several."""
        if seen.since:
            self._pending[view] = self._pending.get(view, 0) + gradients
            return self._pending[view]
        if seen.less and self._last is not None:
            return gradients - seen.less * self._last
        return gradients

    def _fit(self, view: str, held: Tensor, group: list[Seen]) -> None:
        """Score each client's canaries by what is seen of it."""
        if not group:
            return
        grams, aligned = [], []
        for seen in group:
            own = _there(held, seen)[0]
            grams.append(own @ own.T)
            aligned.append(alignment(own, seen.values))
            if seen.since:
                held[_places(seen), :, seen.at] = 0
        senders = [seen.sender for seen in group if seen.sender is not None]
        for attack, scores in fits(torch.stack(grams), torch.stack(aligned)).items():
            self._add(view, attack, scores, senders)

    def _fit_sums(self, view: str, held: Tensor, seen: Seen) -> None:
        """Score the canaries of all clients together, then those of each alone."""
        own = _there(held, seen)
        count, canaries = own.shape[:2]
        wide = own.flatten(0, 1)
        gram, aligned = wide @ wide.T, alignment(wide, seen.values)
        for attack, scores in fits(gram, aligned).items():
            self._add(view, attack, scores.view(count, canaries))
        blocks = gram.view(count, canaries, count, canaries).diagonal(dim1=0, dim2=2)
        for attack, scores in fits(blocks.permute(2, 0, 1), aligned.view(count, canaries)).items():
            self._add(f"{view}{ALONE}", attack, scores)

    def _minus_losses(self, models: Tensor) -> Tensor:
        outputs = torch.vmap(self._flat.outputs)(models, self._inputs)
        return -cross_entropy(outputs.mT, self._labels, reduction="none")

    def _add(
        self, view: str, attack: str, scores: Tensor, places: list[int] | slice = slice(None)
    ) -> None:
        """Add scores with mean 0 and deviation 1 in each client, so that rounds add up."""
        rows = scores.double().numpy()
        centered = rows - rows.mean(1, keepdims=True)
        centered /= rows.std(1, keepdims=True) + 1e-12
        self.scores[view, attack][places] += centered


def _places(seen: Seen) -> slice:
    """The client of a view, or all of them."""
    return slice(None) if seen.sender is None else slice(seen.sender, seen.sender + 1)


def _there(held: Tensor, seen: Seen) -> Tensor:
    """The canaries' gradients of these clients, on the coordinates that are seen."""
    places = _places(seen)
    return held[places] if len(seen.at) == held.shape[2] else held[places, :, seen.at]


def fits(gram: Tensor, aligned: Tensor) -> dict[str, Tensor]:
    """The canaries' weights by each attack, from one decomposition of their Gram matrix.

    A ridge expects small weights, for values with noise or from other samples.

    Args:
        gram: of the canaries' gradients on the seen coordinates, ``(..., canaries, canaries)``.
        aligned: their alignments with the values there, ``(..., canaries)``.
    """
    values, vectors = torch.linalg.eigh(gram)
    turned, trace = (aligned[..., None, :] @ vectors)[..., 0, :], values.sum(-1, keepdim=True)
    kept = values > RANK_CUT * values[..., -1:]
    inverses = {"least squares": torch.where(kept, 1 / values, torch.zeros_like(values))}
    for share in RIDGES:
        inverses[f"ridge, {share:.1%}"] = 1 / (values.clamp(min=0) + share * trace + 1e-30)
    solved = {
        attack: (vectors @ (inverse * turned)[..., None])[..., 0]
        for attack, inverse in inverses.items()
    }
    return {"alignment": aligned, **solved}
