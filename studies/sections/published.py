"""The page of data that papers use: their packages, and their figures beside those of digits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from studies import baselines
from studies.cells import Cell, Cells
from studies.loaders.published import UNSHIPPED, sets
from studies.sections.paragraphs import Section, federations, of_split, table
from studies.sections.summaries import difference, seeds, spread
from studies.settings import DIRICHLET, PATHOLOGICAL
from studies.tables import personal, retrieval
from studies.tables.clusters import ALONE, GLOBAL

__all__ = ["every_federation", "opening"]

_REGISTRIES: Final = {"python": "PyPI", "npm": "npm", "debian": "Debian"}
_SPLITS: Final = (*DIRICHLET, *PATHOLOGICAL)
_OVERLAPS, _COSINE, _EUCLIDEAN = (
    retrieval.ios("B", "K*"),
    f"B: {baselines.PLAIN_COSINE}",
    f"B: {baselines.PLAIN_EUCLIDEAN}",
)
_AT_START: Final = (retrieval.ios("A"), f"A: {baselines.PLAIN_COSINE}")
_RECALL: Final = {
    _OVERLAPS: ("0.78", "0.88", "0.74", "0.78"),
    _COSINE: ("0.75", "0.81", "0.72", "0.73"),
    _EUCLIDEAN: ("0.68", "0.74", "0.65", "0.66"),
}
"""Table 3 of the paper, R@8 of its CNN on Fashion-MNIST, by split."""
_RANKS: Final = {
    _OVERLAPS: ("0.52", "0.59", "0.49", "0.51"),
    _COSINE: ("0.41", "0.48", "0.39", "0.40"),
    _EUCLIDEAN: ("0.43", "0.47", "0.38", "0.40"),
}
"""Table 4, Kendall's tau, likewise."""
_ACCURACIES: Final = {
    personal.ios("K*"): ("0.748", "0.762", "0.952", "0.832"),
    baselines.PLAIN_COSINE: ("0.708", "0.733", "0.949", "0.822"),
    baselines.PLAIN_EUCLIDEAN: ("0.702", "0.714", "0.919", "0.818"),
}
"""Table 1, likewise."""


def opening(cells: Cells) -> Iterator[str]:
    """The packages, the sets that none has, and the paper's figures beside ours."""
    yield (
        "`python -m studies data` downloads the packages below, compares them with their SHA-256, "
        "and unpacks their data; it installs and runs nothing of them. Commands with `--data` or "
        "`--data-dir .studies/data` read these. Raw numbers are beside those of the digits, and "
        "no other page of evidence has any of them."
    )
    yield table(
        ("data", "package", "registry", "SHA-256"),
        (
            [data, str(package), _REGISTRIES[package.registry], f"`{package.sha256}`"]
            for data, package in sets().items()
        ),
    )
    yield (
        "MNIST and Fashion-MNIST are whole, as their authors publish them; of IMDB there is the "
        "training part, 25,000 reviews. MNIST and IMDB are those of [averages in "
        "shards](../benchmarks/sharing.md#data-that-papers-use)."
    )
    missing = "; ".join(f"{data} ({names})" for data, names in UNSHIPPED.items())
    yield (
        "No package of PyPI, npm or Debian was found that ships the others. In brackets are those "
        f"of their names: by their own words, they load or download files. {missing}."
    )
    yield from _recall(cells)
    yield from _accuracy(cells)


def _recall(cells: Cells) -> Iterator[str]:
    held = {
        where: _of(cells, retrieval.NAME, network, of_files=where != "digits")
        for network in ("two layers",)
        for where in ("digits", "Fashion-MNIST")
    }
    if not held["Fashion-MNIST"]:
        return
    yield "## Fashion-MNIST, digits and the paper"
    yield (
        f"The network of two layers; {_samples(held['Fashion-MNIST'])} samples a client, 36 of "
        "digits, and more in the paper. A: importance at the common weights; B: over eight local "
        "epochs, as the paper has it."
    )
    for column, printed in (("R@8", _RECALL), ("tau", _RANKS)):
        rows = []
        for number, split in enumerate(_SPLITS):
            ours = {where: of_split(own, split) for where, own in held.items()}
            if not ours["Fashion-MNIST"]:
                continue
            for name in (*printed, *_AT_START):
                figures = (spread(own, name, column) for own in ours.values())
                paper = printed[name][number] if name in printed else ""
                rows.append([split, _shown(name), *figures, paper])
        title = "tau-b" if column == "tau" else column
        counts = (f"{where}, {seeds(_most(own))}" for where, own in held.items())
        yield table(("split", title, *counts, "the paper's"), rows)
    yield _verdict(held["Fashion-MNIST"])


