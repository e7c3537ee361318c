"""The section of the pages of evidence on kinds and estimators of importance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from studies.cells import Cell
from studies.measures import Paired
from studies.sections.paragraphs import each_federation, of_split, table
from studies.sections.summaries import difference, mean, seeds, spread
from studies.settings import DIRICHLET
from studies.tables.importances import (
    BRIGHT,
    CLEAN,
    COMMON,
    DATA,
    EMPIRICAL,
    IMPROVED,
    KINDS,
    MISLABELLED,
    TRAINED,
    row,
)

__all__ = ["against", "importances"]

_WEIGHTS = (COMMON, TRAINED)


def importances(cells: Sequence[Cell]) -> Iterator[str]:
    """Recall and stability of supports by each kind, and what they share."""
    yield (
        "Importance of the samples of 40 clients at common weights, before training and after five "
        "epochs on the samples of all; K = 10%. The empirical Fisher is the mean of the squared "
        "gradients of single samples. Three estimators of it are robust. The median is of the "
        "means of nine blocks of samples. The trimmed mean is without an eighth of the squares at "
        "each end, parameter by parameter. The clipped one is of gradients that are cut to the "
        "client's median length. S is computed beside the service, which does not mix kinds."
    )
    yield (
        "The true Fisher takes labels of the model, not of the client: the mean over all of them "
        "by their probability, or one that is drawn. A client without labels has it. The improved "
        "empirical Fisher (Wu et al., 2024, Eq. 14) divides the squares of a sample by the squared "
        "length of the loss's gradient by the logits, |p - y|²."
    )
    yield (
        "Samples are as they are; or a tenth of each client's has another label; or a tenth is "
        "overexposed, ten times as bright. True neighbours are always by the labels as they are."
    )
    yield from each_federation(_compared)(cells)


def _compared(cells: Sequence[Cell]) -> Iterator[str]:
    yield (
        f"R@8 less that of the {EMPIRICAL}, least to largest over both splits and weights, and in "
        "how many of these rows the interval excludes 0:"
    )
    yield table(("kind", *DATA), ([kind, *_gains(cells, kind)] for kind in KINDS[1:]))
    for split in DIRICHLET:
        held = of_split(cells, split)
        if held:
            yield f"R@8 on {split}, {seeds(held)}:"
            yield table(
                ("weights", "kind", *DATA),
                (
                    [weights, kind, *(_shown(held, weights, data, kind, "R@8") for data in DATA)]
                    for weights in _WEIGHTS
                    for kind in KINDS
                ),
            )
    yield (
        "Rho is the stability of Eq. 1, the overlap of supports of eight bootstraps of a client's "
        "samples. S with the empirical Fisher is a client's own, and R@8 among is of one client's "
        "support of this kind among the empirical supports of all others. S with clean is of the "
        "supports of one kind from changed samples and from those as they are."
    )
    for split in DIRICHLET:
        held = of_split(cells, split)
        if held:
            yield f"Stability and overlaps on {split}, {seeds(held)}:"
            yield _stabilities(held)


def _stabilities(held: Sequence[Cell]) -> str:
    heads = ("rho", "S with empirical", "R@8 among empirical")
    damaged = (MISLABELLED, BRIGHT)
    return table(
        ("weights", "kind", *heads, *(f"S with clean, {data}" for data in damaged)),
        (
            [
                weights,
                kind,
                *(_shown(held, weights, CLEAN, kind, column) for column in heads),
                *(_shown(held, weights, data, kind, "S with clean") for data in damaged),
            ]
            for weights in _WEIGHTS
            for kind in KINDS
        ),
    )


def _shown(held: Sequence[Cell], weights: str, data: str, kind: str, column: str) -> str:
    return spread(held, row(weights, data, kind), column)


def _gains(cells: Sequence[Cell], kind: str) -> Iterator[str]:
    for data in DATA:
        found = [
            _gain(held, weights, data, kind)
            for split in DIRICHLET
            for weights in _WEIGHTS
            if (held := of_split(cells, split))
        ]
        means = [each.mean for each in found]
        decided = sum(each.decided for each in found)
        yield f"{min(means):+.3f} to {max(means):+.3f}, {decided} of {len(found)}"


def _gain(held: Sequence[Cell], weights: str, data: str, kind: str) -> Paired:
    ours, theirs = (row(weights, data, each) for each in (kind, EMPIRICAL))
    return difference(held, ours, theirs, "R@8")


def against(cells: Sequence[Cell]) -> Iterator[str]:
    """A sentence on common weights that are trained already, and what helps there."""
    for held in (of_split(cells, split) for split in DIRICHLET):
        if not held:
            continue
        plain, improved = (
            [mean(held, row(weights, CLEAN, kind), "R@8") for weights in _WEIGHTS]
            for kind in (EMPIRICAL, IMPROVED)
        )
        ours, theirs = (row(TRAINED, CLEAN, kind) for kind in (IMPROVED, EMPIRICAL))
        found = difference(held, ours, theirs, "R@8")
        if found.decided and found.mean > 0:
            yield (
                "**The mean of squared gradients finds few neighbours at weights that are trained "
                f"already**: on {held[0].setting.split} R@8 falls from {plain[0]:.3f} to "
                f"{plain[1]:.3f}. By the improved empirical Fisher it goes from {improved[0]:.3f} "
                f"to {improved[1]:.3f} (at trained weights {found} seeds). Few samples with large "
                "losses decide the mean."
            )
