"""Figure 1: was a sample a client's? By gradients and by indices, over rounds of a federation.

Each round the clients send what they have at the common weights, and train these on. The outsider
has the weights of each round, or a shadow model alone, which it trains on samples of its own. It is
asked of members, and of as many others of the same classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from demo.cohort import BATCH, Cohort, Weights, repeat, stack
from studies.attacks.membership import (
    Scores,
    accuracy,
    area,
    cosine,
    overlap,
    partial_correlation,
    shares_of,
    top,
)
from studies.cells import Figures
from studies.clustered import EPOCHS
from studies.federations import Federation
from studies.hub import Hub
from studies.networks.small import common_model
from studies.settings import Setting, grid
from studies.tables.disclosure import gradients

__all__ = [
    "ATTACKS",
    "BLINDED",
    "DRAWN",
    "NAME",
    "OWN_GRADIENTS",
    "OWN_INDICES",
    "PAPER",
    "ROUNDS",
    "SAMPLES",
    "SPLITS",
    "figures",
    "row",
    "settings",
]

NAME: Final = "membership"
SPLITS: Final = ("IID", "Dir(0.1)")
SAMPLES: Final = (4, 8, 16, 32, 64, 128)
"""The samples of each client."""
ROUNDS: Final = (1, 2, 5, 10)
"""The rounds after which the outsider is asked."""

GRADIENTS: Final = "gradients: cosine"
OWN_GRADIENTS: Final = "gradients: beside own samples"
IMPORTANCES: Final = "importances: cosine"
INDICES: Final = "indices: S"
UNIONS: Final = "indices: S of unions"
OWN_INDICES: Final = "indices: beside own samples"
BLINDED: Final = "blinded indices: beside own samples"
SHADOW_GRADIENTS: Final = "gradients, shadow model: cosine"
PAPER: Final = "indices, shadow model: S of the union"
STRANGE: Final = "indices, shadow model of other first weights: S of the union"
LOSS: Final = "no message: loss of the common model"
ATTACKS: Final = (
    *(GRADIENTS, OWN_GRADIENTS, IMPORTANCES, INDICES, UNIONS, OWN_INDICES, BLINDED),
    *(SHADOW_GRADIENTS, PAPER, STRANGE, LOSS),
)
DRAWN: Final = (OWN_INDICES, OWN_GRADIENTS, INDICES, GRADIENTS, PAPER, LOSS)
"""Those of the picture."""

_CLIENTS: Final = 8
"""As many have 128 digits each."""
_SEEDS: Final = 5
_SHARE: Final = 0.1
"""K / M."""
_CANDIDATES: Final = 10
"""Members of each client that are asked about, and as many others."""
_KNOWN: Final = 8
"""Samples of each class that the outsider has."""


def settings(seeds: Sequence[int], data: str, network: str) -> Iterator[Setting]:
    """Clients with the same classes, and with few each."""
    yield from grid(seeds[:_SEEDS], data, network, SPLITS, _CLIENTS)


def row(samples: int, attack: str) -> str:
    """The name of a row."""
    return f"{samples} samples, {attack}"


def figures(setting: Setting, hub: Hub | None) -> Figures:
    """The AUC of each attack after some rounds, and after all of them its accuracy."""
    del hub  # who attacks asks no service
    federation = _shuffled(Federation.of(setting))
    outside = _Outside.of(federation)
    found: Figures = {}
    for count in SAMPLES:
        own = federation.with_samples(count)
        scores = _attacked(own, outside)
        for attack in ATTACKS:
            each = scores[attack]
            found[row(count, attack)] = {
                **{str(number): area(each[number]) for number in ROUNDS},
                "accuracy": accuracy(each[ROUNDS[-1]]),
            }
    return found


def _shuffled(federation: Federation) -> Federation:
    """The same in random order, so that the first samples of a client are any of its classes."""
    rng = np.random.default_rng([federation.setting.seed, 8])
    size = federation.labels.shape[1]
    order = torch.as_tensor(np.stack([rng.permutation(size) for _ in federation.labels]))
    samples = torch.stack([own[at] for own, at in zip(federation.samples, order, strict=True)])
    return replace(federation, samples=samples, labels=federation.labels.gather(1, order))


@dataclass(frozen=True)
class _Outside:
    """What no client has.

    Attributes:
        samples: the outsider's own, ``(r, ...)``.
        labels: ``(r,)``.
        other_samples: those that are asked about as no members.
        other_labels: theirs.
        shadows: the models that the outsider trains as a client does: from the common first
            weights, and from others; after each of :data:`ROUNDS`.
    """

    samples: Tensor
    labels: Tensor
    other_samples: Tensor
    other_labels: Tensor
    shadows: Mapping[int, tuple[nn.Module, nn.Module]]

    @classmethod
    def of(cls, federation: Federation) -> _Outside:
        """Test samples, some of each class for the outsider."""
        samples, labels = federation.test_samples[0], federation.test_labels[0]
        known = torch.zeros(len(labels), dtype=torch.bool)
        for label in range(federation.mixes.shape[1]):
            known[torch.nonzero(labels == label).flatten()[:_KNOWN]] = True
        own = (samples[known], labels[known])
        return cls(*own, samples[~known], labels[~known], _shadows(federation, *own))

    def like(self, labels: Tensor, rng: np.random.Generator) -> Tensor:
        """The numbers of as many others of the same classes, none twice."""
        drawn = rng.permutation(len(self.other_labels))
        left = {
            label: list(drawn[self.other_labels.numpy()[drawn] == label])
            for label in labels.unique().tolist()
        }
        return torch.as_tensor([int(left[label].pop()) for label in labels.tolist()])


def _shadows(
    federation: Federation, samples: Tensor, labels: Tensor
) -> dict[int, tuple[nn.Module, nn.Module]]:
    seed, shape, classes = federation.setting.seed, samples.shape[1:], federation.mixes.shape[1]
    other = common_model(federation.setting.network, shape, classes, seed + 1000)
    cohort = Cohort(federation.model, samples.expand(2, *samples.shape), labels.expand(2, -1))
    weights = stack([federation.model, other])
    found: dict[int, tuple[nn.Module, nn.Module]] = {}
    for number in range(1, ROUNDS[-1] + 1):
        cohort.train(weights, EPOCHS, torch.Generator().manual_seed(seed * 1000 + number))
        if number in ROUNDS:
            found[number] = (federation.at(weights, 0).model, federation.at(weights, 1).model)
    return found


def _attacked(federation: Federation, outside: _Outside) -> dict[str, dict[int, Scores]]:
    """The scores of each attack after some rounds: of all candidates, ``(N, 2 c)``."""
    rng = np.random.default_rng([federation.setting.seed, 9])
    asked = _Asked.of(federation, outside, rng)
    sums: dict[str, Scores] = {}
    unions, totals = _Unions(), torch.zeros(1)
    found: dict[str, dict[int, Scores]] = {attack: {} for attack in ATTACKS}
    for number, now in enumerate(_rounds(federation), 1):
        view = _View.of(now, asked, outside)
        totals = totals + view.gradients
        unions.add(view)
        for attack, scores in view.scores():
            sums[attack] = sums.get(attack, 0) + scores
        if number in ROUNDS:
            held = sums | {LOSS: asked.losses(now.model), UNIONS: unions.scores()}
            held |= dict(_by_shadows(outside.shadows[number], asked, totals, unions.clients))
            for attack, scores in held.items():
                found[attack][number] = scores.copy()
    return found


def _rounds(federation: Federation) -> Iterator[Federation]:
    """The federation at the common weights of each round, which all clients train."""
    times = -(-BATCH // federation.labels.shape[1])  # few samples are repeated to fill a batch
    samples = torch.cat([federation.samples] * times, dim=1)
    cohort = Cohort(federation.model, samples, torch.cat([federation.labels] * times, dim=1))
    weights: Weights = stack([federation.model])
    for number in range(ROUNDS[-1]):
        yield federation.at(weights, 0)
        trained = repeat(weights, len(cohort))
        generator = torch.Generator().manual_seed(federation.setting.seed * 1000 + number)
        cohort.train(trained, EPOCHS, generator)
        weights = {name: values.mean(dim=0, keepdim=True) for name, values in trained.items()}


@dataclass(frozen=True)
class _Asked:
    """The candidates of each client, members first.

    Attributes:
        samples: ``(N, 2 c, ...)``.
        labels: ``(N, 2 c)``.
    """

    samples: Tensor
    labels: Tensor

    @classmethod
    def of(cls, federation: Federation, outside: _Outside, rng: np.random.Generator) -> _Asked:
        """The first samples of each client, and others of the same classes."""
        own = federation.with_samples(min(_CANDIDATES, federation.labels.shape[1]))
        others = torch.stack([outside.like(labels, rng) for labels in own.labels])
        samples = torch.cat([own.samples, outside.other_samples[others]], dim=1)
        return cls(samples, torch.cat([own.labels, outside.other_labels[others]], dim=1))

    def gradients(self, model: nn.Module) -> Tensor:
        """Those of each candidate, ``(N, 2 c, M)``."""
        found = gradients(model, self.samples.flatten(0, 1), self.labels.flatten())
        return found.view(*self.labels.shape, -1)

    @torch.no_grad()
    def losses(self, model: nn.Module) -> Scores:
        """Less the loss of each, ``(N, 2 c)``."""
        outputs = model(self.samples.flatten(0, 1))
        each = cross_entropy(outputs, self.labels.flatten(), reduction="none")
        return -each.view(self.labels.shape).double().numpy()


@dataclass(frozen=True)
class _View:
    """One round: what the clients have, and what the outsider makes of its candidates.

    Attributes:
        gradients: the mean of each client, ``(N, M)``.
        importances: the mean of its squared gradients, ``(N, M)``.
        supports: the masks of its indices, ``(N, M)``.
        candidates: the gradients of the candidates, ``(N, 2 c, M)``.
        known: those of the outsider's own samples, ``(r, M)``.
        key: where a blinded support has each parameter, ``(M,)``.
    """

    gradients: Tensor
    importances: Tensor
    supports: Tensor
    candidates: Tensor
    known: Tensor
    key: Tensor

    @classmethod
    def of(cls, federation: Federation, asked: _Asked, outside: _Outside) -> _View:
        """At the weights of a federation."""
        model = federation.model
        means, squares = [], []
        for x, y in zip(federation.samples, federation.labels, strict=True):
            each = gradients(model, x, y)
            means.append(each.mean(dim=0))
            squares.append(each.square().mean(dim=0))
        importances = torch.stack(squares)
        supports = top(importances, _size(importances))
        known = gradients(model, outside.samples, outside.labels)
        secret = torch.Generator().manual_seed(federation.setting.seed)
        key = torch.randperm(importances.shape[1], generator=secret)
        own = asked.gradients(model)
        return cls(torch.stack(means), importances, supports, own, known, key)

    @cached_property
    def own_supports(self) -> Tensor:
        """The masks of the candidates' own indices, ``(N, 2 c, M)``."""
        return _supports(self.candidates)

    def scores(self) -> Iterator[tuple[str, Scores]]:
        """Those that are summed over rounds."""
        own, shares = self.candidates, shares_of(self.candidates)
        yield GRADIENTS, _each(cosine, own, self.gradients)
        yield IMPORTANCES, _each(cosine, own.square(), self.importances)
        yield INDICES, _each(overlap, self.own_supports, self.supports)
        seen = self.gradients[:, None]
        yield OWN_GRADIENTS, partial_correlation(own, self.known, seen)[:, 0]
        seen = torch.stack([self.supports, self.supports[:, self.key]], dim=1)
        both = partial_correlation(shares, shares_of(self.known), seen)
        yield OWN_INDICES, both[:, 0]
        yield BLINDED, both[:, 1]


