"""Cells: one study of one setting, kept as a file, so that a run goes on where it stopped."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import modelkin
from studies.loaders.folder import DataError
from studies.settings import FILES, Setting

__all__ = ["FOLDER", "Cell", "Cells", "Figures", "rounded", "versions", "write_cell"]

Figures = dict[str, dict[str, float]]
"""By what was measured: each number by its name."""

FOLDER: Final = Path(__file__).resolve().parents[1] / "docs" / "studies"
_DECIMALS: Final = 5


@dataclass(frozen=True, slots=True)
class Cell:
    """The figures of one study of one setting."""

    study: str
    setting: Setting
    figures: Figures


class Cells:
    """A folder of cells, one folder a study.

    Args:
        folder: by default that of the documentation.
    """

    def __init__(self, folder: Path = FOLDER) -> None:
        self.folder = folder

    def of(self, study: str, *, of_files: bool = False) -> list[Cell]:
        """The cells of a study that are there, by the names of their settings.

        Args:
            study: its name.
            of_files: those of data that come as files, which have a page of their own.
        """
        found = (_cell(study, path) for path in sorted((self.folder / study).glob("*.json")))
        return [cell for cell in found if (cell.setting.data in FILES) == of_files]

    def path(self, study: str, setting: Setting) -> Path:
        """The path of the file of a cell, whether it exists or not."""
        return self.folder / study / f"{setting.name}.json"

    def made(self, study: str, setting: Setting, make: Callable[[], Figures]) -> Cell:
        """A cell from its file, or as ``make`` finds it, which is then kept.

        Raises:
            DataError: the file is not a cell; says which.
        """
        path = self.path(study, setting)
        if path.exists():
            return _cell(study, path)
        cell = Cell(study, setting, rounded(make()))
        head = {"study": study, "setting": setting.measured, "versions": versions()}
        write_cell(path, head, cell.figures)
        return cell


def _cell(study: str, path: Path) -> Cell:
    try:
        read: Any = json.loads(path.read_text())
        return Cell(study, Setting(**read["setting"]), read["figures"])
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is not a cell of a study ({error}): delete it") from None


def write_cell(path: Path, head: Mapping[str, object], figures: Figures) -> None:
    """Write a cell, whole or not at all, with a line for each thing that was measured.

    Args:
        path: of its file.
        head: what made it: its study, setting and versions.
        figures: what was found.
    """
    lines = [f"  {json.dumps(name)}: {json.dumps(value)}," for name, value in head.items()]
    rows = [f"    {json.dumps(name)}: {json.dumps(found)}" for name, found in figures.items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(f".{os.getpid()}.new")
    new.write_text("\n".join(["{", *lines, '  "figures": {', ",\n".join(rows), "  }", "}"]) + "\n")
    new.replace(path)


def versions() -> dict[str, str]:
    """The versions of the packages that compute figures."""
    names = ("numpy", "scikit-learn", "scipy", "torch")
    found = {name: metadata.version(name) for name in names}
    return {"modelkin": modelkin.__version__, "python": platform.python_version(), **found}


def rounded(figures: Mapping[str, Mapping[str, float]]) -> Figures:
    """Figures with as many decimals as files have."""
    return {
        name: {key: round(float(value), _DECIMALS) for key, value in found.items()}
        for name, found in figures.items()
    }
