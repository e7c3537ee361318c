"""The settings of a cell of a study: data, network, split, clients and seed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

__all__ = [
    "CLIENTS",
    "DATA",
    "DIRICHLET",
    "FILES",
    "LARGE",
    "NETWORKS",
    "PATHOLOGICAL",
    "SPLITS",
    "TUNING_SEEDS",
    "Setting",
    "fits",
    "grid",
]

FILES: Final = ("fashion-mnist", "cifar10", "cifar100", "newsgroups")
"""Data that come as files of a folder."""
DATA: Final = ("digits", "synthetic", *FILES)
NETWORKS: Final = ("cnn", "two layers", "mlp")
"""Those that tables of several networks have."""
LARGE: Final = ("resnet18", "resnet50", "bert")
DIRICHLET: Final = ("Dir(0.1)", "Dir(0.3)")
PATHOLOGICAL: Final = ("Patho(20%)", "Patho(30%)")
SPLITS: Final = (*DIRICHLET, *PATHOLOGICAL, "IID")
CLIENTS: Final = (20, 40)
TUNING_SEEDS: Final = (100, 101, 102)
"""Baselines are tuned on these, and no table uses them."""

_COLOUR: Final = ("cifar10", "cifar100")
_TEXTS: Final = ("newsgroups",)


def fits(data: str, network: str) -> bool:
    """Whether a network reads what the data have.

    ResNets read colour images, BERT token ids; convolutions read any image, and the MLP vectors of
    words as well.
    """
    if network == "mlp":
        return True
    if network == "bert":
        return data in _TEXTS
    if network in LARGE:
        return data in _COLOUR
    return data not in _TEXTS


@dataclass(frozen=True, slots=True)
class Setting:
    """One federation, the same at each run.

    Attributes:
        data: one of :data:`DATA`.
        network: one of :data:`NETWORKS` or :data:`LARGE`.
        split: one of :data:`SPLITS`.
        clients: N.
        seed: of the split, the common weights and the training.
        samples: n, of each client, for synthetic data and those of files; 0 for all that they have.
        data_dir: the folder of data that come as files; not a part of what is measured.
    """

    data: str = "digits"
    network: str = "cnn"
    split: str = "Dir(0.1)"
    clients: int = 40
    seed: int = 0
    samples: int = 0
    data_dir: Path | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """Such as ``digits-cnn-dir01-40-0``, for files and spaces."""
        words = [self.data, self.network, self.split, str(self.clients), str(self.seed)]
        words += [str(self.samples)] if self.samples else []
        return "-".join("".join(c for c in word.lower() if c.isalnum()) for word in words)

    @property
    def measured(self) -> dict[str, Any]:
        """All but the place of the files, for the file of a cell."""
        found = asdict(self)
        del found["data_dir"]
        return found


def grid(
    seeds: Sequence[int],
    data: str,
    network: str,
    splits: Iterable[str] = DIRICHLET,
    clients: int = 40,
) -> Iterator[Setting]:
    """Each split with each seed: the settings of most tables."""
    for split in splits:
        for seed in seeds:
            yield Setting(data, network, split, clients, seed)
