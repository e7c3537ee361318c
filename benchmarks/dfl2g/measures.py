"""Ways to say how alike two clients' data are: modelkin's, and what stands beside them.

PACFL's and the paper's distances are written here from what their authors printed or published.
They are for comparison alone: both compare single entries or products of basis vectors, which
change with the basis that a singular value decomposition happens to give.

Sources: DFL2G, Eq. 10 and 11; PACFL (Vahidian et al., AAAI 2023) and its published code.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from demo.planted import CLASSES, Clients
from modelkin import FewSamplesWarning, Signature, Subspace, Support, fit_subspace, select_support
from modelkin.core.packed import PackedSupport
from modelkin.core.similarity.matrix import matrix
from modelkin.core.subspaces.affinity import affinities
from modelkin.torch import fisher_importance

__all__ = [
    "BY_CLASS",
    "EQ_11",
    "FLAT",
    "LABELS",
    "MEAN",
    "NAMES",
    "PACFL",
    "SIGNATURE",
    "SUPPORT",
    "WHOLE",
    "Measure",
    "fitted",
    "least_single_angle",
    "measures",
    "printed_basis",
    "printed_distance",
]

BY_CLASS: Final = "data subspace, by classes"
WHOLE: Final = "data subspace, by whole"
SUPPORT: Final = "support: Fisher at common weights, K = 10%"
SIGNATURE: Final = "the same, by a signature of 256"
PACFL: Final = "PACFL's published code"
FLAT: Final = "principal angles, flat, 3 a class"
EQ_11: Final = "Eq. 11 as printed"
MEAN: Final = "cosine of the mean sample"
LABELS: Final = "label histogram (an oracle)"
NAMES: Final = (BY_CLASS, WHOLE, SUPPORT, SIGNATURE, PACFL, FLAT, EQ_11, MEAN, LABELS)

_CLASS_RANK, _WHOLE_RANK = 3, 5
"""Directions of a class, as PACFL; of all samples, as the paper."""
_LEAST_SHARE = 1e-3
"""A direction of the bases of all classes with less of the first singular value is left out."""
_PERMUTATIONS = 256

Floats = npt.NDArray[np.float64]
Images = npt.NDArray[np.float32]
_T = TypeVar("_T")


@dataclass(frozen=True)
class Measure:
    """One way's measure of all pairs of clients.

    Attributes:
        distances: shape ``(n, n)``, symmetric, 0 on the diagonal.
        similarity: S, 0 to 1, by which a number of groups may be chosen; None where there is none.
        num_perm: of the signatures that S was estimated from; None where it is exact.
        bytes: of what a client sends, on average; None where it is a client's secret.
        seconds: to make it, on average.
    """

    distances: Floats
    similarity: Floats | None
    num_perm: int | None = None
    bytes: float | None = None
    seconds: float | None = None


def measures(clients: Clients, seed: int) -> dict[str, Measure]:
    """All of :data:`NAMES` on the same clients.

    Args:
        clients: with images.
        seed: of the common network, and of the signs that a decomposition may give.
    """
    of_classes, class_seconds = _timed(fitted, clients.samples, clients.labels)
    of_all, whole_seconds = _timed(fitted, clients.samples)
    rng = np.random.default_rng([seed, 11])
    found = {
        BY_CLASS: _of(affinities(of_classes, "classes"), _mean_bytes(of_classes), class_seconds),
        WHOLE: _of(affinities(of_all, "whole"), _mean_bytes(of_all), whole_seconds),
        **_supports(clients, seed),
        **_of_classes(clients),
        EQ_11: Measure(_euclidean([printed_basis(x, rng) for x in clients.samples]), None),
        MEAN: _of(_cosines(np.stack([_rows(x).mean(axis=0) for x in clients.samples]))),
        LABELS: _of(_label_overlaps(clients)),
    }
    return {name: found[name] for name in NAMES}


def fitted(x: Any, labels: Any = None, **options: Any) -> Subspace:
    """A subspace of few samples, whose owner accepts what these show."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewSamplesWarning)
        return fit_subspace(x, labels, samples_per_direction=1, **options)


def printed_distance(first: Floats, second: Floats) -> float:
    """Eq. 11: the Euclidean distance of two bases, entry by entry."""
    return float(np.linalg.norm(first - second))


def least_single_angle(first: Floats, second: Floats) -> float:
    """PACFL's code: the least arccos, in degrees, of products of one vector of each basis.

    Args:
        first: columns, shape ``(m, d)``.
        second: shape ``(m, e)``.
    """
    return float(np.degrees(np.arccos(np.clip(first.T @ second, -1.0, 1.0))).min())


def _of(similarity: Floats, size: float | None = None, seconds: float | None = None) -> Measure:
    distances = 1.0 - similarity
    np.fill_diagonal(distances, 0.0)
    return Measure(distances, np.clip(similarity, 0.0, 1.0), None, size, seconds)


def _mean_bytes(sent: Sequence[Subspace | Support | Signature]) -> float:
    return float(np.mean([len(each.to_bytes()) for each in sent]))


