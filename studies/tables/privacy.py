"""Private supports: the neighbours that are left at an epsilon, and what attacks still see.

Digits have 36 samples for each of 40 clients. Synthetic data have as many as one wants: 36, 360 and
3,600 for each of 20. The outsider attacks as on the supports of ``disclosure``, and knows how these
are made: it compares with votes of its own samples. Of members it takes what these do not explain.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from demo.data import CLASSES
from modelkin import Support, private_support, select_support
from modelkin.torch import vote_counts
from studies.attacks.membership import area, partial_correlation, top
from studies.cells import Figures
from studies.federations import Federation, Floats
from studies.hub import Hub
from studies.measures import Oracle
from studies.settings import DIRICHLET, Setting
from studies.tables.disclosure import OWN, PRESENT, Outsider, auc

__all__ = ["DELTA", "EPSILONS", "NAME", "SAMPLES", "figures", "members_seen", "row", "settings"]

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
    outsider, oracle = Outsider(federation), Oracle(federation.mixes)
    size = {"n": federation.labels.shape[1], "clients": setting.clients, "M": m, "K": k}
    found: Figures = {"federation": size | {"own": outsider.own}}
    labels = _Labels(federation, votes, k)
    masks = []
    for number, epsilon in enumerate(EPSILONS):
        supports = {
            name: _support(counts, k, epsilon, votes, (setting.seed << 32) + (number << 16) + at)
            for at, (name, counts) in enumerate(zip(federation.names, sums, strict=True))
        }
        with hub.space(f"{setting.name}-private-{number}", supports, m) as space:
            order = space.order()
        masks.append(np.stack([_inside(support) for support in supports.values()]))
        recall = {f"R@{near}": oracle.recall(order, near) for near in (4, 8)}
        found[row(epsilon)] = recall | {"label presence": labels.seen(masks[-1])}
    for epsilon, seen in zip(EPSILONS, members_seen(outsider, votes, masks), strict=True):
        found[row(epsilon)]["membership"] = seen
    return found


def _support(counts: Votes, k: int, epsilon: float, votes: int, seed: int) -> Support:
    """Seeded, so that a cell can be made again; that voids the claim, and nothing depends on it."""
    if math.isinf(epsilon):
        return _most(counts, k)
    return private_support(counts, k, epsilon, DELTA, math.sqrt(votes), seed=seed)


def _most(counts: Votes, k: int) -> Support:
    """The parameters of most votes, k where as many have any."""
    return select_support(counts.astype(np.float32), k=min(k, int(np.count_nonzero(counts))))


def _votes_of(federation: Federation, x: Tensor, y: Tensor, votes: int) -> Votes:
    loader = DataLoader(TensorDataset(x, y), batch_size=64)
    return np.asarray(vote_counts(federation.model, cross_entropy, loader, votes).numpy())


class _Labels:
    """The attack of an outsider with the weights on labels.

    Args:
        federation: the clients.
        votes: of a sample.
        k: of a support.
    """

    def __init__(self, federation: Federation, votes: int, k: int) -> None:
        self._present = federation.mixes >= PRESENT
        samples, labels = federation.test_samples[0], federation.test_labels[0]
        of_class = [torch.nonzero(labels == c).flatten()[:OWN] for c in range(CLASSES)]
        sums = [_votes_of(federation, samples[own], labels[own], votes) for own in of_class]
        self._classes = np.stack([_inside(_most(each, k)) for each in sums])

    def seen(self, inside: Floats) -> float:
        """The AUC, of supports as rows of 0 and 1."""
        guesses = inside @ self._classes.T
        return auc(self._present, guesses - guesses.mean(axis=0))


def members_seen(outsider: Outsider, votes: int, masks: Sequence[Floats]) -> Floats:
    """The AUC of an attack on members, by each of some supports of all clients."""
    known = _own_votes(outsider.known, votes)
    scores = []
    for candidates, *seen in zip(outsider.asked(), *masks, strict=True):
        own = _own_votes(candidates, votes)
        scores.append(partial_correlation(own[None], known, torch.as_tensor(np.stack([seen])))[0])
    return np.array([area(each) for each in np.stack(scores, axis=1)])


def _inside(support: Support) -> Floats:
    """1 where a support has an index."""
    inside = np.zeros(support.num_parameters)
    inside[support.indices.astype(np.intp)] = 1.0
    return inside


def _own_votes(each: Tensor, votes: int) -> Tensor:
    """1 where a sample votes for a parameter, by the gradients of each, ``(n, M)``."""
    return top(each.abs(), votes).float()
