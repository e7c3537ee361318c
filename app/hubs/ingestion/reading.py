"""``Reading``: the one pass of a sync over a model's files, and those of its base.

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
from modelkin.checkpoints import Checkpoint, Weights
from modelkin.checkpoints.lines import PassLines
from modelkin.checkpoints.one_pass import OnePass, describe_weights
from modelkin.checkpoints.pieces import pieces_by_tensor
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.importance import Importance, Origin
from modelkin.core.layout import Layout
from modelkin.core.matching.correspondence import correspond
from modelkin.core.selection.largest import LargestEntries
from modelkin.core.support import Support
from modelkin.core.weights import WeightsDigest
from modelkin.errors import ModelkinError

__all__ = ["LinesRequest", "Reading", "read_lines"]

Counting = Callable[[int, int], None]
"""A function of the values read, and of all."""
Sized = Callable[[float], int]
"""The K of a checkpoint that has a share of a layout's parameters."""


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


class Reading:
    """What a sync asks of a model and its base, and the answers.

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
        self._checkpoint = checkpoint
        self._layout = layout
        self._files = files
        self._model = checkpoint.fitted(layout)
        self._pass = OnePass(base_errors=LACKING)
        self._own = self._pass.digest()
        self._pass.add_stored(self._own, checkpoint.stored)
        self._lines = lines
        if lines is not None:
            lines.ask(self._pass, checkpoint)
        self._weights: LargestEntries | None = None
        self._base: Checkpoint | None = None
        self._common = self._model
        self._of_base: WeightsDigest | None = None
        self._differences: LargestEntries | None = None

    def ask_weights(self, sized: Sized) -> None:
        """Ask for the support of the weights."""
        most = sized(self._share(self._model))
        self._weights = self._pass.select(self._model.tensors, None, most)

    def ask_differences(self, base: Checkpoint, sized: Sized) -> None:
        """Ask for the support of the differences from a base, and for the digest of that."""
        self._base = base
        self._of_base = self._digest_of(base)
        self._common, others = self._model.beside(base)
        for tensor, other in zip(self._common.tensors, others.tensors, strict=True):
            self._pass.compare(tensor, other)
        most = sized(self._share(self._common))
        self._differences = self._pass.select(self._common.tensors, others.tensors, most)

    @property
    def most_held(self) -> int:
        """The most bytes of a file that are read twice, and must be on the disk until then."""
        return self._pass.most_twice

    def read(self, count: Counting, resumption: Resumption) -> None:
        """Read all files, from the last one on that a killed sync has read.

        Args:
            count: is called as the values are read.
            resumption: keeps the answers after each file.

        Raises:
            InvalidCheckpoint: a value is not finite, or a file ends early.
            HubProtocolError: a file has not the digest that the hub declares.
            RangesIgnored: the hub sends whole files alone.
        """

        def after_file(finished: frozenset[Path]) -> None:
            self._compare(finished)
            resumption.keep(self._pass)

        resumption.restore(self._pass)
        self._files.trust(self._pass.finished)  # a state is kept of compared files alone
        self._pass.read(count, after_file, self._files.hold)
        self._compare(None)
        if self._lines is not None:
            self._lines.is_read = True

    def _compare(self, paths: frozenset[Path] | None) -> None:
        """Compare files with the digests that the hub declares; None for all files.

        A base of other bytes has no differences, and ends nothing.
        """
        of_base = set() if self._base is None else {tensor.path for tensor in self._base.stored}
        if paths is None:
            paths = self._files.paths
        self._files.finish(paths - of_base)
        if self._pass.base_error is None:
            try:
                self._files.finish(paths & of_base)
            except LACKING as error:
                self._pass.base_error = error

    @property
    def weights(self) -> Weights:
        """The digests of all weights of the model."""
        return describe_weights(self._checkpoint, self._own)

    @property
    def base_digest(self) -> str:
        """The digest of the base, of the tensors that the layout has."""
        assert self._of_base is not None
        return self._of_base.result()

    @property
    def base_error(self) -> ModelkinError | None:
        """Why the base has no answer; None where it has."""
        return self._pass.base_error

    def weights_support(self) -> Support:
        """The support of the weights, in the order of the layout.

        Raises:
            InvalidImportance: all weights are zero.
        """
        assert self._weights is not None
        return self._finished(self._weights, None, "weight", self._model)

    def difference_support(self, sized: Sized) -> Support | None:
        """The support of the differences, of a size that is known now; None if it is too large.

        Raises:
            InvalidImportance: all differences are zero.
        """
        assert self._differences is not None
        k = sized(self._share(self._common))
        if k > self._differences.most:
            return None
        return self._finished(self._differences, k, "delta", self._common)

    @property
    def rounding_note(self) -> str | None:
        """The note for differences that are mostly rounding; None without a base."""
        if self._base is None:
            return None
        return self._pass.rounding.note(self._checkpoint, self._base)

    def _finished(
        self, entries: LargestEntries, k: int | None, kind: str, model: Checkpoint
    ) -> Support:
        digest = self.base_digest if kind == "delta" else None
        importance = Importance.of(kind, digest, model.origin_note)
        support = entries.support(k).with_origin(Origin(importance, model.layout))
        return support.reordered(self._layout)  # the same indices, by the names of the space

    def _share(self, model: Checkpoint) -> float:
        return model.num_parameters / self._layout.num_parameters

    def _digest_of(self, base: Checkpoint) -> WeightsDigest:
        digest = self._pass.digest()
        found = correspond(base.layout, correspond(base.layout, self._layout).common)
        mine = correspond(self._model.layout, found.target)
        beside = {
            found.target.tensors[piece.target].name: self._model.tensors[piece.source]
            for piece in mine.pieces
        }
        for spec, pieces in pieces_by_tensor(base.tensors, found):
            place = beside.get(spec.name)
            self._pass.add_to(digest, spec.name, spec.shape, pieces, place, of_base=True)
        return digest


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
        resumption: as for :meth:`Reading.read`.

    Raises:
        InvalidCheckpoint, HubProtocolError, RangesIgnored: as :meth:`Reading.read`.
        StorageFull: the disk has no room for what is read twice.
    """
    one, files = OnePass(), fetching.ranged
    lines.ask(one, checkpoint)
    fetching.make_room(one.most_twice)

    def after_file(finished: frozenset[Path]) -> None:
        files.finish(finished)
        resumption.keep(one)

    resumption.restore(one)
    files.trust(one.finished)
    one.read(count, after_file, files.hold)
    files.finish()
    lines.is_read = True