class _Unions:
    """The unions of supports over rounds: of clients, and of candidates.

    Attributes:
        clients: masks ``(N, M)``.
        candidates: masks ``(N, 2 c, M)``.
    """

    def __init__(self) -> None:
        self.clients = self.candidates = torch.zeros(1, dtype=torch.bool)

    def add(self, view: _View) -> None:
        """Those of one more round."""
        self.clients = self.clients | view.supports
        self.candidates = self.candidates | view.own_supports

    def scores(self) -> Scores:
        """S of both."""
        return _each(overlap, self.candidates, self.clients)


def _by_shadows(
    shadows: tuple[nn.Module, nn.Module], asked: _Asked, totals: Tensor, unions: Tensor
) -> Iterator[tuple[str, Scores]]:
    """The paper's attack: candidates at the weights of a shadow model, clients over all rounds."""
    for attack, shadow in zip((PAPER, STRANGE), shadows, strict=True):
        candidates = asked.gradients(shadow)
        if attack == PAPER:
            yield SHADOW_GRADIENTS, _each(cosine, candidates, totals)
        yield attack, _each(overlap, _supports(candidates), unions)


def _each(score: Callable[[Tensor, Tensor], Scores], candidates: Tensor, seen: Tensor) -> Scores:
    """A score of the candidates of each client, ``(N, 2 c)``."""
    return np.stack([score(own, of) for own, of in zip(candidates, seen, strict=True)])


def _supports(gradients_of_samples: Tensor) -> Tensor:
    flat = gradients_of_samples.flatten(0, 1).square()
    return top(flat, _size(flat)).view(gradients_of_samples.shape)


def _size(values: Tensor) -> int:
    return round(_SHARE * values.shape[-1])
