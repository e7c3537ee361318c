"""The packages of one family, and their members."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from studies.real.archives import read_members
from studies.real.downloads import CACHE, fetched
from studies.real.manifest import MANIFEST, packages_of

__all__ = ["Packages"]


class Packages:
    """Files of packages, downloaded where they are not there.

    Args:
        family: whose checkpoints they have.
        cache: the folder for what is downloaded.
        manifest: names them.

    Raises:
        Unavailable: one of them cannot be had, or is not the one of the manifest.
    """

    def __init__(self, family: str, cache: Path = CACHE, manifest: Path = MANIFEST) -> None:
        self.all = packages_of(family, manifest)
        """In the order of the manifest."""
        self._files = {(p.name, p.version): fetched(p, cache) for p in self.all}

    def members(self, name: str, version: str, wanted: Callable[[str], bool]) -> dict[str, bytes]:
        """Members of a package of the family, by name.

        Raises:
            InvalidFile: its archive is damaged, or has a member outside of its folder.
        """
        return read_members(self._files[name, version], wanted)
