"""Ordered supports beside index overlaps: what the order of indices adds, and what it shows.

Both similarities come from the service, of one ordered space; overlaps by rarity, which it does not
compute, are made here of the clients' own indices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from modelkin import select_support
from modelkin.core.similarity import overlap
from modelkin.core.similarity.ordered import ordered_similarities
from studies.cells import Figures
from studies.federations import Federation, Floats
from studies.hub import Hub
from studies.measures import Oracle, ranking
from studies.rarity import rare_overlap
from studies.settings import NETWORKS, Setting, fits, grid
from studies.tables.disclosure import importances_of_classes, label_presence
from studies.tables.retrieval import EPOCHS, supports_of

__all__ = ["GAIN", "LIKENESSES", "MEANS", "NAME", "figures", "row", "settings"]

NAME: Final = "ordered"
GAIN: Final = 0.04
"""In R@8, of two of three networks: less is not worth a second format."""
LIKENESSES: Final = ("IOS", "ordered", "rarity", "mean over K")
MEANS: Final = ("1%", "5%", "10%", "15%", "25%")
"""Sizes of supports, whose S is averaged."""

_SIZE: Final = "10%"


def settings(seeds: Sequence[int], data: str, network: str) -> Iterator[Setting]:
    """Both Dirichlet splits, of all networks: the rule is about how many of them gain."""
    del network
    for each in (found for found in NETWORKS if fits(data, found)):
        yield from grid(seeds, data, each)


def row(procedure: str, likeness: str) -> str:
    """The name of a row."""
    return f"{procedure}: {likeness}"


def figures(setting: Setting, hub: Hub) -> Figures:
    """R@8 by each likeness; label presence of plain and of ordered supports."""
    federation = Federation.of(setting)
    oracle = Oracle(federation.mixes)
    moments = federation.trained(EPOCHS).moments
    found = {
        row("A", likeness): {"R@8": recall}
        for likeness, recall in _recalls(federation, "A", federation.importances, oracle, hub)
    }
    for likeness, recall in _recalls(federation, "B", moments, oracle, hub):
        found[row("B", likeness)] = {"R@8": recall}
    for likeness, guesses in _seen_by_an_outsider(federation):
        presence = label_presence(federation.mixes, guesses)
        found[row("A", likeness)]["label presence"] = presence
    return found


def _recalls(
    federation: Federation, procedure: str, values: npt.ArrayLike, oracle: Oracle, hub: Hub
) -> Iterator[tuple[str, float]]:
    """Plain and ordered; and at common weights, what else was thought to add something."""
    m = np.shape(values)[1]
    similarities: list[Floats] = []
    for number, size in enumerate(MEANS if procedure == "A" else (_SIZE,)):
        supports = supports_of(federation, values, size, ordered=True)
        name = f"{federation.setting.name}-{procedure.lower()}-ordered-{number}"
        with hub.space(name, supports, m, ordered=True) as space:
            similarities.append(space.matrix())
            if size != _SIZE:
                continue
            yield "IOS", oracle.recall(space.order(), 8)
            yield "ordered", oracle.recall(ranking(space.matrix("ordered")), 8)
        if procedure == "A":
            yield (
                "rarity",
                oracle.recall(
                    ranking(rare_overlap([each.indices for each in supports.values()], m)), 8
                ),
            )
    if procedure == "A":
        yield "mean over K", oracle.recall(ranking(np.mean(similarities, axis=0)), 8)


def _seen_by_an_outsider(federation: Federation) -> Iterator[tuple[str, Floats]]:
    """How like each client is to a client of one class alone, ``(N, 10)``."""
    own = [*supports_of(federation, federation.importances, _SIZE, ordered=True).values()]
    k = max(support.k for support in own)
    classes = [select_support(row, k=k, ordered=True) for row in importances_of_classes(federation)]
    yield "IOS", np.array([[overlap.shared_count(a, b) for b in classes] for a in own], np.float64)
    yield "ordered", np.stack([ordered_similarities(a, classes) for a in own])
