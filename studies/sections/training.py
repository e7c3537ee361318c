"""Sections of the page of evidence: what clusters, donors and few samples mean for training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from studies import baselines
from studies.cells import Cell
from studies.clustered import ROUNDS
from studies.sections.paragraphs import of_split, table
from studies.sections.summaries import difference, mean, over_seeds, seeds, spread
from studies.tables import lengths as lengthened
from studies.tables import newcomers as assigned
from studies.tables import personal as personalised
from studies.tables import samples as few
from studies.tables import uplift as started
from studies.tables.clusters import ALONE, CLIENTS, GLOBAL, IOS, row
from studies.tables.definitions import FEDBARY
from studies.tables.epochs import EPOCHS
from studies.tables.retrieval import ios as donors_of

__all__ = ["against", "lengths", "misplaced", "newcomers", "personal", "samples", "uplift"]

_APART = "S apart"
_UPLIFT = ("accuracy", "gain", "tau", "tau of means")
_QUALITY = ("accuracy", "clusters", "silhouette", "Davies-Bouldin", "Calinski-Harabasz")


def personal(cells: Sequence[Cell]) -> Iterator[str]:
    """Tables 2 and 8: accuracy and quality of clusters, by similarity and by K."""
    yield (
        f"{CLIENTS} clients, clusters by affinity propagation, {ROUNDS} rounds; "
        "accuracy is each client's own, on samples that it kept. K\\* is the clients' median for a "
        "coverage of 0.8. Silhouette (more is better), Davies-Bouldin (less) and Calinski-Harabasz "
        "(more) are of the label histograms in the clusters, and blank for one cluster or only "
        "single clients. **They do not say how well clusters train**: many small clusters have the "
        "better figures."
    )
    for split, held in _splits(cells):
        yield f"### Clusters on {split}, {seeds(held)}"
        yield table(
            ("models", *_QUALITY),
            (
                [_shown(name), *(spread(held, name, column) for column in _QUALITY)]
                for name in held[0].figures
                if not name.endswith("by round")
            ),
        )
    rows = []
    for split, held in _splits(cells):
        best = personalised.ios("K*")
        rows += [
            [split, _shown(f"{best} less {name}"), str(difference(held, best, name, "accuracy"))]
            for name in (
                *(personalised.ios(size) for size in personalised.SIZES[1:]),
                baselines.PLAIN_COSINE,
                FEDBARY,
                GLOBAL,
                ALONE,
            )
        ]
    yield table(("split", "accuracy", over_seeds(cells)), rows)
    yield "![Accuracy after each round](../studies/accuracy-by-round.svg)"


def lengths(cells: Sequence[Cell]) -> Iterator[str]:
    """Table 10: accuracy by local epochs."""
    yield (
        "Accuracy of the clusters' models by local epochs, of which importance is taken, too, as "
        f"the paper has it; K is K\\*, and each has {lengthened.ROUNDS} rounds. The global model "
        "of the same epochs beside it shows how much of a rise is training alone."
    )
    columns = [f"{count} epochs" for count in EPOCHS]
    rows = []
    for split, held in _splits(cells):
        title = f"{split}, {len(held)}"
        for name in (personalised.ios("K*"), GLOBAL):
            figures = [spread(held, name, column) for column in columns]
            rows.append([title, _shown(name), *figures])
        counts = (f"{mean(held, 'clusters', column):.1f}" for column in columns)
        rows.append([title, "clusters", *counts])
    yield table(("split, seeds", "models", *columns), rows)


def uplift(cells: Sequence[Cell]) -> Iterator[str]:
    """Table 4's true uplift."""
    yield (
        "Each client starts from the model of the first donor that a ranking names, trained for "
        "eight epochs on that donor's samples, and trains two epochs on its own. Without a donor "
        "it trains for all ten. Accuracy is by class on samples that no client has, weighed by the "
        "client's own labels. Tau-b is of the ranking and the gains from all 39 donors; that of "
        "means is of each donor's mean over the other clients, in the ranking and in gains."
    )
    yield (
        "kNN-Shapley values a donor by what it adds to the worth of those that are nearest to a "
        f"client, here the {started.NEIGHBORS} nearest, for each client alone. The paper does not "
        "say what a donor is worth. Here it is 1 where its main label is the client's, else 0; or "
        "the accuracy of its model, each class alike. Of samples, the game is the original one: "
        "all samples of all clients classify test samples, the nearest by the cosine of pixels."
    )
    for split, held in _splits(cells):
        yield f"### Donors on {split}, {seeds(held)}"
        rows = (
            [name, *(spread(held, name, column) for column in _UPLIFT)] for name in held[0].figures
        )
        heads = ("accuracy", "gain over no donor", "tau-b with gains", "tau-b of means")
        yield table(("starts from", *heads), rows)
    yield from _valued(cells)