def _verdict(cells: Sequence[Cell]) -> str:
    """On how many splits overlaps are ahead of the cosine, by either importance, and decidedly."""
    splits = [own for split in _SPLITS if (own := of_split(cells, split))]
    epochs, start = (
        [difference(own, ours, theirs, "R@8") for own in splits]
        for ours, theirs in ((_OVERLAPS, _COSINE), _AT_START)
    )
    ahead = [sum(each.mean > 0 for each in gains) for gains in (epochs, start)]
    decided = sum(each.decided for each in (*epochs, *start))
    return (
        f"**On Fashion-MNIST, by {seeds(_most(cells))}, index overlaps find more than the cosine "
        f"on {ahead[0]} of {len(splits)} splits over local epochs, and on {ahead[1]} at the common "
        f"weights**. In the paper they do on all. Of the {2 * len(splits)} differences "
        f"{decided or 'none'} {'is' if decided < 2 else 'are'} decided."
    )


def _accuracy(cells: Cells) -> Iterator[str]:
    held = {
        "digits": _of(cells, personal.NAME, "cnn", of_files=False),
        "Fashion-MNIST": _of(cells, personal.NAME, "mlp", of_files=True),
    }
    if not held["Fashion-MNIST"]:
        return
    yield "### Accuracy of clusters' models (Table 1 of the paper)"
    yield (
        "Clients have unlike labels, and each similarity makes clusters of its own. Networks are a "
        "CNN on digits and a perceptron on Fashion-MNIST, whose clients have "
        f"{_samples(held['Fashion-MNIST'])} samples and keep a quarter of them for testing."
    )
    rows = []
    for number, split in enumerate(_SPLITS):
        ours = {where: of_split(own, split) for where, own in held.items()}
        for name in (*_ACCURACIES, GLOBAL, ALONE):
            figures = (spread(own, name, "accuracy") for own in ours.values())
            paper = _ACCURACIES[name][number] if name in _ACCURACIES else ""
            rows.append([split, _shown(name), *figures, paper])
    counts = (f"{where}, {seeds(_most(own))}" for where, own in held.items())
    yield table(("split", "clusters by", *counts, "the paper's"), rows)


def every_federation(
    command: str, section: Section, cells: Sequence[Cell], seen: set[str]
) -> Iterator[str]:
    """The section of each federation below its command, without pictures and what was said before.

    Args:
        command: the name of the table.
        section: of one federation.
        cells: of all.
        seen: what was said; more is added.
    """
    for (data, network), own in federations(cells):
        blocks = [*section(own)]
        if not any(block.startswith(f"### {data}, {network}") for block in blocks):
            yield f"### {data}, {network}, {seeds(_most(own))}"
        yield f"`{_command(command, own)}`"
        for block in blocks:
            said = block in seen and not block.startswith(("|", "#"))
            if not said and not block.startswith("!["):
                yield block
        seen.update(blocks)


def _command(table: str, cells: Sequence[Cell]) -> str:
    setting = cells[0].setting
    network = f'"{setting.network}"' if " " in setting.network else setting.network
    some = f" --samples {setting.samples}" if setting.samples else ""
    return (
        f"python -m studies {table} --data {setting.data} --network {network}{some} "
        f"--seeds {len(_most(cells))}"
    )


def _most(cells: Sequence[Cell]) -> list[Cell]:
    """The cells of the split that has most of them."""
    return max((of_split(cells, cell.setting.split) for cell in cells), key=len)


def _of(cells: Cells, study: str, network: str, *, of_files: bool) -> list[Cell]:
    data = "fashion-mnist" if of_files else "digits"
    return [
        cell
        for cell in cells.of(study, of_files=of_files)
        if (cell.setting.data, cell.setting.network) == (data, network)
    ]


def _samples(cells: Sequence[Cell]) -> str:
    return " or ".join(sorted({str(cell.setting.samples or "all") for cell in cells}))


def _shown(name: str) -> str:
    return name.replace("*", "\\*")