def _timed(make: Callable[..., _T], *arguments: Sequence[Any]) -> tuple[list[_T], float]:
    """Return the result for each client's arguments, and the mean seconds, after a warm-up."""
    make(*(each[0] for each in arguments))
    begin = time.perf_counter()
    made = [make(*each) for each in zip(*arguments, strict=True)]
    return made, (time.perf_counter() - begin) / len(made)


def _rows(x: Images) -> Floats:
    return x.reshape(len(x), -1).astype(np.float64)


# --- supports -------------------------------------------------------------------------------------


def _supports(clients: Clients, seed: int) -> dict[str, Measure]:
    network = _network(clients.samples[0].shape[-1], seed)
    found, seconds = _timed(partial(_support, network), clients.samples, clients.labels)
    exact = _of(matrix([PackedSupport.pack(each) for each in found]), _mean_bytes(found), seconds)
    signatures, more = _timed(partial(Support.signature, num_perm=_PERMUTATIONS), found)
    estimate = np.eye(len(signatures))
    for (i, one), (j, other) in combinations(enumerate(signatures), 2):
        estimate[i, j] = estimate[j, i] = one.similarity(other)
    size = _mean_bytes(signatures)
    signed = Measure(1.0 - estimate, estimate, _PERMUTATIONS, size, seconds + more)
    return {SUPPORT: exact, SIGNATURE: signed}


def _support(network: nn.Module, x: Images, labels: npt.NDArray[np.int64]) -> Support:
    dataset = TensorDataset(torch.as_tensor(x)[:, None], torch.as_tensor(labels))
    importance = fisher_importance(network, cross_entropy, DataLoader(dataset, batch_size=256))
    return select_support(importance, fraction=0.1)


def _network(side: int, seed: int) -> nn.Module:
    """For digits two convolutions and a classifier, else two hidden layers; He's initial weights.

    The classifier's are halved.
    """
    network = nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU()),
        *(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * (side // 2) ** 2, CLASSES)),
    )
    if side != 8:
        network = nn.Sequential(
            *(nn.Flatten(), nn.Linear(side * side, 128), nn.ReLU()),
            *(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, CLASSES)),
        )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weights in network.parameters():
            if weights.dim() == 1:
                weights.zero_()
                continue
            scale = (2 / weights[0].numel()) ** 0.5 / (2 if len(weights) == CLASSES else 1)
            weights.copy_(torch.randn(weights.shape, generator=generator) * scale)
    return network


# --- the literature's -----------------------------------------------------------------------------


def _of_classes(clients: Clients) -> dict[str, Measure]:
    """PACFL's signature, the first directions of all classes side by side, compared in two ways."""
    bases, seconds = _timed(_class_bases, clients.samples, clients.labels)
    size = float(np.mean([basis.size * 2 for basis in bases]))
    angles = np.zeros((len(bases), len(bases)))
    for (i, one), (j, other) in combinations(enumerate(bases), 2):
        angles[i, j] = angles[j, i] = least_single_angle(one, other)
    flat = affinities([Subspace.of_basis(_span(basis)) for basis in bases], "whole")
    return {
        PACFL: Measure(angles, None, None, size, seconds),
        FLAT: _of(flat, size, seconds),
    }


def _class_bases(x: Images, labels: npt.NDArray[np.int64]) -> Floats:
    return np.hstack(
        [_left_vectors(_rows(x[labels == label]), _CLASS_RANK) for label in np.unique(labels)]
    )


def _left_vectors(rows: Floats, rank: int) -> Floats:
    """Eq. 10: the first left singular vectors of features x samples, shape ``(m, rank)``."""
    found: Floats = np.linalg.svd(rows.T, full_matrices=False)[0][:, :rank]
    return found


def _span(basis: Floats) -> Floats:
    vectors, values, _ = np.linalg.svd(basis, full_matrices=False)
    found: Floats = vectors[:, values > _LEAST_SHARE * values[0]]
    return found


def printed_basis(x: Images, rng: np.random.Generator) -> Floats:
    """A basis as Eq. 11 takes it; its signs are any, as of a singular value decomposition."""
    signs = rng.choice([-1.0, 1.0], _WHOLE_RANK)
    return np.asarray(_left_vectors(_rows(x), _WHOLE_RANK) * signs)


def _euclidean(bases: Sequence[Floats]) -> Floats:
    out = np.zeros((len(bases), len(bases)))
    for (i, one), (j, other) in combinations(enumerate(bases), 2):
        out[i, j] = out[j, i] = printed_distance(one, other)
    return out


def _cosines(vectors: Floats) -> Floats:
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(units @ units.T)


def _label_overlaps(clients: Clients) -> Floats:
    """One minus the total variation of the labels that clients use, which only they know."""
    mixes = np.stack([np.bincount(y, minlength=CLASSES) / y.size for y in clients.labels])
    return np.asarray(np.minimum(mixes[:, None], mixes[None]).sum(axis=2))
