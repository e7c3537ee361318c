"""Paragraphs and tables that the sections of the page of evidence share, made of cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from studies import baselines
from studies.cells import Cell
from studies.sections.summaries import difference, mean, over_seeds, seeds, spread
from studies.settings import DIRICHLET, TUNING_SEEDS, Setting
from studies.tables import disclosure as attacks
from studies.tables import epochs as trained
from studies.tables import privacy as noised
from studies.tables import retrieval

__all__ = [
    "Section",
    "behind",
    "costs",
    "disclosed",
    "disclosure",
    "donors",
    "each_federation",
    "epochs",
    "federations",
    "first",
    "neighbors",
    "of_split",
    "private_supports",
    "priced",
    "sizes",
    "table",
    "tuned",
]

Section = Callable[[Sequence[Cell]], Iterator[str]]
"""The paragraphs and tables of a study, from its cells."""

_FIRST: Final = ("digits", "cnn")
_ORACLES: Final = (
    "the paper names Wasserstein's distance, and [neighbours by other "
    "oracles](neighbours.md#neighbours-by-other-oracles) have both"
)
_RECALL: Final = ("R@4", "R@8", "R@16", "tied R@8")


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lines of Markdown; short rows end in empty cells."""
    full = ([*row, *[""] * (len(columns) - len(row))] for row in rows)
    lines = [columns, ["---"] * len(columns), *full]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def of_split(cells: Sequence[Cell], split: str) -> list[Cell]:
    """The cells of one split, without those that baselines are tuned on."""
    return [
        cell
        for cell in cells
        if cell.setting.split == split and cell.setting.seed not in TUNING_SEEDS
    ]


def federations(cells: Sequence[Cell]) -> Iterator[tuple[tuple[str, str], list[Cell]]]:
    """The cells of each data set and network, the first the one that the gates are of.

    A federation of another size has its own, and a network such as ``cnn, 20 clients`` or ``cnn,
    50 samples a client``.
    """

    def key(cell: Cell) -> tuple[str, str]:
        setting = cell.setting
        usual = setting.clients == Setting().clients
        size = "" if usual else f", {setting.clients} clients"
        few = f", {setting.samples} samples a client" if setting.samples else ""
        return setting.data, f"{setting.network}{size}{few}"

    ordered = sorted(cells, key=lambda cell: (key(cell) != _FIRST, key(cell)))
    for found, own in groupby(ordered, key):
        yield found, list(own)


def first(cells: Sequence[Cell]) -> list[Cell]:
    """The cells of the first federation; none where there are none."""
    return next((own for _, own in federations(cells)), [])


def each_federation(section: Section) -> Section:
    """The section of each federation, with its title but for the first."""

    def all_of(cells: Sequence[Cell]) -> Iterator[str]:
        for number, ((data, network), own) in enumerate(federations(cells)):
            if number:
                yield f"### {data}, {network}"
            yield from section(own)

    return all_of


def tuned(cells: Sequence[Cell], procedure: str) -> str:
    """The baseline of a procedure with the best mean R@8 on the seeds that are for tuning.

    Without cells of these it is the paper's cosine.
    """
    own = [cell for cell in cells if cell.setting.seed in TUNING_SEEDS]
    if not own:
        return f"{procedure}: {baselines.PLAIN_COSINE}"
    rows = [
        name
        for name in own[0].figures
        if name.startswith(f"{procedure}: ") and "R@8" in own[0].figures[name]
    ]
    values = [name for name in rows if "IOS" not in name and "signatures" not in name]
    return max(values, key=lambda name: mean(own, name, "R@8"))


