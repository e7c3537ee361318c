"""The opening of the page of evidence: when not to use index overlaps, and when to, in a minute."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from studies import baselines, rivals
from studies.cells import Cell, Cells
from studies.sections import first, of_split
from studies.settings import DIRICHLET
from studies.summaries import mean
from studies.tables import clusters, costs, disclosure, retrieval, samples, uplift

__all__ = ["WORDS", "advice"]

WORDS: Final = """\
An index overlap (IOS) is the share of their most important parameters that two models have in
common. Clients send the indices of these, and no value. R@8 is the share of the eight clients
with the most similar labels that are found (0.21 by chance). ARI is the agreement with true
groups: 1 is all, 0 is chance. Where there are two figures, the first is of clients with few labels
each, Dir(0.1), the second of more mixed ones, Dir(0.3). The number of clusters is known to the
algorithm, or free: it finds its own. Differences are means over seeds with 95% intervals; one that
includes 0 decides nothing. All is measured on scikit-learn's digits, with small networks.
"""
Row = tuple[str, str, str]
"""When, what then, and what was measured."""
_NEIGHBOURS: Final = "the clients with similar data"
_BEATEN: Final = "Where something else trains better models"
_SPLITS: Final = """\
Splits where clusters by overlaps are behind one global model, each client alone, or IFCA or CFL,
which find clusters in training: the best of these, and who is also ahead. A "?" marks what is
undecided, since the interval of the difference includes 0. The number is "either" where both give
the same models. In four groups, clients differ by their labels (noisy labels:
beside 40% of any label), by what labels mean (permuted labels; swapped labels: two of ten), or by
their images (rotations, styles). There are no groups, and no ARI, on Dir, which Tables 1 and 8
deal differently, and on Patho(20%) and Patho(30%): two and three of ten labels a client.
"""


def advice(cells: Cells) -> Iterator[str]:
    """Both lists, of the studies that have cells."""
    against = (
        *_values(cells),
        *_cosine(cells),
        *_labels(cells),
        *_few(cells),
        *_donor(cells),
        *_beaten(cells),
    )
    if against:
        yield "## When not to use it"
        yield _listed(against)
    if rivals.lost(cells):
        yield f"### {_BEATEN}"
        yield _SPLITS
        yield rivals.beaten(cells)
    for_it = (
        *_nearest(cells),
        *_indices(cells),
        *_groups(cells),
        *_small(cells),
        *_chosen(cells),
    )
    if for_it:
        yield "## When to use it"
        yield _listed(for_it)


def _listed(rows: Iterable[Row]) -> str:
    return "\n".join(f"- **You {who}**: {what}. Measured: {seen}." for who, what, seen in rows)


def _values(cells: Cells) -> Iterator[Row]:
    own, ours = first(cells.of(retrieval.NAME)), retrieval.ios("A")
    cosine = f"A: {baselines.PLAIN_COSINE}"
    if _ahead(own, cosine, ours, "R@8"):
        yield (
            f"may send values, and want {_NEIGHBOURS}",
            "send importances, and take their cosine",
            f"R@8 {_both(own, cosine, 'R@8')} by the cosine, {_both(own, ours, 'R@8')} by IOS",
        )


def _cosine(cells: Cells) -> Iterator[Row]:
    seen = rivals.gains(cells, -1)
    if seen:
        yield (
            "may send values, and want clusters",
            "on some splits, the cosine trains better models than overlaps",
            f"decided gains in accuracy: {seen}",
        )


def _labels(cells: Cells) -> Iterator[Row]:
    own = cells.of(disclosure.NAME)
    if own:
        known = mean(own, "the service, from S", "10 known")
        yield (
            "must hide which labels a client has",
            "blind the indices, and use no service that knows some clients' labels",
            f"AUC {mean(own, 'whole', 'label presence'):.2f} (chance 0.5); blinded "
            f"{mean(own, 'blinded', 'label presence'):.2f}, and {known:.2f} to a service that "
            "knows 10 of 40 clients",
        )


def _few(cells: Cells) -> Iterator[Row]:
    own = [cell for cell in cells.of(samples.NAME) if cell.setting.network == "cnn"]
    names = (clusters.row(name, samples.KNOWN) for name in (clusters.IOS, samples.DATA_SPACES))
    ours, theirs = (mean(own, name, "50%") for name in names)
    if theirs > ours:
        yield (
            "look for groups that differ by little, with few samples a client",
            "take [data subspaces](starting.md#data-subspaces) by class",
            f"two of ten labels swapped, {mean(own, 'samples', '50%'):.0f} samples: ARI "
            f"{theirs:.2f} by subspaces, {ours:.2f} by IOS",
        )


def _donor(cells: Cells) -> Iterator[Row]:
    own = cells.of(uplift.NAME)
    if _ahead(own, uplift.ALONE, retrieval.ios("A"), "accuracy"):
        yield (
            "can train a client for longer in place of starting from another's model",
            "train it alone",
            f"accuracy {_both(own, uplift.ALONE, 'accuracy')} alone, "
            f"{_both(own, retrieval.ios('A'), 'accuracy')} from the donor that IOS names",
        )


def _beaten(cells: Cells) -> Iterator[Row]:
    seen = rivals.named(cells)
    if seen:
        yield (
            "want the best model for each client",
            "train in a better way where the table below has one",
            seen,
        )


def _nearest(cells: Cells) -> Iterator[Row]:
    own = first(cells.of(retrieval.NAME))
    if own:
        yield (
            f"may send no values, and want {_NEIGHBOURS}",
            "indices find most of them",
            f"R@8 {_both(own, retrieval.ios('A'), 'R@8')}",
        )


def _indices(cells: Cells) -> Iterator[Row]:
    seen = rivals.gains(cells, 1)
    if seen:
        yield (
            "want clusters, even if you may send values",
            "on some splits, overlaps train better models than the cosine",
            f"decided gains in accuracy: {seen}",
        )


def _groups(cells: Cells) -> Iterator[Row]:
    found = rivals.best(cells)
    if found:
        others = rivals.listed([*map(rivals.short, rivals.RIVALS)])
        yield (
            f"have groups such as {rivals.listed([place for place, _ in found])}",
            f"on average, clusters by overlaps train better models than {others}",
            f"accuracy {'; '.join(figures for _, figures in found)}",
        )


def _small(cells: Cells) -> Iterator[Row]:
    own = [cell for cell in cells.of(costs.NAME) if cell.setting.network == "cnn"]
    ours, whole = (mean(own, "bytes", name) for name in ("modelkin", "weights as float32"))
    if ours < whole:
        yield (
            "need small messages",
            "a support is a fraction of a model",
            f"{ours:,.0f} bytes, and {whole:,.0f} of weights",
        )


def _chosen(cells: Cells) -> Iterator[Row]:
    own = cells.of(uplift.NAME)
    if _ahead(own, retrieval.ios("A"), uplift.RANDOM, "accuracy"):
        yield (
            "start from a donor's model anyway",
            "the choice matters",
            f"accuracy {_both(own, retrieval.ios('A'), 'accuracy')} from the donor that IOS names, "
            f"{_both(own, uplift.RANDOM, 'accuracy')} from a random one",
        )


def _ahead(cells: Sequence[Cell], row: str, other: str, column: str) -> bool:
    """Whether a row has the better figure on each Dirichlet split that there are cells of."""
    held = [own for split in DIRICHLET if (own := of_split(cells, split))]
    return bool(held) and all(mean(own, row, column) > mean(own, other, column) for own in held)


def _both(cells: Sequence[Cell], row: str, column: str) -> str:
    """A figure on both Dirichlet splits, as far as there are cells."""
    held = [of_split(cells, split) for split in DIRICHLET]
    return " and ".join(f"{mean(own, row, column):.2f}" for own in held if own)
