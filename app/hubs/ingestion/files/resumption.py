"""``Resumption``: the findings of a long reading so far, kept for a sync that is killed."""

from __future__ import annotations

import logging
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import numpy as np

from modelkin.checkpoints.one_pass import OnePass

__all__ = ["Resumption"]

log = logging.getLogger(__name__)


class Resumption:
    """The state of one reading, in a file that outlasts its process.

    Args:
        path: the file, whose name says what is read; None where nothing is kept.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path

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
        """Keep the state of a reading in place of an earlier one.

        Raises:
            OSError: the file cannot be written.
        """
        if self._path is None:
            return
        new = self._path.with_suffix(".new.npz")
        np.savez(new, **cast(Any, reading.state()))
        new.replace(self._path)

    def forget(self) -> None:
        """Delete what is kept, once the reading has ended or cannot go on."""
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
