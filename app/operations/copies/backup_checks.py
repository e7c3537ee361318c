"""Checks of a folder of backups: every file is there, with the noted length and checksum.

A backup notes the supports that it lacks, and each of these is a finding, too.

Making a backup reads only new supports. So a lost bit in an older support is found here, or when it
is restored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import merge
from pathlib import Path

from app.infra.errors import NotFound, Unavailable
from app.operations.copies.manifests import (
    SUPPORTS,
    Manifest,
    Support,
    check_file,
    find_backup,
    supports_of,
    whole_backups,
)
from app.operations.copies.records import Finding

__all__ = ["BackupChecks"]


class BackupChecks:
    """Checks all finished backups of a folder, reading each support once.

    Args:
        progress: called with the number of supports that were read, and the most there may be.
    """

    def __init__(
        self, folder: Path, progress: Callable[[int, int], None] = lambda _done, _total: None
    ) -> None:
        self.backups = 0
        """The number of verified backups."""
        self.supports = 0
        """The number of their supports that were read."""
        self._folder = folder
        self._progress = progress

    def findings(self) -> Iterator[Finding]:
        """Yield all findings, as the checks make them.

        Raises:
            NotFound: the folder has no finished backup.
        """
        paths = whole_backups(self._folder)
        if not paths:
            raise NotFound(f"there is no finished backup in {self._folder}")
        lists: list[Iterator[Support]] = []
        total = 0
        for path in paths:
            self.backups += 1
            try:
                _, manifest = find_backup(self._folder, path.name)
                lists.append(supports_of(path, manifest))
            except Unavailable as error:
                yield _damage_finding(path, error)
                continue
            total += manifest.supports
            yield from _missing(path, manifest)
            yield from _files(path, manifest)
        yield from self._supports(lists, total)

    def _supports(self, lists: list[Iterator[Support]], total: int) -> Iterator[Finding]:
        """Findings in the supports that the lists name, each read once: all lists ascend."""
        last: Support | None = None
        for support in merge(*lists, key=lambda support: support.key):
            if support == last:
                continue
            last = support
            path = self._folder / SUPPORTS / support.key
            self._progress(self.supports, total)
            self.supports += 1
            try:
                check_file(path, support.sum)
            except Unavailable as error:
                yield Finding(
                    f"support {support.key}",
                    f"{error}; delete the file: the next backup copies it again, if a model has it "
                    f"still",
                )


def _missing(path: Path, manifest: Manifest) -> Iterator[Finding]:
    for key in manifest.missing:
        yield Finding(
            f"backup {path.name}",
            f"the support {key} was missing when it was made: put its model again, or restore the "
            f"file from an older backup; then make another backup",
        )


def _files(path: Path, manifest: Manifest) -> Iterator[Finding]:
    for file, total in manifest.files.items():
        try:
            check_file(path / file, total)
        except Unavailable as error:
            yield _damage_finding(path, error)


def _damage_finding(path: Path, error: Unavailable) -> Finding:
    return Finding(f"backup {path.name}", f"{error}; delete {path}, and make another one")
