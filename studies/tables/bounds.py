"""The bounds of Proposition 1 and of Theorem 1, beside what they bound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from modelkin import select_support
from studies.cells import Figures
from studies.federations import Federation, Floats
from studies.hub import Hub
from studies.measures import others
from studies.settings import Setting, grid
from studies.tables.retrieval import supports_of

__all__ = ["COSINE", "NAME", "SUPPORT", "figures", "settings"]

NAME: Final = "bounds"
COSINE: Final = "Proposition 1"
SUPPORT: Final = "Theorem 1"
_SEEDS: Final = 5
_BATCH: Final = 6
"""Samples of one estimate of importance; 36 of a client make six of them."""
_BETA: Final = 0.8
"""The paper's."""
_WATCHED: Final = 8


def settings(seeds: Sequence[int], data: str, network: str) -> Iterator[Setting]:
    """Both Dirichlet splits."""
    return grid(seeds[:_SEEDS], data, network)


def figures(setting: Setting, hub: Hub) -> Figures:
    """Cosines of importance beside their lower bound, and supports kept beside theirs."""
    federation = Federation.of(setting)
    values = federation.importances.astype(np.float64)
    supports = supports_of(federation, values, "10%")
    with hub.space(f"{setting.name}-bounds", supports, values.shape[1]) as space:
        similarity = space.matrix()
    return {
        COSINE: _of_cosines(values, similarity, next(iter(supports.values())).k),
        SUPPORT: _of_supports(federation, next(iter(supports.values())).k),
    }


def _of_cosines(values: Floats, similarity: Floats, k: int) -> dict[str, float]:
    """cos >= (1 - epsilon) R / kappa^2, each pair with its own epsilon and kappa."""
    heads = -np.sort(-values, axis=1)[:, :k]
    shares = (heads**2).sum(axis=1) / (values**2).sum(axis=1)
    spreads = heads[:, 0] / heads[:, -1]
    bounds = others(
        np.minimum.outer(shares, shares) * similarity / np.maximum.outer(spreads, spreads) ** 2
    )
    lengths = np.linalg.norm(values, axis=1)
    cosines = others(values @ values.T / np.outer(lengths, lengths))
    return {
        "least cosine": float(cosines.min()),
        "median cosine": float(np.median(cosines)),
        "log10 of the largest bound": float(np.log10(bounds.max())),
        "log10 of the median bound": float(np.log10(np.median(bounds))),
        "epsilon, mean": float(1 - shares.mean()),
        "log10 of kappa, median": float(np.log10(np.median(spreads))),
        "pairs above their bound": float((cosines >= bounds).mean()),
    }


def _of_supports(federation: Federation, k: int) -> dict[str, float]:
    """P(support unchanged) >= 1 - 2 M exp(-margin^2 / 8 sigma^2), sigma after an average.

    The noise is that of the importance of six samples: of the noisiest entry, as the theorem needs
    it, and of the entry at the boundary, which is more than it grants.
    """
    found: dict[str, list[float]] = {}
    for client in range(min(_WATCHED, len(federation.labels))):
        rows = _estimates(federation, client)
        mean, noise = rows.mean(axis=0), rows.std(axis=0, ddof=1)
        order = np.argsort(-mean, kind="stable")
        margin = mean[order[k - 1]] - mean[order[k]]
        after = (1 - _BETA) / (1 + _BETA)
        for name, sigma in (("noisiest entry", noise.max()), ("boundary", noise[order[k - 1]])):
            share = np.exp(-(margin**2) / (8 * sigma**2 * after))
            found.setdefault(f"bound, {name}", []).append(1 - 2 * mean.size * share)
        ours = set(order[:k].tolist())
        again = [{*_support(row, k)} for row in rows]
        found.setdefault("supports unchanged", []).append(again.count(ours) / len(again))
        kept = [len(ours & each) / k for each in again]
        found.setdefault("S of one estimate and the mean", []).append(float(np.mean(kept)))
    return {
        name: float(max(values) if name.startswith("bound") else np.mean(values))
        for name, values in found.items()
    }


def _estimates(federation: Federation, client: int) -> Floats:
    samples, labels = federation.samples[client], federation.labels[client]
    size = len(labels) // _BATCH
    rows = [
        federation.importance_of(samples[number::size], labels[number::size])
        for number in range(size)
    ]
    return np.stack(rows).astype(np.float64)


def _support(row: Floats, k: int) -> list[int]:
    return list(map(int, select_support(row.astype(np.float32), k=k).indices))
