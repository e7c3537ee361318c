"""Private supports: the neighbours that are left at an epsilon, and what attacks still see.

Digits have 36 samples for each of 40 clients. Synthetic data have as many as one wants: 36, 360 and
3,600 for each of 20. The outsider attacks as on the supports of ``disclosure``, and knows how these
are made: it compares with votes of its own samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from demo.data import CLASSES
from modelkin import Support, private_support, select_support
from modelkin.torch import vote_counts
from studies.cells import Figures
from studies.federations import Federation, Floats
from studies.hub import Hub
from studies.measures import Oracle
from studies.settings import DIRICHLET, Setting
from studies.tables.disclosure import PRESENT, auc, gradients

__all__ = ["DELTA", "EPSILONS", "NAME", "SAMPLES", "figures", "row", "settings"]

NAME: Final = "private"
EPSILONS: Final = (1.0, 3.0, 10.0, 30.0, 100.0, math.inf)
DELTA: Final = 1e-5
SAMPLES: Final = (36, 360, 3_600)
"""The samples of each client, of synthetic data."""

_CLIENTS: Final = 20
"""The clients of synthetic data: with these a cell takes a minute."""
_SHARE: Final = 0.1
"""K / M."""
_VOTERS: Final = 4
"""A sample votes for K / 4 parameters: chosen on seeds that no table uses."""
_KNOWN: Final = 50
"""Samples of each class that the outsider has."""
_CANDIDATES: Final = 20
"""Samples of each client whose membership is asked, and as many others of the same classes."""

Votes = npt.NDArray[np.int64]


def settings(seeds: Sequence[int], data: str, network: str) -> Iterator[Setting]:
    """Both Dirichlet splits of digits; of synthetic data one, with each number of samples."""
    for seed in seeds:
        if data == "digits":
            yield from (Setting(data, network, split, seed=seed) for split in DIRICHLET)
        else:
            for count in SAMPLES:
                yield Setting(data, network, DIRICHLET[0], _CLIENTS, seed, count)


def row(epsilon: float) -> str:
    """The name of a row."""
    return "without noise" if math.isinf(epsilon) else f"epsilon {epsilon:g}"


def figures(setting: Setting, hub: Hub) -> Figures:
    """Recall by the service, and the AUC of both attacks, at each epsilon."""
    federation = Federation.of(setting)
    m = sum(p.numel() for p in federation.model.parameters())
    k = round(_SHARE * m)
    votes = k // _VOTERS
    sums = [
        _votes_of(federation, x, y, votes)
        for x, y in zip(federation.samples, federation.labels, strict=True)
    ]
    attack = _Attack(federation, votes, k)
    found: Figures = {
        "federation": {"n": federation.labels.shape[1], "clients": setting.clients, "M": m, "K": k}
    }
    for number, epsilon in enumerate(EPSILONS):
        supports = {
            name: _support(counts, k, epsilon, votes, (setting.seed << 32) + (number << 16) + at)
            for at, (name, counts) in enumerate(zip(federation.names, sums, strict=True))
        }
        with hub.space(f"{setting.name}-private-{number}", supports, m) as space:
            order = space.order()
        oracle = Oracle(federation.mixes)
        recall = {f"R@{near}": oracle.recall(order, near) for near in (4, 8)}
        found[row(epsilon)] = recall | attack.seen(supports)
    return found


def _support(counts: Votes, k: int, epsilon: float, votes: int, seed: int) -> Support:
    """Seeded, so that a cell can be made again; that voids the claim, and nothing depends on it."""
    if math.isinf(epsilon):
        return _most(counts, k)
    return private_support(counts, k, epsilon, DELTA, math.sqrt(votes), seed=seed)


def _most(counts: Votes, k: int) -> Support:
    """The parameters of most votes, k where as many have any."""
    return select_support(counts.astype(np.float32), k=min(k, int(np.count_nonzero(counts))))


def _votes_of(federation: Federation, x: torch.Tensor, y: torch.Tensor, votes: int) -> Votes:
    loader = DataLoader(TensorDataset(x, y), batch_size=64)
    return np.asarray(vote_counts(federation.model, cross_entropy, loader, votes).numpy())


class _Attack:
    """The attacks of an outsider with the weights on supports: labels, and members.

    Args:
        federation: the clients.
        votes: of a sample.
        k: of a support.
    """

    def __init__(self, federation: Federation, votes: int, k: int) -> None:
        self._present = federation.mixes >= PRESENT
        samples, labels = federation.test_samples[0], federation.test_labels[0]
        of_class = [torch.nonzero(labels == c).flatten()[:_KNOWN] for c in range(CLASSES)]
        sums = [_votes_of(federation, samples[own], labels[own], votes) for own in of_class]
        self._classes = np.stack([_inside(_most(each, k)) for each in sums])
        rng = np.random.default_rng([federation.setting.seed, 7])
        self._members, self._others = [], []
        for x, y in zip(federation.samples, federation.labels, strict=True):
            chosen = torch.as_tensor(rng.choice(len(y), _CANDIDATES, replace=False))
            same = [int(rng.choice(np.flatnonzero(labels == label))) for label in y[chosen]]
            self._members.append(_own_votes(federation, x[chosen], y[chosen], votes))
            self._others.append(_own_votes(federation, samples[same], labels[same], votes))

    def seen(self, supports: Mapping[str, Support]) -> dict[str, float]:
        """The AUC of each attack."""
        inside = np.stack([_inside(support) for support in supports.values()])
        guesses = inside @ self._classes.T
        members = []
        for row, own, others in zip(inside, self._members, self._others, strict=True):
            scores = np.r_[row[own].mean(axis=1), row[others].mean(axis=1)]
            truth = np.r_[np.ones(len(own)), np.zeros(len(others))]
            members.append(auc(truth, scores))
        return {
            "label presence": auc(self._present, guesses - guesses.mean(axis=0)),
            "membership": float(np.mean(members)),
        }


def _inside(support: Support) -> Floats:
    """1 where a support has an index."""
    inside = np.zeros(support.num_parameters)
    inside[support.indices.astype(np.intp)] = 1.0
    return inside


def _own_votes(federation: Federation, x: torch.Tensor, y: torch.Tensor, votes: int) -> Votes:
    """The parameters that each of some samples votes for, ``(n, V)``."""
    return np.asarray(gradients(federation.model, x, y).abs().topk(votes, dim=1).indices.numpy())
