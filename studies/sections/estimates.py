"""Sections of the page of evidence: what a support is estimated with, and the paper's bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from studies.cells import Cell
from studies.sections.paragraphs import of_split, table
from studies.sections.summaries import difference, mean, over_seeds, spread, values
from studies.settings import DIRICHLET
from studies.tables import bounds as bounded

__all__ = ["against", "bounds", "estimates"]

_AVERAGES = ("0.8 a step", "0.95 a step", "0.99 a step", "0.8 an epoch", "of all steps alike")


def estimates(cells: Sequence[Cell]) -> Iterator[str]:
    """Resamples, averages, signatures and buckets, each by how much of it there is."""
    yield (
        "K = 10%, importance at the common weights, where nothing else is said. First the "
        "stability rho of Eq. 1 by its number of resamples r, beside that of 64, and the error "
        "that Proposition D.2 allows in 95% of cases, here of Eq. 1."
    )
    yield _table(cells, "resamples", "rho of", ("RMSE", "95% of errors below", "Proposition D.2"))
    yield (
        "R@8 of supports by the average of squared gradients over eight local epochs, by the unit "
        "of its decay. A client has three steps an epoch, 24 in all: an average with a decay of "
        "0.99 a step is nearly that of all steps alike."
    )
    yield _table(cells, "average", "average", ("R@8",))
    yield table(("split", "R@8", over_seeds(cells)), _decays(cells))
    yield "Signatures alone, by h: R@8, and the error of S beside what Lemma E.1 expects of it."
    yield _table(cells, "h", "signature of", ("R@8", "RMSE", "expected RMSE"))
    yield (
        "Models that share a bucket with one of 40, as `candidates` of the service's answers with "
        "`method=lsh` counts them, and as Theorem E.3 has it (without the model itself). The "
        "formula is about means over hash functions, and all clients here have the same ones."
    )
    yield _table(cells, "banding", "banding", ("candidates", "Theorem E.3", "RMSE over clients"))


def _decays(cells: Sequence[Cell]) -> Iterator[list[str]]:
    """The shortest average less the others, on the same seeds."""
    short, *others = (f"average, {name}" for name in _AVERAGES)
    for split in DIRICHLET:
        held = of_split(cells, split)
        for name in others if held else ():
            words = f"{short} less {name}".replace("average, ", "")
            yield [split, words, str(difference(held, short, name, "R@8"))]


def bounds(cells: Sequence[Cell]) -> Iterator[str]:
    """Each bound beside what it bounds."""
    yield (
        "**Both bounds hold, and both are vacuous.** Proposition 1: the cosine of two importances "
        "is at least (1 - ε) R / κ², where κ is the largest entry of a support over the smallest, "
        "here some 10³. Theorem 1: a support stays as it is with a probability of at least "
        "1 - 2M exp(-Δ²/8σ²), where Δ is the difference of entries K and K + 1. Here that is "
        "below 0, whether σ is the noise of the noisiest entry, as the theorem needs it, or of "
        "entry K, which grants it more. Importance is of six samples each time, its average has "
        "the paper's decay of 0.8, and the client with the largest bound is shown. **Do not "
        "choose K or trust a support by these.** What is measured is in the last rows: all bounds "
        "of cosines hold, but no support stays exactly as it is."
    )
    rows = []
    for split in DIRICHLET:
        held = of_split(cells, split)
        if held:
            rows += [[split, *row] for row in _bounded(held)]
    yield table(("split", "what", "value"), rows)


def _bounded(held: Sequence[Cell]) -> Iterator[tuple[str, str]]:
    def of(row: str, column: str) -> float:
        return mean(held, row, column)

    cosine, support = bounded.COSINE, bounded.SUPPORT
    yield "cosine of importance, least of all pairs", f"{of(cosine, 'least cosine'):.3f}"
    yield "cosine of importance, median", f"{of(cosine, 'median cosine'):.3f}"
    for which in ("largest", "median"):
        exponent = of(cosine, f"log10 of the {which} bound")
        yield f"Proposition 1, {which} bound", f"{10**exponent:.0e}"
    for which in ("noisiest entry", "boundary"):
        yield f"Theorem 1, σ of the {which}", f"{of(support, f'bound, {which}'):,.0f}"
    yield "supports unchanged", f"{of(support, 'supports unchanged'):.3f}"
    kept = "S of one estimate and the mean"
    yield "S of one estimate and the mean of all", spread(held, support, kept)


def against(cells: Sequence[Cell], bound_cells: Sequence[Cell]) -> Iterator[str]:
    """Sentences on the worth of averages and bounds."""
    held = of_split(cells, DIRICHLET[0])
    if len(held) > 1:
        short, plain = (f"average, {_AVERAGES[at]}" for at in (0, -1))
        found = difference(held, short, plain, "R@8")
        yield (
            f"**A long average of importance is not needed**: over eight local epochs, R@8 on "
            f"{DIRICHLET[0]} is {mean(held, short, 'R@8'):.3f} with a decay of 0.8 a step, and "
            f"{mean(held, plain, 'R@8'):.3f} by the mean of all steps ({found.in_words})."
        )
    if bound_cells:
        cells = bound_cells
        largest = max(values(cells, bounded.COSINE, "log10 of the largest bound"))
        least = min(values(cells, bounded.COSINE, "least cosine"))
        yield (
            "**The paper's bounds say nothing**: Proposition 1 grants a cosine of at most "
            f"{10**largest:.0e}, where the least of all pairs has {least:.2f}; Theorem 1 grants a "
            "probability below 0."
        )


def _table(cells: Sequence[Cell], head: str, prefix: str, columns: Sequence[str]) -> str:
    """The rows of all cells that begin with a prefix, by split."""
    rows = []
    for split in DIRICHLET:
        held = of_split(cells, split)
        names = [name for name in held[0].figures if name.startswith(prefix)] if held else []
        for name in names:
            shown = name.removeprefix(prefix).removesuffix("resamples").strip(" ,")
            rows.append([split, shown, *(spread(held, name, column) for column in columns)])
    return table(("split", head, *columns), rows)
