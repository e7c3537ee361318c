"""``Resumption``: the findings of a long reading so far, kept for a sync that is killed."""

from __future__ import annotations

import logging
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import numpy as np

from app.hubs.ingestion.files.downloads import DownloadDir
from app.infra.errors import Unavailable, explain
from modelkin.checkpoints.one_pass import OnePass

__all__ = ["Resumption"]

log = logging.getLogger(__name__)


class Resumption:
    """The state of one reading, in a file that outlasts its process.

    Syncs of one model for several sources may share the file: each writes in a folder of its own,
    and the last one that has read a file counts.

    Args:
        path: the file, whose name says what is read; None where nothing is kept.
        directory: the sync's folder.
    """

    def __init__(self, path: Path | None = None, directory: DownloadDir | None = None) -> None:
        self._path = path
        self._directory = directory
        self.kept = False
        """Whether the next attempt can go on from what this one has read."""

    def restore(self, reading: OnePass) -> None:
        """Go on from the kept state; one that is damaged, or of another reading, is none."""
        if self._path is None or not self._path.is_file():
            return
        try:
            with np.load(self._path, allow_pickle=False) as kept:  # noqa: TID251 - written here
                reading.restore(dict(kept))
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
            log.warning("a sync begins again, since what it had read is of no use: %s", error)
            self.forget()

    def keep(self, reading: OnePass) -> None:
        """Keep the state of a reading in place of an earlier one, if the disk has room for it."""
        if self._path is None or self._directory is None:
            return
        state, new = reading.state(), self._directory.path / self._path.name
        try:
            self._directory.reserve(sum(array.nbytes for array in state.values()))
            np.savez(new, **cast(Any, state))
            new.replace(self._path)
            self.kept = True
        except (OSError, Unavailable) as error:
            log.warning("what a sync has read is not kept: %s", explain(error))
            with suppress(OSError):
                new.unlink(missing_ok=True)

    def forget(self) -> None:
        """Delete what is kept, once the reading has ended or cannot go on."""
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