def neighbors(cells: Sequence[Cell]) -> Iterator[str]:
    """Table 3: recall by index overlaps, by the paper's baselines and by the best tuned one."""
    yield (
        "A: importance at the common weights, before any training. B: over eight local epochs, as "
        "the paper has it. Strict ties, but where it says tied. Means over seeds have 95% "
        "intervals. The best baseline is chosen on seeds that no table uses. True neighbours are "
        f"of least Jensen-Shannon divergence; {_ORACLES}."
    )
    for (data, network), own in federations(cells):
        rows = []
        for split in dict.fromkeys(cell.setting.split for cell in own):
            held = of_split(own, split)
            rows += [
                [split, name, *(spread(held, name, column) for column in _RECALL)]
                for name in (*_compared(own), baselines.HISTOGRAMS)
            ]
            chance = f"{mean(held, 'chance', 'tied R@8'):.3f}"
            rows.append([split, "chance", "", "", "", chance])
        most = max((of_split(own, cell.setting.split) for cell in own), key=len)
        yield f"### {data}, {network}, {seeds(most)}"
        yield table(("split", "similarity", *_RECALL), rows)
        yield _differences(own)
    yield "![Recall by the number of neighbours](../studies/recall.svg)"


def _compared(own: Sequence[Cell]) -> list[str]:
    rows = []
    for procedure in "AB":
        rows += [
            retrieval.ios(procedure),
            f"{procedure}: {baselines.PLAIN_COSINE}",
            f"{procedure}: {baselines.PLAIN_EUCLIDEAN}",
            tuned(own, procedure),
        ]
    return list(dict.fromkeys(rows))


def _differences(own: Sequence[Cell]) -> str:
    rows = []
    for split in dict.fromkeys(cell.setting.split for cell in own):
        held = of_split(own, split)
        for name in _compared(own):
            ours = retrieval.ios(name[0])
            if name != ours:
                found = difference(held, ours, name, "R@8")
                rows.append([split, f"{ours} less {name}", str(found)])
    return table(("split", "R@8", over_seeds(own)), rows)


def donors(cells: Sequence[Cell]) -> Iterator[str]:
    """Tables 4 and 5: the ranking of donors, and the labels that their mixture has."""
    yield (
        "Kendall's tau-b and R@5 of each client's ranking against the true one; and the "
        "Jensen-Shannon divergence of its labels from those of eight donors, by their weights "
        f"(less is better). The true ranking is by that divergence, too; {_ORACLES}."
    )
    for (data, network), own in federations(cells):
        rows = []
        for split in dict.fromkeys(cell.setting.split for cell in own):
            held = of_split(own, split)
            for name in (*_compared(own), baselines.HISTOGRAMS):
                figures = [spread(held, name, column) for column in ("tau", "R@5", "alignment")]
                rows.append([split, name, *figures])
            for way in ("weights by S", "weights by z-score", "cover"):
                found = spread(held, "A: donors", way)
                rows.append([split, f"A: donors of the service, {way}", "", "", found])
        yield f"### {data}, {network}"
        yield table(("split", "ranking", "tau-b", "R@5", "divergence"), rows)


def sizes(cells: Sequence[Cell]) -> Iterator[str]:
    """Table 9: recall by the size of a support."""
    yield "R@8 by K as a share of M; K\\* is the clients' median for a coverage of 0.8."
    for (data, network), own in federations(cells):
        rows = []
        for split in dict.fromkeys(cell.setting.split for cell in own):
            held = of_split(own, split)
            for procedure in "AB":
                names = [retrieval.ios(procedure, size) for size in retrieval.SIZES]
                share = mean(held, retrieval.ios(procedure, "K*"), "K/M")
                found = [f"{mean(held, name, 'R@8'):.3f}" for name in names]
                rows.append([split, procedure, *found, f"{share:.1%}"])
        yield f"### {data}, {network}"
        heads = [size.replace("*", "\\*") for size in retrieval.SIZES]
        yield table(("split", "procedure", *heads, "K\\* of M"), rows)


def epochs(cells: Sequence[Cell]) -> Iterator[str]:
    """Table 11: recall by local epochs."""
    yield (
        "R@8 of index overlaps at K = 10%, by local epochs before importance is taken: none; over "
        "the epochs, as the paper has it; or at the weights after them."
    )
    columns = [f"{count} epochs" for count in trained.EPOCHS]
    rows = []
    for split in DIRICHLET:
        held = of_split(cells, split)
        rows.append([f"{split}, none", spread(held, "common weights", "R@8")])
        rows += [
            [f"{split}, {name}", *(spread(held, name, column) for column in columns)]
            for name in ("over the epochs", "trained weights")
        ]
    yield table(("importance", *columns), rows)


