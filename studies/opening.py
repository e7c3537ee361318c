"""The summary of the evidence: when not to use index overlaps, and when to, in a minute."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from studies import baselines, rivals
from studies.cells import Cell, Cells
from studies.real.families import mhcnuggets, spliceai, torchani
from studies.real.results import results
from studies.sections.definitions import present
from studies.sections.paragraphs import first, of_split
from studies.sections.summaries import mean
from studies.settings import DIRICHLET
from studies.tables import (
    clusters,
    costs,
    definitions,
    disclosure,
    membership,
    retrieval,
    samples,
    uplift,
)

__all__ = ["advice", "contested", "words"]

_WORDS: Final = """\
An index overlap (IOS) is the share of their most important parameters that two models have in
common. Clients send the indices of these, and no value. R@8 is the share of the eight clients
with the most similar labels that are found (0.21 by chance). ARI is the agreement with true
groups: 1 is all, 0 is chance. Where there are two figures, the first is of clients with few labels
each, Dir(0.1), the second of more mixed ones, Dir(0.3). The number of clusters is known to the
algorithm, or free: it finds its own. {seeds} All but published models, and
[one page](evidence/data.md) of Fashion-MNIST, is measured on scikit-learn's digits, with small
networks.
"""
_INTERVALS: Final = (
    "Differences are means over seeds with 95% intervals; one that includes 0 decides nothing."
)
_ONE_SEED: Final = "Figures are of one seed, have no intervals, and decide nothing."
Row = tuple[str, str, str, str]
"""When, what then, what was measured, and where the table is."""
_TABLES: Final = {
    "table1": "clusters.md#clusters-and-their-rivals",
    "better": "clusters.md#where-something-else-trains-better-models",
    "table3": "neighbours.md#neighbours-table-3",
    "table6": "supports.md#what-it-costs-tables-6-and-7",
    "uplift": "donors.md#what-a-donors-model-gives-table-4",
    "samples": "groups.md#groups-that-differ-by-little",
    "disclosure": "privacy.md#what-a-support-gives-away",
    "real": "checkpoints.md",
}
"""Where the figures of a claim stand, in the folder of the tables."""
_NEIGHBOURS: Final = "the clients with similar data"
_BEATEN: Final = "Where something else trains better models"
_SPLITS: Final = """\
Splits where clusters by overlaps are behind one global model, each client alone, or IFCA or CFL,
which find clusters in training: the best of these, and who is also ahead. A "?" marks what is
undecided, since the interval of the difference includes 0. The number is "either" where both give
the same models. In four groups, clients differ by their labels (noisy labels:
beside 40% of any label), by what labels mean (permuted labels; swapped labels: two of ten), or by
their images (rotations, styles). Drawn ones have labels by chance, in place of equal numbers.
There are no groups, and no ARI, on IID, whose clients differ by chance alone, on Dir, which Tables
1 and 8 deal differently, and on Patho(20%) and Patho(30%): two and three of ten labels a client.
"""


def words(cells: Cells) -> str:
    """What the words of the summary mean, and how far its figures decide."""
    one = len({cell.setting.seed for cell in cells.of(retrieval.NAME)}) == 1
    return _WORDS.format(seeds=_ONE_SEED if one else _INTERVALS)


def advice(cells: Cells) -> Iterator[str]:
    """Both lists, of the studies that have cells; each line has a figure that decides."""
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
    for_it = (
        *_nearest(cells),
        *_indices(cells),
        *_groups(cells),
        *_small(cells),
        *_chosen(cells),
        *_published(cells),
    )
    if for_it:
        yield "## When to use it"
        yield _listed(for_it)


def contested(cells: Cells) -> Iterator[str]:
    """The splits on which a rival is ahead, with their table."""
    if rivals.lost(cells):
        yield f"## {_BEATEN}"
        yield _SPLITS
        yield rivals.beaten(cells)


def _listed(rows: Iterable[Row]) -> str:
    return "\n".join(
        f"- **You {who}**: {what}. Measured: {seen}. {where}." for who, what, seen, where in rows
    )


def _at(table: str, *commands: str) -> str:
    """Where a table is, and the commands that measure it; one of its own name where none is."""
    said = " and ".join(f"`python -m studies {each}`" for each in commands or (table,))
    return f"[Table](evidence/{_TABLES[table]}), {said}"


def _values(cells: Cells) -> Iterator[Row]:
    own, ours = first(cells.of(retrieval.NAME)), retrieval.ios("A")
    cosine = f"A: {baselines.PLAIN_COSINE}"
    if _ahead(own, cosine, ours, "R@8"):
        yield (
            f"may send values, and want {_NEIGHBOURS}",
            "send importances, and take their cosine",
            f"R@8 {_both(own, cosine, 'R@8')} by the cosine, {_both(own, ours, 'R@8')} by IOS",
            _at("table3"),
        )


def _cosine(cells: Cells) -> Iterator[Row]:
    seen = rivals.gains(cells, -1)
    if seen:
        yield (
            "may send values, and want clusters",
            "on some splits, the cosine trains better models than overlaps",
            f"decided gains in accuracy: {seen}",
            _at("table1", "table1", "table8"),
        )


def _labels(cells: Cells) -> Iterator[Row]:
    own = cells.of(disclosure.NAME)
    if own:
        known = mean(own, "the service, from S", "10 known")
        few = present(cells.of(definitions.NAME), definitions.LEAST[0])
        rare = "" if math.isnan(few) else f", {few:.2f} for labels of any sample"
        secret = of_split(cells.of(membership.NAME), membership.SPLITS[0])
        one = mean(secret, membership.row(16, membership.OWN_INDICES), "1")
        alone = "" if math.isnan(one) else f", {one:.2f} for one of 16 samples"
        yield (
            "must hide a client's labels, or its few samples",
            "blind the indices, from services that know no labels",
            f"AUC {mean(own, 'whole', 'label presence'):.2f} for labels of 10% of a client's "
            f"samples or more{rare}{alone} (chance 0.5); labels blinded "
            f"{mean(own, 'blinded', 'label presence'):.2f}, and {known:.2f} to a service that "
            "knows 10 of 40 clients",
            _at("disclosure", "disclosure", *([membership.NAME] if secret else [])),
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
            _at("samples"),
        )


def _donor(cells: Cells) -> Iterator[Row]:
    own = cells.of(uplift.NAME)
    if _ahead(own, uplift.ALONE, retrieval.ios("A"), "accuracy"):
        yield (
            "can train a client for longer in place of starting from another's model",
            "train it alone",
            f"accuracy {_both(own, uplift.ALONE, 'accuracy')} alone, "
            f"{_both(own, retrieval.ios('A'), 'accuracy')} from the donor that IOS names",
            _at("uplift"),
        )


def _beaten(cells: Cells) -> Iterator[Row]:
    seen = rivals.named(cells)
    if seen:
        yield (
            "want the best model for each client",
            "train in a better way where the table has one",
            seen,
            _at("better", "table1", "table8"),
        )


def _nearest(cells: Cells) -> Iterator[Row]:
    own = first(cells.of(retrieval.NAME))
    if own:
        yield (
            f"may send no values, and want {_NEIGHBOURS}",
            "indices find most of them",
            f"R@8 {_both(own, retrieval.ios('A'), 'R@8')}",
            _at("table3"),
        )


def _indices(cells: Cells) -> Iterator[Row]:
    seen = rivals.gains(cells, 1)
    if seen:
        yield (
            "want clusters, even if you may send values",
            "on some splits, overlaps train better models than the cosine",
            f"decided gains in accuracy: {seen}",
            _at("table1", "table1", "table8"),
        )


def _groups(cells: Cells) -> Iterator[Row]:
    found = rivals.best(cells)
    if found:
        others = rivals.listed([*map(rivals.short, rivals.RIVALS)])
        yield (
            f"have groups such as {rivals.listed([place for place, _ in found])}",
            f"on average, clusters by overlaps train better models than {others}",
            f"accuracy {'; '.join(figures for _, figures in found)}",
            _at("table1"),
        )


def _small(cells: Cells) -> Iterator[Row]:
    own = [cell for cell in cells.of(costs.NAME) if cell.setting.network == "cnn"]
    ours, whole = (mean(own, "bytes", name) for name in ("modelkin", "weights as float32"))
    if ours < whole:
        yield (
            "need small messages",
            "a support is a fraction of a model",
            f"{ours:,.0f} bytes, and {whole:,.0f} of weights",
            _at("table6"),
        )


def _chosen(cells: Cells) -> Iterator[Row]:
    own = cells.of(uplift.NAME)
    if _ahead(own, retrieval.ios("A"), uplift.RANDOM, "accuracy"):
        yield (
            "start from a donor's model anyway",
            "the choice matters",
            f"accuracy {_both(own, retrieval.ios('A'), 'accuracy')} from the donor that IOS names, "
            f"{_both(own, uplift.RANDOM, 'accuracy')} from a random one",
            _at("uplift"),
        )


def _published(cells: Cells) -> Iterator[Row]:
    held = {each.family: each.figures for each in results(cells.folder)}
    if {torchani.NAME, mhcnuggets.NAME, spliceai.NAME} <= held.keys():
        ani, lstms = held[torchani.NAME]["K = 5%"], held[mhcnuggets.NAME]["K = 5%"]
        kappa, cosine = (
            max(found[f"{measure}, greatest"] for found in held[spliceai.NAME].values())
            for measure in ("kappa", "cosine")
        )
        yield (
            "ask which published models were made from which",
            "supports find most parents, and kappa tells strangers apart",
            f"no model is nearer than the parent of {ani['nearest']:.0f} of 8 ANI networks, and of "
            f"{lstms['nearest of 60']:.0f} of 60 LSTMs; five seeds of SpliceAI, which are not kin, "
            f"have kappa of at most {kappa:.2f}, and cosines of up to {cosine:.2f}",
            _at("real"),
        )


def _ahead(cells: Sequence[Cell], row: str, other: str, column: str) -> bool:
    """Whether a row has the better figure on each Dirichlet split that there are cells of."""
    held = [own for split in DIRICHLET if (own := of_split(cells, split))]
    return bool(held) and all(mean(own, row, column) > mean(own, other, column) for own in held)


def _both(cells: Sequence[Cell], row: str, column: str) -> str:
    """A figure on both Dirichlet splits, as far as there are cells."""
    held = [of_split(cells, split) for split in DIRICHLET]
    return " and ".join(f"{mean(own, row, column):.2f}" for own in held if own)
