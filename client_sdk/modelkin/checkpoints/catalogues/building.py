"""Building a catalogue from a list, one base after the other, from where it was interrupted.

What was read of a base is kept in a folder beside the catalogue, as a catalogue of that base. So a
build that is killed goes on with the next one, and a base whose commit the old catalogue has is not
fetched again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from modelkin.checkpoints.anatomies import fingerprint_of, is_fingerprint, name_of
from modelkin.checkpoints.catalogues.lists import Wanted
from modelkin.checkpoints.catalogues.repositories import Hub
from modelkin.checkpoints.catalogues.statements import bytes_of, statements_of
from modelkin.checkpoints.opening import open_checkpoint
from modelkin.core.catalogues.base import Base
from modelkin.core.catalogues.catalogue import Catalogue
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.quoting import quote
from modelkin.errors import (
    InvalidCatalogue,
    InvalidInput,
    InvalidParameter,
    MissingExtra,
)

__all__ = ["Built", "Failure", "build", "parts_of"]

_ENDING: Final = ".mkct"

Observer = Callable[[int, int], None]
"""A function of how many lines are read, and of how many."""


@dataclass(frozen=True)
class Failure:
    """A line whose base is not in the catalogue, and why."""

    line: int
    text: str
    reason: str


@dataclass(frozen=True)
class Built:
    """A catalogue that was written.

    Attributes:
        catalogue: as it is in the file.
        read: how many bases were read now; the others were known.
        failures: the lines that gave none.
    """

    catalogue: Catalogue
    read: int
    failures: tuple[Failure, ...]


def parts_of(path: Path) -> Path:
    """The folder of an unfinished build."""
    return path.with_name(f"{path.name}.building")


def build(
    wanted: Sequence[Wanted],
    path: Path,
    *,
    hub: str | None = None,
    observe: Observer | None = None,
) -> Built:
    """Read the bases of a list, and write their catalogue.

    Args:
        wanted: the list.
        path: of the catalogue. One that is there is taken over: of repositories whose commit it
            has, nothing is fetched.
        hub: the address of the hub; None for that of ``HF_ENDPOINT``, or the public one.
        observe: is called before each line is read.

    Raises:
        InvalidParameter: no line gave a base, or two gave one name.
        InvalidCatalogue: what is there at the path is no catalogue.
        ConnectionFailed: the hub stopped answering. What was read is kept for the next call.
        MissingExtra: a package is not installed.
        OSError: a disk is full, or the folder cannot be written.
    """
    work = _Work(path, hub)
    found, failures = list[Catalogue](), list[Failure]()
    for done, each in enumerate(wanted):
        if observe is not None:
            observe(done, len(wanted))
        try:
            found.append(work.catalogue_of(each))
        except MissingExtra:
            raise
        except (InvalidInput, FileNotFoundError, IsADirectoryError, PermissionError) as error:
            failures.append(Failure(each.line, each.text, str(error)))
    if not found:
        said = "; ".join(f"line {each.line}: {each.reason}" for each in failures[:3])
        raise InvalidParameter(f"no line of the list gave a base: {said or 'it is empty'}")
    _check_names(found)
    made = Catalogue.joined(found)
    made.save(path)
    if not failures:
        shutil.rmtree(parts_of(path), ignore_errors=True)
    return Built(Catalogue.load(path), work.read, tuple(failures))


class _Work:
    """What was read before, and what is read now.

    Args:
        path: of the catalogue.
        hub: the address of the hub.

    Attributes:
        read: how many bases were read now.
    """

    def __init__(self, path: Path, hub: str | None) -> None:
        self._old = Catalogue.load(path) if path.exists() else None
        self._folder = parts_of(path)
        self._folder.mkdir(exist_ok=True)
        self._address, self._hub = hub, None if hub is None else Hub(hub)
        self.read = 0

    def catalogue_of(self, wanted: Wanted) -> Catalogue:
        """The catalogue of a line: of one base, or of the components of a pipeline."""
        part = self._folder / f"{wanted.key(self._state_of(wanted))}{_ENDING}"
        if part.exists():
            with suppress(InvalidCatalogue):
                return Catalogue.load(part)
        bases = self._of_disk(wanted) if wanted.is_local else self._of_hub(wanted)
        made = Catalogue.of((wanted.told(base), fingerprint) for base, fingerprint in bases)
        made.save(part)
        return made

    def _state_of(self, wanted: Wanted) -> str:
        """What changes where the files of a line do."""
        if not wanted.is_local:
            return self._address or ""
        state = os.stat(wanted.path)
        return f"{os.path.abspath(wanted.path)} {state.st_size} {state.st_mtime_ns}"

    def _of_disk(self, wanted: Wanted) -> list[tuple[Base, Fingerprint]]:
        path = wanted.path
        base = Base(name_of(path) or wanted.text)
        self.read += 1
        if is_fingerprint(path):
            return [(base, fingerprint_of(path))]
        checkpoint = open_checkpoint(path)
        base = replace(base, file_bytes=bytes_of(checkpoint), **asdict(statements_of(checkpoint)))
        return [(base, fingerprint_of(checkpoint))]

    def _of_hub(self, wanted: Wanted) -> list[tuple[Base, Fingerprint]]:
        hub = self._hub = self._hub or Hub(self._address)
        base, files = hub.look_up(wanted.text, wanted.revision)
        if known := self._known(base):
            return known
        folder = self._folder / f"{base.revision}.files"
        made = list[tuple[Base, Fingerprint]]()
        for each in hub.checkpoints(base, files, folder):
            checkpoint = open_checkpoint(hub.fetch(base, each.choice, folder))
            told = replace(each.base, file_bytes=bytes_of(checkpoint))
            made.append((told, fingerprint_of(checkpoint)))
            self.read += 1
        shutil.rmtree(folder, ignore_errors=True)
        return made

    def _known(self, base: Base) -> list[tuple[Base, Fingerprint]]:
        """The bases of the old catalogue that are of this commit."""
        if self._old is None:
            return []
        commit = (base.url, base.revision)
        same = [each for each in self._old.values() if (each.url, each.revision) == commit]
        return [(each, self._old.fingerprint(each.name)) for each in same]


def _check_names(catalogues: Sequence[Catalogue]) -> None:
    """Refuse two bases of one name, of which a catalogue would keep the last."""
    known = set[str]()
    for catalogue in catalogues:
        for name in catalogue:
            if name in known:
                raise InvalidParameter(
                    f"two lines give a base named {quote(name)}: name one of them otherwise, as in "
                    f"name={name}-2"
                )
            known.add(name)
