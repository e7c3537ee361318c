"""Results: what was found of one family, kept as a file until it is measured again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from studies.cells import FOLDER, Figures, rounded, versions, write_cell
from studies.real.manifest import Package

__all__ = ["STUDY", "Result", "keep", "results"]

STUDY: Final = "real"


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of one family of published checkpoints.

    Attributes:
        family: its name.
        date: of the measurement, such as ``2026-11-25``.
        packages: that have the checkpoints.
        figures: what was found.
    """

    family: str
    date: str
    packages: tuple[Package, ...]
    figures: Figures


def results(folder: Path = FOLDER) -> list[Result]:
    """All results that there are, by family.

    Raises:
        ValueError: a file is not a result; says which.
    """
    return [_result(path) for path in sorted((folder / STUDY).glob("*.json"))]


def keep(
    family: str,
    packages: Sequence[Package],
    figures: Mapping[str, Mapping[str, float]],
    folder: Path = FOLDER,
) -> Result:
    """Keep the figures of a family in place of its last ones."""
    found = Result(family, f"{datetime.now(UTC):%Y-%m-%d}", tuple(packages), rounded(figures))
    head = {
        "study": STUDY,
        "setting": {"family": family, "packages": [asdict(package) for package in packages]},
        "date": found.date,
        "versions": versions(),
    }
    write_cell(folder / STUDY / f"{family}.json", head, found.figures)
    return found


def _result(path: Path) -> Result:
    try:
        read: Any = json.loads(path.read_text())
        setting = read["setting"]
        packages = tuple(Package(**package) for package in setting["packages"])
        return Result(setting["family"], read["date"], packages, read["figures"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a result of a family ({error}): delete it") from None
