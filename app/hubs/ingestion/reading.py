"""``FetchedReading``: the one pass of a sync over a model's files, and those of its base.

Large files are fetched as they are read, so all that a sync wants of them is asked before: the
digests of all weights, the largest weights, the largest differences, the digest of the base, and
the lines of a fingerprint.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from app.hubs.ingestion.base_names import LACKING
from app.hubs.ingestion.files.checkpoint_fetcher import CheckpointFetcher
from app.hubs.ingestion.files.ranged_files import RangedFiles
from app.hubs.ingestion.files.resumption import Resumption
from modelkin._threads import Counting
from modelkin.checkpoints import Checkpoint, Reading
from modelkin.checkpoints.lines import PassLines
from modelkin.checkpoints.one_pass import OnePass
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.layout import Layout

__all__ = ["FetchedReading", "LinesRequest", "read_lines"]


Compare = Callable[[frozenset[Path] | None], object]
"""Compares files with the digests that a hub declares; None for all files."""


class LinesRequest:
    """The lines of a model's file that its fingerprint needs, whichever pass reads them.

    Attributes:
        is_read: whether a pass over the whole file has ended.
    """

    def __init__(self) -> None:
        self.is_read = False
        self._lines: PassLines | None = None

    def ask(self, one: OnePass, checkpoint: Checkpoint) -> None:
        """Have a pass read them: of all tensors, also of those that supports leave out."""
        self._lines = one.lines(checkpoint.stored)

    def fingerprint(self) -> Fingerprint:
        """The fingerprint, once a pass has ended.

        Raises:
            InvalidImportance: a value of a matrix is NaN or infinite.
        """
        assert self._lines is not None
        return self._lines.fingerprint()


class FetchedReading(Reading):
    """A reading of files that are fetched as they are read, and compared with what a hub declares.

    Args:
        checkpoint: the model, as it was opened.
        layout: the tensors of its space; supports follow it.
        files: the files that are fetched as they are read.
        lines: those of a fingerprint; None where it needs none.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        layout: Layout,
        files: RangedFiles,
        lines: LinesRequest | None = None,
    ) -> None:
        super().__init__(checkpoint, layout, LACKING)
        self._files = files
        self._request = lines
        if lines is not None:
            lines.ask(self.one_pass, checkpoint)

    def fetch(self, count: Counting, resumption: Resumption) -> None:
        """Read all files, from the last one on that a killed sync has read.

        Args:
            count: is called as the values are read.
            resumption: keeps the answers after each file.

        Raises:
            InvalidCheckpoint: a value is not finite, or a file ends early.
            HubProtocolError: a file has not the digest that the hub declares.
            RangesIgnored: the hub sends whole files alone.
        """
        _fetch(self.one_pass, self._files, count, resumption, self._compare)
        if self._request is not None:
            self._request.is_read = True

    def _compare(self, paths: frozenset[Path] | None) -> None:
        """Compare files with the digests that the hub declares; None for all files.

        A base of other bytes has no differences, and ends nothing.
        """
        if paths is None:
            paths = self._files.paths
        self._files.finish(paths - self.base_paths)
        if self.base_error is None:
            try:
                self._files.finish(paths & self.base_paths)
            except LACKING as error:
                self.one_pass.base_error = error


def read_lines(
    lines: LinesRequest,
    checkpoint: Checkpoint,
    fetching: CheckpointFetcher,
    count: Counting,
    resumption: Resumption,
) -> None:
    """Read a model for its fingerprint alone.

    Args:
        lines: has the answer afterwards.
        fetching: has fetched the checkpoint, or fetches it as it is read.
        resumption: as for :meth:`FetchedReading.fetch`.

    Raises:
        InvalidCheckpoint, HubProtocolError, RangesIgnored: as :meth:`FetchedReading.fetch`.
        StorageFull: the disk has no room for what is read twice.
    """
    one, files = OnePass(), fetching.ranged
    lines.ask(one, checkpoint)
    fetching.make_room(one.most_twice)
    _fetch(one, files, count, resumption, files.finish)
    lines.is_read = True


def _fetch(
    one: OnePass, files: RangedFiles, count: Counting, resumption: Resumption, compare: Compare
) -> None:
    """Carry out a pass, from the last file on that a killed sync has read and compared."""

    def after_file(finished: frozenset[Path]) -> None:
        compare(finished)
        resumption.keep(one)

    resumption.restore(one)
    files.trust(one.finished)  # a state is kept of compared files alone
    one.read(count, after_file, files.hold)
    compare(None)
