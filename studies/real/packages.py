"""The members of the packages of one family."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from studies.real.archives import read_members
from studies.real.downloads import CACHE, fetched
from studies.real.manifest import Package, package

__all__ = ["Packages"]


class Packages:
    """Files of packages, downloaded where they are not there.

    Args:
        cache: the folder for what is downloaded.
    """

    def __init__(self, cache: Path = CACHE) -> None:
        self._cache = cache
        self.read: list[Package] = []
        """The packages that were read so far, in their order."""

    def members(self, name: str, version: str, wanted: Callable[[str], bool]) -> dict[str, bytes]:
        """Members of a package of the manifest, by name.

        Raises:
            Unavailable: the package cannot be had, or is another one.
            InvalidFile: its archive is damaged, or lacks such members.
        """
        found = package(name, version)
        if found not in self.read:
            self.read.append(found)
        return read_members(fetched(found, self._cache), wanted)
