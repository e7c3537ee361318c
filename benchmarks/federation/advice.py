"""What ``modelkin advise`` compares with: federations that were trained in every way.

``python -m benchmarks.federation.advice`` writes the SDK's module of them. Structures are measured
here; accuracies are those of the cells behind the page on clusters, and of the guide's table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Final

from modelkin.core.layout import Layout
from modelkin.federation.advice.structure import Structure, structure_of
from studies.cells import Cells
from studies.federations import Federation
from studies.settings import Setting
from studies.tables import clusters
from studies.tables.retrieval import supports_of

__all__ = ["Split", "SPLITS", "accuracy", "guide", "main", "structure"]

ROOT: Final = Path(__file__).resolve().parents[2]
MODULE: Final = ROOT / "client_sdk" / "modelkin" / "federation" / "advice" / "measured.py"
DATA, NETWORK = "digits", "cnn"
SEEDS: Final = 3
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


def main() -> None:
    """Write the module."""
    MODULE.write_text("".join(_lines()))


def _lines() -> Iterator[str]:
    yield _HEAD
    for split in SPLITS:
        found = [structure(split.name, seed) for seed in range(SEEDS)]
        figures = (
            mean(each.kappa for each in found),
            mean(each.silhouette for each in found),
            mean(each.groups / each.clients for each in found),
            accuracy(split.name, clusters.GLOBAL),
            accuracy(split.name, clusters.ALONE),
            accuracy(split.name, clusters.KNOWN),
            guide(_MIXED, split.column),
            guide(_PERSONAL, split.column),
            max(guide(way, split.column) or 0.0 for way in _BESIDE) or None,
        )
        texts = ", ".join(str(each if each is None else round(each, 3)) for each in figures)
        yield f'    Measured("{split.words}", {texts}),\n'
    yield ")\n"


_HEAD: Final = '''"""Federations of 20 clients, trained in every way: structures and accuracies.

``python -m benchmarks.federation.advice`` has written this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["MEASURED", "Measured"]


@dataclass(frozen=True, slots=True)
class Measured:
    """A federation whose clients were trained in every way; figures are means over seeds.

    Attributes:
        name: how its clients differ.
        kappa: the mean similarity of two clients beyond chance.
        silhouette: of the groups that supports show; 0 without.
        groups: how many groups, over the number of clients.
        one_model: the accuracy of one model for all.
        alone: that of each client alone.
        by_groups: that of a model for each group, whose number is known.
        mixed: that of a quarter of the group's model in the common one; None if not measured.
        personal: that of one model with heads of the clients' own; None if not measured.
        beside: that of the best plain way, trained as the two before; None if not measured.
    """

    name: str
    kappa: float
    silhouette: float
    groups: float
    one_model: float
    alone: float
    by_groups: float
    mixed: float | None
    personal: float | None
    beside: float | None

    @property
    def hides_groups(self) -> bool:
        """Whether a model for each group is better, and groups hardly show."""
        return self.by_groups > self.one_model + 0.05 and self.silhouette < 0.1


MEASURED: Final = (
'''


if __name__ == "__main__":
    main()
