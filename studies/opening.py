"""The opening of the page of evidence: when not to use index overlaps, and when to, in a minute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from studies import baselines
from studies.cells import Cell, Cells
from studies.sections import federations, of_split
from studies.settings import DIRICHLET
from studies.summaries import mean
from studies.tables import clusters, costs, disclosure, personal, retrieval, samples, uplift

__all__ = ["WORDS", "advice"]

WORDS: Final = """\
An index overlap (IOS) is the share of their most important parameters that two models have in
common. Clients send the indices of these, and no value. R@8 is the share of the eight clients
with the most similar labels that are found (0.21 by chance). ARI is the agreement with true
groups: 1 is all, 0 is chance. Where there are two figures, the first is of clients with few labels
each, Dir(0.1), the second of more mixed ones, Dir(0.3). All is measured on scikit-learn's digits,
with small networks.
"""
Row = tuple[str, str, str]
"""When, what then, and what was measured."""


def advice(cells: Cells) -> Iterator[str]:
    """Both lists, of the studies that have cells."""
    against = [*_values(cells), *_labels(cells), *_few(cells), *_alone(cells), *_donor(cells)]
    if against:
        yield "## When not to use it"
        yield _listed(against)
    for_it = [*_nearest(cells), *_concepts(cells), *_small(cells), *_chosen(cells)]
    if for_it:
        yield "## When to use it"
        yield _listed(for_it)


def _listed(rows: Sequence[Row]) -> str:
    return "\n".join(f"- **You {who}**: {what}. Measured: {seen}." for who, what, seen in rows)


def _values(cells: Cells) -> Iterator[Row]:
    own = _first(cells.of(retrieval.NAME))
    if own:
        ours, theirs = (
            _both(own, name, "R@8") for name in (retrieval.ios("A"), f"A: {baselines.PLAIN_COSINE}")
        )
        yield (
            "may send values",
            "send importances, and take their cosine",
            f"R@8 {theirs} by the cosine, {ours} by IOS",
        )


def _labels(cells: Cells) -> Iterator[Row]:
    own = cells.of(disclosure.NAME)
    if own:
        known = mean(own, "the service, from S", "10 known")
        yield (
            "must hide which labels a client has",
            "blind the indices, and use no service that knows some clients' labels",
            f"AUC {mean(own, 'whole', 'label presence'):.2f}; blinded "
            f"{mean(own, 'blinded', 'label presence'):.2f}, and {known:.2f} to a service that "
            "knows 10 of 40 clients",
        )


def _few(cells: Cells) -> Iterator[Row]:
    own = [cell for cell in cells.of(samples.NAME) if cell.setting.network == "cnn"]
    if own:
        names = (clusters.row(name, samples.KNOWN) for name in (clusters.IOS, samples.DATA_SPACES))
        ours, theirs = (mean(own, name, "50%") for name in names)
        yield (
            "look for groups that differ by little, with few samples a client",
            "take [data subspaces](starting.md#data-subspaces) by class",
            f"two of ten labels swapped, {mean(own, 'samples', '50%'):.0f} samples: ARI "
            f"{theirs:.2f} by subspaces, {ours:.2f} by IOS",
        )


def _alone(cells: Cells) -> Iterator[Row]:
    own = cells.of(personal.NAME)
    if own:
        alone, ours = (
            f"{mean(own, name, 'accuracy'):.2f}" for name in (clusters.ALONE, personal.ios("K*"))
        )
        yield (
            "have clients with a few labels each, and want the best model for each",
            "let each train alone, since clusters do not help it",
            f"accuracy {alone} alone, {ours} in clusters by IOS, "
            f"{mean(own, clusters.GLOBAL, 'accuracy'):.2f} by one global model",
        )


def _donor(cells: Cells) -> Iterator[Row]:
    own = cells.of(uplift.NAME)
    if own:
        yield (
            "can train a client for longer in place of starting from another's model",
            "train it alone",
            f"accuracy {_both(own, uplift.ALONE, 'accuracy')} alone, "
            f"{_both(own, retrieval.ios('A'), 'accuracy')} from the donor that IOS names",
        )


def _nearest(cells: Cells) -> Iterator[Row]:
    own = _first(cells.of(retrieval.NAME))
    if own:
        yield (
            "may send no values, and want the clients with similar data",
            "indices find most of them",
            f"R@8 {_both(own, retrieval.ios('A'), 'R@8')}",
        )


def _concepts(cells: Cells) -> Iterator[Row]:
    held = cells.of(clusters.NAME)
    own = [of_split(held, split) for split in ("rotations", "styles", "permuted labels")]
    if all(own):
        row = clusters.KNOWN
        others = (clusters.GLOBAL, clusters.ALONE)
        gains = [
            mean(each, row, "accuracy") - max(mean(each, name, "accuracy") for name in others)
            for each in own
        ]
        agreement = min(mean(each, row, "ARI") for each in own)
        yield (
            "have groups whose labels are alike, and whose images or meanings of labels are not",
            "cosines and label histograms see little of them",
            f"the least ARI on three kinds of groups is {agreement:.2f}, and their models' "
            f"accuracy {min(gains):.2f} to {max(gains):.2f} above the better of global and alone",
        )


def _small(cells: Cells) -> Iterator[Row]:
    own = [cell for cell in cells.of(costs.NAME) if cell.setting.network == "cnn"]
    if own:
        ours, whole = (mean(own, "bytes", name) for name in ("modelkin", "weights as float32"))
        yield (
            "need small messages",
            "a support is a fraction of a model",
            f"{ours:,.0f} bytes, and {whole:,.0f} of weights",
        )


def _chosen(cells: Cells) -> Iterator[Row]:
    own = cells.of(uplift.NAME)
    if own:
        yield (
            "start from a donor's model anyway",
            "the choice matters",
            f"accuracy {_both(own, retrieval.ios('A'), 'accuracy')} from the donor that IOS names, "
            f"{_both(own, uplift.RANDOM, 'accuracy')} from a random one",
        )


def _first(held: Sequence[Cell]) -> list[Cell]:
    """Of the first federation, where there is one."""
    return next((own for _, own in federations(held)), [])


def _both(cells: Sequence[Cell], row: str, column: str) -> str:
    """A figure on both Dirichlet splits, as far as there are cells."""
    held = [of_split(cells, split) for split in DIRICHLET]
    return " and ".join(f"{mean(own, row, column):.2f}" for own in held if own)
