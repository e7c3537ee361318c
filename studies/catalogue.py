"""All studies by the names of their tables, and the cells that a call is for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Final

from studies.settings import Setting
from studies.tables import (  # isort: split
    bounds,
    clusters,
    costs,
    definitions,
    disclosure,
    epochs,
    estimates,
    graphs,
    importances,
    lengths,
    membership,
    newcomers,
    numbers,
    ordered,
    personal,
    privacy,
    retrieval,
    samples,
    uplift,
)

__all__ = ["ALL", "BY_NAME", "TABLES", "TIMED", "Asked"]

TABLES: Final[dict[str, ModuleType]] = {
    "table1": clusters,
    "table2": personal,
    "table3": retrieval,
    "table4": retrieval,
    "table5": retrieval,
    "table6": costs,
    "table7": costs,
    "table8": personal,
    "table9": retrieval,
    "table10": lengths,
    "table11": epochs,
    "graphs": graphs,
    "definitions": definitions,
    "disclosure": disclosure,
    "membership": membership,
    "private": privacy,
    "ordered": ordered,
    "uplift": uplift,
    "samples": samples,
    "numbers": numbers,
    "newcomers": newcomers,
    "estimates": estimates,
    "importances": importances,
    "bounds": bounds,
}
ALL: Final = "all"
BY_NAME: Final[dict[str, ModuleType]] = {study.NAME: study for study in TABLES.values()}
TIMED: Final = (costs.NAME,)
"""Studies whose cells take the time, and want a machine to themselves."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of a call.

    Attributes:
        table: one of :data:`TABLES`, or :data:`ALL`.
        data: of its federations.
        network: theirs.
        clients: N, but of studies that have another number.
        seeds: how many.
        data_dir: the folder of data that come as files.
        samples: of each client, of data that come as files; 0 for all.
    """

    table: str
    data: str = Setting().data
    network: str = Setting().network
    clients: int = Setting().clients
    seeds: int = 10
    data_dir: Path | None = None
    samples: int = 0

    @property
    def studies(self) -> list[ModuleType]:
        """One, or all."""
        return [*BY_NAME.values()] if self.table == ALL else [TABLES[self.table]]

    def cells(self) -> Iterator[tuple[str, Setting]]:
        """The name of the study and the setting of each; of all, whatever the page is made of."""
        for study in self.studies:
            for setting in study.settings(range(self.seeds), self.data, self.network):
                own = setting.clients != Setting().clients  # of the study itself
                clients = setting.clients if own else self.clients
                found = replace(setting, clients=clients, data_dir=self.data_dir)
                yield study.NAME, replace(found, samples=self.samples or setting.samples)
        if self == Asked(ALL, seeds=self.seeds):
            for other in _BESIDE:
                yield from replace(other, seeds=min(self.seeds, other.seeds)).cells()


_BESIDE: Final = (
    Asked("table3", clients=20),
    Asked("table3", network="mlp", seeds=3),
    Asked("table3", network="two layers", seeds=3),
    Asked("private", data="synthetic", network="mlp", seeds=2),
)
"""Other federations on the page."""
