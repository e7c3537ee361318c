"""Groups that differ by little: how many samples a client needs for its support to show them.

Clients have the same digits, and each group of them has two labels of its own swapped.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import torch
from sklearn.metrics import adjusted_rand_score

from demo.planted import GROUPS
from modelkin import FewSamplesWarning, Subspace, fit_subspace
from studies.cells import Figures
from studies.federations import Federation, Floats
from studies.hub import Hub, HubSpace
from studies.settings import Setting, grid
from studies.tables.clusters import CLIENTS, IOS, row
from studies.tables.retrieval import supports_of

__all__ = [
    "DATA_SPACES",
    "FREE",
    "KNOWN",
    "NAME",
    "SHARES",
    "SPLIT",
    "figures",
    "settings",
    "subspaces_of",
]

NAME: Final = "samples"
SPLIT: Final = "swapped labels"
SHARES: Final = (0.25, 0.5, 0.75, 1.0)
"""The shares of a client's samples that it has; Table 1 leaves it three quarters."""
DATA_SPACES: Final = "data subspaces, by class"
KNOWN: Final = "number known"
FREE: Final = "number free"
_NETWORKS: Final = ("cnn", "two layers")
_SEEDS: Final = 5


def settings(seeds: Sequence[int], data: str, network: str) -> Iterator[Setting]:
    """Two networks on the hardest of the planted groups."""
    del network
    for each in _NETWORKS:
        yield from grid(seeds[:_SEEDS], data, each, (SPLIT,), CLIENTS)


def figures(setting: Setting, hub: Hub) -> Figures:
    """ARI by supports and by data subspaces, at the known number of groups and with it free."""
    whole = Federation.planted(setting, kept=0.0)
    found: Figures = {}
    for share in SHARES:
        federation = _with(whole, share)
        column = f"{share:.0%}"
        found.setdefault("samples", {})[column] = federation.labels.shape[1]
        m = federation.importances.shape[1]
        supports = supports_of(federation, federation.importances, "10%")
        with hub.space(f"{setting.name}-few", supports, m) as space:
            _add(found, IOS, column, federation, space)
            found.setdefault("S apart", {})[column] = _apart(federation, space.matrix())
        features = federation.samples[0][0].numel()
        with hub.data_space(f"{setting.name}-data", subspaces_of(federation), features) as space:
            _add(found, DATA_SPACES, column, federation, space)
    return found


def subspaces_of(federation: Federation) -> dict[str, Subspace]:
    """The subspace of each client's samples, by class."""
    samples, labels = federation.samples.flatten(2), federation.labels
    return dict(zip(federation.names, map(_subspace, samples, labels), strict=True))


def _with(federation: Federation, share: float) -> Federation:
    """The same clients with fewer samples."""
    return federation.with_samples(round(share * federation.labels.shape[1]))


def _add(found: Figures, name: str, column: str, federation: Federation, space: HubSpace) -> None:
    for way, labels in (
        (KNOWN, space.labels("agglomerative", GROUPS)),
        (FREE, space.labels()),
    ):
        agreement = float(adjusted_rand_score(federation.groups, labels))
        found.setdefault(row(name, way), {})[column] = agreement


def _apart(federation: Federation, similarity: Floats) -> float:
    """Mean S within groups less that between them."""
    same = federation.groups[:, None] == federation.groups[None]
    others = ~np.eye(len(same), dtype=bool)
    return float(similarity[same & others].mean() - similarity[~same].mean())


def _subspace(samples: torch.Tensor, labels: torch.Tensor) -> Subspace:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewSamplesWarning)  # their owners accept what these show
        return fit_subspace(samples.numpy(), labels.numpy(), samples_per_direction=1)