def _valued(cells: Sequence[Cell]) -> Iterator[str]:
    """What values of kNN-Shapley change in a ranking by the similarity that they begin with."""
    names = (donors_of("A"), f"A: {baselines.PLAIN_COSINE}", baselines.HISTOGRAMS)
    pairs = [(started.values(name, worth), name) for name in names for worth in started.WORTHS]
    pairs.append((started.OF_SAMPLES, names[0]))
    found = [
        (split, f"{ours} less {theirs}", difference(held, ours, theirs, "tau"))
        for split, held in _splits(cells)
        for ours, theirs in pairs
    ]
    worse = sum(each.decided and each.mean < 0 for *_, each in found)
    yield (
        "Does kNN-Shapley rank donors by their gains better than a similarity alone? Its tau-b is "
        f"below by a decided difference in {worse} of {len(found)} rows, and above in "
        f"{sum(each.decided and each.mean > 0 for *_, each in found)}."
    )
    rows = ([split, words, str(each)] for split, words, each in found)
    yield table(("split", "tau-b with gains", over_seeds(cells)), rows)


def samples(cells: Sequence[Cell]) -> Iterator[str]:
    """How many samples groups need that differ by two of ten labels."""
    yield (
        f"The same {CLIENTS} clients with more and fewer samples: all have the same digits, "
        "and each of three groups has two labels of its own swapped. ARI with the four groups, by "
        "the service: average linkage at the number 4, or its default with the number free."
    )
    networks = dict.fromkeys(cell.setting.network for cell in cells)
    yield (
        "**Table 1 has three quarters of the samples**, since its clients keep a quarter for "
        "testing. With all, ARI goes from "
        f"{', and from '.join(_by_number(cells, network) for network in networks)}. Groups that "
        "are hardly apart in S (the last row) are one cluster to the service where their number is "
        "free: give it. Data subspaces by class need fewer samples; they [show mean "
        "samples](../starting.md#what-an-upload-shows)."
    )
    for network in networks:
        held = _of_network(cells, network)
        yield f"### Swapped labels, {network}, {seeds(held)}"
        counts = held[0].figures["samples"]
        rows = (
            [name, *(spread(held, name, column) for column in counts)]
            for name in sorted(held[0].figures, key=lambda name: name == _APART)
            if name != "samples"
        )
        heads = [f"{mean(held, 'samples', column):.0f} samples" for column in counts]
        yield table(("ARI by, or how far S is apart", *heads), rows)
    yield "![Agreement by the samples of a client](../studies/samples.svg)"


def _by_number(cells: Sequence[Cell], network: str) -> str:
    """ARI at the number known and free, with what Table 1 has of the samples, and with all."""
    held = _of_network(cells, network)
    found = [
        " to ".join(f"{mean(held, row(IOS, way), column):.2f}" for column in ("75%", "100%"))
        for way in (few.KNOWN, few.FREE)
    ]
    return f"{found[0]} by the {network} at the number 4 (with it free, {found[1]})"