def disclosure(cells: Sequence[Cell]) -> Iterator[str]:
    """The attacks, in tables of their AUC."""
    yield (
        "The area under the ROC curve; 0.5 is chance. Label presence: does a client have a label, "
        f"in {attacks.PRESENT:.0%} of its samples or more? The outsider has the common weights and "
        "samples of each label, and no key."
    )
    n, own = (mean(cells, "federation", each) for each in ("n", "own"))
    yield (
        f"Membership: was a sample one of the {n:.0f} of a client? By the cosine with the "
        "client's gradient, or by how many of the sample's own indices are in its support. "
        f"**Beside own samples**, the stronger attack: the outsider has about {own:.0f} samples of "
        "each class, and takes out [what these explain](#membership-over-rounds-figure-1)."
    )
    for split in DIRICHLET:
        held = of_split(cells, split)
        if not held:
            continue
        yield f"### {split}, {seeds(held)}"
        seen = [name for name in held[0].figures if "label presence" in held[0].figures[name]]
        yield table(
            ("what the outsider has", "label presence", "R@8"),
            ([n, spread(held, n, "label presence"), spread(held, n, "R@8")] for n in seen),
        )
        columns = [f"{count} known" for count in attacks.KNOWN]
        served = [name for name in held[0].figures if name.startswith("the service")]
        yield table(
            ("labels, of blinded supports", *columns),
            ([n, *(spread(held, n, column) for column in columns)] for n in served),
        )
        rest = [("membership", "members"), ("revisions of one client found", "revisions")]
        yield table(
            ("also", "from", "seen"),
            (
                [title, column, spread(held, name, column)]
                for title, name in rest
                for column in held[0].figures[name]
            ),
        )


def private_supports(cells: Sequence[Cell]) -> Iterator[str]:
    """The neighbours that remain at an epsilon, and the success of attacks."""
    yield (
        f"Supports that are differentially private in one sample, at delta {noised.DELTA:g}; K is "
        "10% of M, and each sample votes for K / 4 parameters. Label presence and membership are "
        "areas under the ROC curve of an outsider, who has the common weights and samples of each "
        "label, and compares with votes of these. Members are beside others of the same classes: "
        "the score is the correlation of a support with the votes of a candidate, less what both "
        "have in common with those of the outsider's own samples. These are half of the test "
        f"samples of each class, {attacks.OWN} at most; the more they are, the more it sees."
    )

    def key(cell: Cell) -> tuple[str, str, str, int]:
        setting = cell.setting
        return setting.data, setting.network, setting.split, setting.samples

    columns = ("R@4", "R@8", "label presence", "membership")
    for (data, network, split, _), group in groupby(sorted(cells, key=key), key):
        held = list(group)
        found = held[0].figures["federation"]
        others = found["clients"] - 1
        yield f"### {found['n']:.0f} samples a client: {data}, {network}, {split}, {seeds(held)}"
        rows = [
            [name, *(spread(held, name, column) for column in columns)]
            for name in map(noised.row, noised.EPSILONS)
        ]
        rows.append(["chance", f"{4 / others:.3f}", f"{8 / others:.3f}", "0.500", "0.500"])
        own = mean(held, "federation", "own")
        yield f"The outsider has about {own:.0f} samples of each class of its own."
        yield table((f"{found['clients']:.0f} clients", *columns), rows)


