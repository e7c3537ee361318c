"""What ``modelkin advise`` compares with: federations that were trained in every way.

``python -m benchmarks.federation.advice`` writes the SDK's module of them, and with ``--rates`` it
counts how often the answer on groups is right for seeds that are not in it. Structures are measured
here; accuracies are those of the cells behind the page on clusters, and of the guide's table.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Final, TypedDict

from modelkin.core.layout import Layout
from modelkin.federation.advice.advice import advise
from modelkin.federation.advice.federations import Measured
from modelkin.federation.advice.measured import MEASURED
from modelkin.federation.advice.structure import Structure, structure_of
from studies.cells import Cells
from studies.federations import Federation
from studies.settings import Setting
from studies.tables import clusters
from studies.tables.retrieval import supports_of

__all__ = [
    "MODULE",
    "ROOT",
    "SPLITS",
    "Split",
    "accuracy",
    "guide",
    "main",
    "measured",
    "module_of",
    "rates",
    "structure",
    "trained",
]

ROOT: Final = Path(__file__).resolve().parents[2]
MODULE: Final = ROOT / "client_sdk" / "modelkin" / "federation" / "advice" / "measured.py"
DATA, NETWORK = "digits", "cnn"
SEEDS: Final = 3
_DIGITS: Final = 3
_OF_GUIDE: Final = "| way | images turned |"
"""How the guide's table of mixed models and personal heads begins."""
_MIXED, _PERSONAL = "both, 0.25", "FedPer"
_BESIDE = ("one model", "clusters", "alone")
"""The plain ways that the guide trained for the same table."""


@dataclass(frozen=True, slots=True)
class Split:
    """How clients differ.

    Attributes:
        name: of the studies.
        words: of the guide.
        column: of the guide's table of mixed models; empty where it has none.
    """

    name: str
    words: str
    column: str = ""


class Trained(TypedDict):
    """The accuracies among the figures of ``Measured``."""

    one_model: float
    alone: float
    by_groups: float
    mixed: float | None
    personal: float | None
    beside: float | None


SPLITS: Final = (
    Split("labels", "labels in four groups", "labels in groups"),
    Split("noisy labels", "labels in four groups, beside 40% of any", "and 40% of any"),
    Split("permuted labels", "labels that mean other things in four groups", "labels permuted"),
    Split("swapped labels", "two of ten labels swapped"),
    Split("rotations", "images turned in four ways", "images turned"),
    Split("styles", "images in four styles"),
    Split("dirichlet 0.1", "few labels each, Dir(0.1)", "few: Dir(0.1)"),
    Split("dirichlet 0.3", "mixed labels, Dir(0.3)", "mixed: Dir(0.3)"),
    Split(clusters.IID, "even labels, IID"),
)


def structure(split: str, seed: int) -> Structure:
    """What the supports of a split's clients show."""
    setting = Setting(DATA, NETWORK, split, clusters.CLIENTS, seed)
    federation = Federation.planted(setting)
    layout = Layout.of((name, each.shape) for name, each in federation.model.named_parameters())
    supports = supports_of(federation, federation.importances, "10%")
    return structure_of(list(supports.values()), layout)


def accuracy(split: str, way: str) -> float:
    """The mean accuracy of a way to train, over all seeds of the study."""
    cells = Cells().of(clusters.NAME)
    found = [
        cell.figures[way]["accuracy"]
        for cell in cells
        if (cell.setting.split, cell.setting.data, cell.setting.network) == (split, DATA, NETWORK)
    ]
    return mean(found)


def guide(way: str, column: str) -> float | None:
    """The accuracy in a cell of the guide's table; None where it has no such column."""
    text = (ROOT / "docs" / "federation.md").read_text()
    head, _, *rows = (_OF_GUIDE + text.partition(_OF_GUIDE)[2]).partition("\n\n")[0].splitlines()
    columns = [cell.strip() for cell in head.split("|")]
    if not column:
        return None
    [row] = [row for row in rows if row.startswith(f"| {way} |")]
    cell = row.split("|")[columns.index(column)].replace("*", "")
    return float(cell.partition("±")[0])


def measured(split: Split, seeds: int = SEEDS) -> Measured:
    """The figures of a split: its structure, the mean over seeds, and what training gave."""
    found = [structure(split.name, seed) for seed in range(seeds)]
    return Measured(
        name=split.words,
        kappa=round(mean(each.kappa for each in found), _DIGITS),
        silhouette=round(mean(each.silhouette for each in found), _DIGITS),
        groups=round(mean(each.groups / each.clients for each in found), _DIGITS),
        **trained(split),
    )


def trained(split: Split) -> Trained:
    """The accuracies of a split, by the cells of the studies and the guide's table."""
    plain = [each for way in _BESIDE if (each := guide(way, split.column)) is not None]
    return {
        "one_model": round(accuracy(split.name, clusters.GLOBAL), _DIGITS),
        "alone": round(accuracy(split.name, clusters.ALONE), _DIGITS),
        "by_groups": round(accuracy(split.name, clusters.KNOWN), _DIGITS),
        "mixed": guide(_MIXED, split.column),
        "personal": guide(_PERSONAL, split.column),
        "beside": max(plain, default=None),
    }


def module_of(federations: Iterable[Measured]) -> str:
    """The text of the SDK's module with these federations."""
    return _HEAD + "".join(map(_lines_of, federations)) + ")\n"


def rates(seeds: Iterable[int]) -> dict[str, int]:
    """How often the answer on groups is right, wrong and none, of other seeds of each split."""
    counts = dict.fromkeys(("right", "wrong", "not known"), 0)
    for split, kept in zip(SPLITS, MEASURED, strict=True):
        gain = kept.by_groups - max(kept.one_model, kept.alone)
        for seed in seeds:
            take = advise(structure(split.name, seed)).answers[0].take
            said = "not known" if take == "not known" else "right"
            counts[said if said != "right" or (take == "yes") == (gain > 0) else "wrong"] += 1
    return counts


def main(arguments: list[str]) -> None:
    """Write the module, or print how often it is right."""
    if arguments == ["--rates"]:
        print(rates(range(SEEDS, SEEDS + 5)))
    else:
        MODULE.write_text(module_of(measured(split) for split in SPLITS))


def _lines_of(federation: Measured) -> str:
    values = asdict(federation) | {"name": f'"{federation.name}"'}
    lines = "".join(f"        {field}={value},\n" for field, value in values.items())
    return f"    Measured(\n{lines}    ),\n"


_HEAD: Final = '''"""Federations of 20 clients, trained in every way: structures and accuracies.

``python -m benchmarks.federation.advice`` has written this module.
"""

from __future__ import annotations

from typing import Final

from modelkin.federation.advice.federations import Measured

__all__ = ["MEASURED"]

MEASURED: Final = (
'''


if __name__ == "__main__":
    main(sys.argv[1:])
