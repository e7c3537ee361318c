"""The cells of trained networks, kept as files: one an architecture, and a few of all."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from studies.cells import FOLDER, Figures, rounded, versions, write_cell

__all__ = [
    "FOLLOWED",
    "HIDING",
    "HUB",
    "MERGES",
    "ONE_SEED",
    "ROTATIONS",
    "SAVINGS",
    "STRANGERS",
    "STUDY",
    "WIDE",
    "WORDS",
    "held",
    "is_held",
    "keep",
]

STUDY: Final = "lines"
HUB: Final = "hub"
FOLLOWED: Final = "followed hub"
"""The same hub as a service answers of it, kept by ``python -m tests.soak.kin --write``."""
MERGES: Final = "merges"
STRANGERS: Final = "strangers"
ONE_SEED: Final = "one seed, two architectures, all keys"
"""The row of strangers whose initial values may be equal."""
WIDE: Final = "wide lines"
ROTATIONS: Final = "rotations"
SAVINGS: Final = "savings"
WORDS: Final = "words"
HIDING: Final = "hiding"


def held(names: Sequence[str], folder: Path = FOLDER) -> dict[str, Figures]:
    """The figures of those cells that there are, by name.

    Raises:
        ValueError: a file is not a cell; says which.
    """
    return {name: _read(_path(folder, name)) for name in names if is_held(name, folder)}


def is_held(name: str, folder: Path = FOLDER) -> bool:
    """Whether there is a cell of a name."""
    return _path(folder, name).exists()


def keep(name: str, figures: Mapping[str, Mapping[str, float]], folder: Path = FOLDER) -> Figures:
    """Keep the figures of a cell."""
    found = rounded(figures)
    head = {"study": STUDY, "setting": {"cell": name}, "versions": versions()}
    write_cell(_path(folder, name), head, found)
    return found


def _path(folder: Path, name: str) -> Path:
    return folder / STUDY / f"{name.lower().replace(' ', '-')}.json"


def _read(path: Path) -> Figures:
    try:
        read: Any = json.loads(path.read_text())
        return {name: {**found} for name, found in read["figures"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not a cell of lines ({error}): delete it") from None
