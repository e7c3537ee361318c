"""Sections of the pages of evidence on what other definitions of the same figures give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from studies import baselines
from studies.cells import Cell
from studies.sections.paragraphs import each_federation, of_split, table
from studies.sections.summaries import mean, seeds, spread
from studies.settings import DIRICHLET
from studies.tables import definitions as defined
from studies.tables.retrieval import ios

__all__ = ["oracles", "present", "presence"]

_ROWS: Final = (
    *(
        f"{procedure}: {name}"
        for procedure in "AB"
        for name in (ios("A")[3:], baselines.PLAIN_COSINE, baselines.PLAIN_EUCLIDEAN)
    ),
    defined.CKA,
    defined.FEDBARY,
    baselines.HISTOGRAMS,
)
_RANKS: Final = ("tau-b", "Spearman", "rising bins", "error in a bin")


def oracles(cells: Sequence[Cell]) -> Iterator[str]:
    """Recall by each oracle, and how a similarity follows the one of labels."""
    yield (
        "R@8 where true neighbours are those of least distance between label histograms, by four "
        "distances. The paper names Wasserstein's, which needs a distance of labels. Along their "
        "numbers a 3 is nearer to a 4 than to an 8, which no importance shows, so **all "
        "similarities are alike by it, and even label histograms find no more**. Where labels are "
        "alike or not, it is the total variation; by that the paper computes FedBary."
    )
    yield (
        "Rank correlations are with the similarity by Jensen-Shannon, over the others of each "
        f"client. {defined.BINS} bins of equal size divide the pairs by it: rising bins is the "
        "share of bins with a mean above the last one's, and the error is how far a pair is from "
        "the mean of its bin, of a similarity that goes from 0 to 1."
    )
    yield from each_federation(_compared)(cells)


def _compared(cells: Sequence[Cell]) -> Iterator[str]:
    splits = [*dict.fromkeys(cell.setting.split for cell in cells)]
    held = {split: of_split(cells, split) for split in splits}
    for columns in (tuple(defined.ORACLES), _RANKS):
        yield table(
            ("split, seeds", "similarity", *columns),
            (
                [f"{split}, {len(own)}", name, *(spread(own, name, column) for column in columns)]
                for split, own in held.items()
                for name in _ROWS
            ),
        )


def presence(cells: Sequence[Cell]) -> Iterator[str]:
    """The AUC of label presence, by the least share that counts as having a label."""
    yield (
        "The outsider's AUC for whole supports, by the share of its samples from which a client "
        "counts as having a label: a label of a few samples is harder to see."
    )
    rows = []
    for split in dict.fromkeys(cell.setting.split for cell in cells):
        own = of_split(cells, split)
        figures = (spread(own, "label presence", column) for column in defined.LEAST)
        rows.append([f"{split}, {seeds(own)}", *figures])
    yield table(("split", *(f"from {least}" for least in defined.LEAST)), rows)


def present(cells: Sequence[Cell], least: str) -> float:
    """The mean AUC from such a share on, on the splits that label presence is shown of."""
    own = [cell for cell in cells if cell.setting.split in DIRICHLET]
    return mean(own, "label presence", least)
