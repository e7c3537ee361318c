"""Tables 10 and 11: how long clients train before their importance is taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from studies.cells import Figures
from studies.federations import Federation
from studies.hub import Hub
from studies.measures import Oracle
from studies.settings import Setting, grid
from studies.tables.retrieval import supports_of

__all__ = ["EPOCHS", "NAME", "figures", "settings"]

NAME: Final = "epochs"
EPOCHS: Final = (2, 4, 6, 8, 10)


def settings(seeds: Sequence[int], data: str, network: str) -> Iterator[Setting]:
    """Both Dirichlet splits."""
    return grid(seeds, data, network)


def figures(setting: Setting, hub: Hub) -> Figures:
    """R@8 by importance over local epochs, at the weights after them, and by their EMA."""
    federation = Federation.of(setting)
    oracle = Oracle(federation.mixes)
    m = federation.importances.shape[1]
    found: Figures = {"common weights": {}, "over the epochs": {}, "trained weights": {}}

    def recall(row: str, importances: npt.ArrayLike, column: str) -> None:
        supports = supports_of(federation, importances, "10%")
        with hub.space(f"{setting.name}-epochs", supports, m) as space:
            found[row][column] = oracle.recall(space.order(), 8)

    recall("common weights", federation.importances, "R@8")
    for count in EPOCHS:
        training = federation.trained(count)
        recall("over the epochs", training.moments, f"{count} epochs")
        at_end = np.stack(
            [
                federation.at(training.weights, client).importance_of(x, y)
                for client, (x, y) in enumerate(
                    zip(federation.samples, federation.labels, strict=True)
                )
            ]
        )
        recall("trained weights", at_end, f"{count} epochs")
    return found
