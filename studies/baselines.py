"""Baselines of index overlaps: cosines and distances of values, CKA, and label histograms.

They need the values that index overlaps do without. Each is tuned on seeds that no table uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.func import functional_call

from demo.data import jensen_shannon
from studies.federations import Federation, Floats, Training

__all__ = [
    "HISTOGRAMS",
    "PLAIN_COSINE",
    "PLAIN_EUCLIDEAN",
    "of_importance",
    "of_training",
    "oracle",
]

PLAIN_COSINE: Final = "cosine of importance"
PLAIN_EUCLIDEAN: Final = "Euclidean of importance"
"""The paper's own two."""
HISTOGRAMS: Final = "label histograms (an oracle)"

_PROBES: Final = 512
"""About so many samples at most: all of digits' test set, and every n-th of a larger one."""

_POWERS: Final[dict[str, Callable[[Floats], Floats]]] = {
    "importance": lambda s: s,
    "importance^1/2": np.sqrt,
    "importance^1/4": lambda s: np.sqrt(np.sqrt(s)),
    "log importance": lambda s: np.log(s + 1e-12),
}


def of_importance(importances: npt.NDArray[np.floating]) -> dict[str, Floats]:
    """Similarities ``(N, N)`` by name, of importances ``(N, M)`` to several powers."""
    values = importances.astype(np.float64)
    powers = ({name: power(values)} for name, power in _POWERS.items())  # one after the other
    return {name: found for rows in powers for name, found in _compared(rows)}


def of_training(federation: Federation, training: Training) -> dict[str, Floats]:
    """Similarities by name, of what training leaves; needs gradients, or whole models."""
    rows = {"gradients": training.gradients, "updates": training.updates}
    return {**dict(_compared(rows)), "linear CKA on a probe set": _cka(federation, training)}


def oracle(mixes: Floats) -> Floats:
    """The similarity that recall is measured against: one less the divergence of labels."""
    return 1 - jensen_shannon(mixes)


def _compared(rows: dict[str, Floats]) -> Iterator[tuple[str, Floats]]:
    for name, values in rows.items():
        for word, own in (("", values), ("centred ", values - values.mean(axis=0))):
            yield f"{word}cosine of {name}", _cosine(own)
        yield f"Euclidean of {name}", _euclidean(values)


def _cosine(values: Floats) -> Floats:
    products = values @ values.T
    lengths = np.sqrt(np.diag(products)) + 1e-300
    return np.asarray(products / np.outer(lengths, lengths))


def _euclidean(values: Floats) -> Floats:
    """The negative distance: larger is nearer."""
    products = values @ values.T
    squares = np.diag(products)
    return np.asarray(-np.sqrt(np.maximum(squares[:, None] + squares[None] - 2 * products, 0)))


@torch.no_grad()
def _cka(federation: Federation, training: Training) -> Floats:
    """Linear CKA (Kornblith et al., 2019) of the last hidden layer on samples of the test set."""
    body = nn.Sequential(*list(federation.model.children())[:-1])
    tested = federation.test_samples[0]
    probes = tested[:: max(1, len(tested) // _PROBES)]
    own = [name for name, _ in body.named_parameters()]
    features = []
    for client in range(len(federation.labels)):
        weights = {name: training.weights[name][client] for name in own}
        found = functional_call(body, weights, (probes,)).double().numpy()
        features.append(found - found.mean(axis=0))
    grams = np.stack([(x @ x.T).ravel() for x in features])
    return _cosine(grams)