def costs(cells: Sequence[Cell]) -> Iterator[str]:
    """Tables 6 and 7: a support beside five epochs of training, and beside other messages."""
    yield (
        "One client on one core: seconds beside those of five local epochs, and bytes of one "
        "message at K = 10%. The entropy is what any set of K of M needs at least, on average; an "
        "importance is not a random set, so a coder may be below it."
    )
    times, networks = [], dict(_networks(cells))
    for network, own in networks.items():
        whole = mean(own, "seconds", "training")
        watched = mean(own, "seconds", "training with the moments of its gradients")
        extra = [watched / whole - 1] + [
            mean(own, "seconds", name) / whole
            for name in ("importance of each sample", "selection")
        ]
        times.append([network, f"{whole:.3f} s", *(f"{share:+.1%}" for share in extra)])
    heads = ("moments in training", "importance of each sample", "selection")
    yield table(("network", "five epochs", *heads), times)
    sizes = (
        [name, *(f"{mean(own, 'bytes', name):,.0f}" for own in networks.values())]
        for name in cells[0].figures["bytes"]
    )
    yield table(("bytes", *networks), sizes)


def _networks(cells: Sequence[Cell]) -> Iterator[tuple[str, list[Cell]]]:
    for (data, network), own in federations(cells):
        yield network if data == Setting().data else f"{data}, {network}", own


def behind(cells: Sequence[Cell], split: str, best: str) -> Iterator[str]:
    """Sentences on the rivals that are ahead of index overlaps, on one split."""
    ours = retrieval.ios("A")
    plain = f"A: {baselines.PLAIN_COSINE}"
    for name, words in (
        (plain, "A plain cosine of importance"),
        (best, f"The best of values ({best[3:]})"),
    ):
        found = difference(cells, name, ours, "R@8")
        if found.mean > 0:
            yield (
                f"**{words} finds more neighbours on {split}**: R@8 "
                f"{mean(cells, name, 'R@8'):.3f}, index overlaps {mean(cells, ours, 'R@8'):.3f} "
                f"({found.in_words}). Where values may be sent, send them."
            )
    small = difference(cells, retrieval.ios("A", "K*"), retrieval.ios("A", "25%"), "R@8")
    if small.mean - small.margin <= 0:
        yield (
            f"**A support of K\\* finds no more than one of 25% on {split}** ({small.in_words}); "
            "the paper has it ahead everywhere. Take the smaller for its size."
        )


def disclosed(cells: Sequence[Cell]) -> Iterator[str]:
    """Sentences on what supports, and answers about blinded ones, show."""
    whole, signed = (
        mean(cells, "whole", "label presence"),
        mean(cells, "signature of 256", "label presence"),
    )
    yield (
        "**A support shows which labels its client has**, in "
        f"{attacks.PRESENT:.0%} of its samples or more: AUC {whole:.3f}, and {signed:.3f} from "
        "a signature alone. Blinding ends that for outsiders "
        f"({mean(cells, 'blinded', 'label presence'):.3f})."
    )
    known = mean(cells, "the service, from S", "10 known")
    names = mean(cells, "the service, from names of the 8 nearest", "10 known")
    yield (
        "**Blinding does not hide labels from a service that knows those of some clients**: with "
        f"10 of 40 known, AUC {known:.3f} from S and {names:.3f} from the names of neighbours."
    )


def priced(cells: Sequence[Cell]) -> Iterator[str]:
    """Sentences on the cost of private supports, and on what they do not hide."""
    few = [cell for cell in cells if cell.setting.data == _FIRST[0]]
    if few:
        (free, ten, one), seen = (
            [mean(few, noised.row(epsilon), column) for epsilon in (math.inf, 10.0, 1.0)]
            for column in ("R@8", "membership")
        )
        yield (
            f"**Privacy costs the neighbours where samples are few**: with 36 a client, R@8 is "
            f"{ten:.3f} at epsilon 10 and {one:.3f} at epsilon 1 (without noise {free:.3f}, "
            f"chance {8 / (few[0].setting.clients - 1):.3f}). What keeps neighbours shows members: "
            f"AUC {seen[1]:.3f} at epsilon 10, {seen[2]:.3f} at 1 (without noise {seen[0]:.3f})."
        )
    most = max(cell.setting.samples for cell in cells)
    many = [cell for cell in cells if cell.setting.samples == most and most > 0]
    if many:
        yield (
            "**Private in one sample is not private in the classes**: with "
            f"{most:,} samples a client, epsilon 1 leaves the label presence at AUC "
            f"{mean(many, noised.row(1.0), 'label presence'):.3f}."
        )