def newcomers(cells: Sequence[Cell]) -> Iterator[str]:
    """Which newcomers `clusterings.assign` places right, and whom it leaves out."""
    yield (
        "Clients have images turned by 0, 90 and 180 degrees, and the service finds three clusters "
        "by average linkage. Six newcomers of each group are assigned to one. The third group, the "
        "smallest, is near the first. K is the median of what a coverage of 0.8 takes."
    )
    columns, judged = ("supports", "signatures of 256", "ARI of the clusters"), assigned.JUDGED
    networks = {
        network: held for network in assigned.NETWORKS if (held := _of_network(cells, network))
    }
    for network, held in networks.items():
        rows = (
            [name, *(spread(held, name, column) for column in columns)]
            for name in held[0].figures
            if name not in judged
        )
        yield table((f"placed right, {network}, {seeds(held)}", *columns), rows)
    first = assigned.row(assigned.SIZES[0], assigned.IMAGES[0])
    yield (
        f"Who is placed in any cluster at all, of the first row ({first}). A newcomer is in none "
        "where its mean S is below half-way from chance to what the members have among themselves. "
        "The answer has a note where it is placed below 0.95 of that way. Trained alone: its "
        f"support is of weights after {assigned.EPOCHS} epochs of its own."
    )
    for network, held in networks.items():
        rows = (
            [name, *(spread(held, each, name) for each in judged)] for name in assigned.STRANGERS
        )
        yield table((f"newcomers, {network}", *judged), rows)


def _of_network(cells: Sequence[Cell], network: str) -> list[Cell]:
    return [cell for cell in cells if cell.setting.network == network]


def against(uplift_cells: Sequence[Cell], few_cells: Sequence[Cell]) -> Iterator[str]:
    """Claims that do not hold, where they do not."""
    for split, held in _several(uplift_cells):
        ours, alone = donors_of("A"), started.ALONE
        found = difference(held, ours, alone, "accuracy")
        if found.mean - found.margin <= 0:
            yield (
                f"**A donor's model does not pay on {split}**: accuracy "
                f"{mean(held, ours, 'accuracy'):.3f}, and {mean(held, alone, 'accuracy'):.3f} "
                f"where the client trains alone for as long ({found.in_words}). From a random "
                f"donor it is {mean(held, started.RANDOM, 'accuracy'):.3f}."
            )
    held = _of_network(few_cells, "cnn")
    half, whole = (mean(held, row(IOS, few.KNOWN), column) for column in ("50%", "100%"))
    if half < whole:
        counts = [f"{mean(held, 'samples', column):.0f}" for column in ("50%", "100%")]
        yield (
            "**Few samples do not show small differences**: groups with two of ten labels swapped "
            f"have an ARI of {half:.2f} with {counts[0]} samples a client, {whole:.2f} with "
            f"{counts[1]}."
        )


def misplaced(cells: Sequence[Cell]) -> Iterator[str]:
    """Newcomers that are placed and not kin, and kin that have a note."""
    placed, noted = assigned.JUDGED
    for network in assigned.NETWORKS:
        held = _of_network(cells, network)
        for name in assigned.FOREIGN:
            share = mean(held, placed, name)
            if share > 0:
                yield (
                    f"**A newcomer that is not kin may be placed**: {name}, by the {network}, in "
                    f"{share:.2f} of the cases ({mean(held, noted, name):.2f} with a note)."
                )
        doubted = [
            f"{name} {mean(held, noted, name):.2f}"
            for name in (*assigned.KIN, assigned.TRAINED)
            if mean(held, noted, name) > 0
        ]
        if doubted:
            yield (
                f"**A note on a newcomer is a doubt, and no verdict**: by the {network}, these "
                f"have one, too: {', '.join(doubted)}."
            )


def _splits(cells: Sequence[Cell]) -> Iterator[tuple[str, list[Cell]]]:
    for split in dict.fromkeys(cell.setting.split for cell in cells):
        yield split, of_split(cells, split)


def _several(cells: Sequence[Cell]) -> Iterator[tuple[str, list[Cell]]]:
    """Splits with an interval: of two seeds or more."""
    return ((split, held) for split, held in _splits(cells) if len(held) > 1)


def _shown(name: str) -> str:
    return name.replace("*", "\\*")
