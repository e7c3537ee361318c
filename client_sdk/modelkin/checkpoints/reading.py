"""``Reading``: supports, digests and lines of a checkpoint and its base, from one pass over both.

All that is wanted is asked before, and answered while the bytes are at hand: what a file is stored
under, how it is told again, and by which other models it is found. A service that follows a hub
reads so, and ``modelkin push``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from modelkin._threads import Counting, check_threads, processors
from modelkin.checkpoints.files import Checkpoint
from modelkin.checkpoints.lines import PassLines
from modelkin.checkpoints.one_pass import OnePass
from modelkin.checkpoints.pieces import pieces_by_tensor
from modelkin.checkpoints.tensors import StoredTensor
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.importance import Importance, Origin
from modelkin.core.layout import Layout
from modelkin.core.matching.correspondence import correspond
from modelkin.core.selection.largest import LargestEntries
from modelkin.core.support import Support
from modelkin.core.weights import Weights, WeightsDigest
from modelkin.errors import InvalidCheckpoint, InvalidParameter, ModelkinError

__all__ = ["Reading", "weights_of"]

Sized = Callable[[float], int]
"""The K of a checkpoint that has a share of a layout's parameters."""
T = TypeVar("T")


class Reading:
    """What is asked of a checkpoint and its base, and the answers.

    Ask first, then :meth:`read` once. A support has its largest entries in memory until then, 12
    bytes for each of its K, or 18 where M is above 2^32. An answer that was not asked for, or that
    nothing has been read for, is refused as an InvalidParameter.

    Args:
        checkpoint: the checkpoint of a model, as it was opened, and no adapter.
        layout: the tensors of its space, which supports follow; None for its own.
        base_errors: the errors of a base that leave it without an answer, and end nothing.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        layout: Layout | None = None,
        base_errors: tuple[type[ModelkinError], ...] = (InvalidCheckpoint,),
    ) -> None:
        self._checkpoint = checkpoint
        self._layout = checkpoint.layout if layout is None else layout
        self._model = checkpoint if layout is None else checkpoint.fitted(layout)
        self.one_pass = OnePass(base_errors=base_errors)
        """The pass, whose state may be kept and restored."""
        self._own = self.one_pass.digest()
        self.one_pass.add_stored(self._own, checkpoint.stored)
        self._lines: PassLines | None = None
        self._weights: LargestEntries | None = None
        self._base: Checkpoint | None = None
        self._common = self._model
        self._of_base: WeightsDigest | None = None
        self._differences: LargestEntries | None = None

    def ask_weights(self, sized: Sized) -> None:
        """Ask for the support of the weights; ``sized`` says the most indices that it may have."""
        most = sized(self._share(self._model))
        self._weights = self.one_pass.select(self._model.tensors, None, most)

    def ask_differences(self, base: Checkpoint, sized: Sized) -> None:
        """Ask for the support of the differences from a base, and for the digest of that."""
        self._base = base
        self._of_base = self._digest_of(base)
        self._common, others = self._model.beside(base)
        for tensor, other in zip(self._common.tensors, others.tensors, strict=True):
            self.one_pass.compare(tensor, other)
        most = sized(self._share(self._common))
        self._differences = self.one_pass.select(self._common.tensors, others.tensors, most)

    def ask_lines(self, tensors: Sequence[StoredTensor] | None = None) -> None:
        """Ask for the fingerprint of tensors; by default of all, also those that supports lack."""
        self._lines = self.one_pass.lines(self._checkpoint.stored if tensors is None else tensors)

    @property
    def base_paths(self) -> frozenset[Path]:
        """The files of the base."""
        stored = () if self._base is None else self._base.stored
        return frozenset(tensor.path for tensor in stored)

    def read(self, count: Counting | None = None, threads: int | None = None) -> None:
        """Read all files once.

        Args:
            count: is called with the values read so far and all of them.
            threads: that read lines beside the rest; by default as many as there are processors.

        Raises:
            InvalidCheckpoint: a value is not finite, or a file ends early.
            InvalidParameter: threads is below 1.
            OSError: a file cannot be read.
        """
        check_threads(threads)
        self.one_pass.read(count, threads=threads or processors())

    @property
    def weights(self) -> Weights:
        """The digests of all weights of the model."""
        return describe_weights(self._checkpoint, self._answered(self._own))

    @property
    def base_digest(self) -> str:
        """The digest of the base, of the tensors that the layout has.

        Raises:
            ModelkinError: :attr:`base_error`.
        """
        return self._answered(self._of_base, of_base=True).result()

    @property
    def base_error(self) -> ModelkinError | None:
        """Why the base has no answer; None where it has."""
        return self.one_pass.base_error

    def weights_support(self, sized: Sized | None = None) -> Support | None:
        """The support of the weights, in the order of the layout.

        Args:
            sized: its size, as is known now; None for that which was asked for.

        Returns:
            None where it is larger than what was asked for.

        Raises:
            InvalidImportance: all weights are zero.
        """
        return self._finished(self._answered(self._weights), sized, "weight", self._model)

    def difference_support(self, sized: Sized | None = None) -> Support | None:
        """The support of the differences, as :meth:`weights_support` says it of weights.

        Raises:
            InvalidImportance: all differences are zero.
            ModelkinError: :attr:`base_error`.
        """
        entries = self._answered(self._differences, of_base=True)
        return self._finished(entries, sized, "delta", self._common)

    def fingerprint(self) -> Fingerprint:
        """The fingerprint.

        Raises:
            InvalidImportance: a value of a matrix is NaN or infinite.
        """
        return self._answered(self._lines).fingerprint()

    @property
    def rounding_note(self) -> str | None:
        """The note for differences that are mostly rounding; None without a base."""
        if self._base is None:
            return None
        return self.one_pass.rounding.note(self._checkpoint, self._base)

    def _answered(self, asked: T | None, *, of_base: bool = False) -> T:
        """What was asked for, if it has its answer."""
        if asked is None or not self.one_pass.has_ended:
            raise InvalidParameter("ask for it first, and read: nothing has been read for it")
        if of_base and self.base_error is not None:
            raise self.base_error
        return asked

    def _finished(
        self, entries: LargestEntries, sized: Sized | None, kind: str, model: Checkpoint
    ) -> Support | None:
        k = None if sized is None else sized(self._share(model))
        if k is not None and k > entries.most:
            return None
        digest = self.base_digest if kind == "delta" else None
        importance = Importance.of(kind, digest, model.origin_note)
        support = entries.support(k).with_origin(Origin(importance, model.layout))
        return support.reordered(self._layout)  # the same indices, by the names of the space

    def _share(self, model: Checkpoint) -> float:
        return model.num_parameters / self._layout.num_parameters

    def _digest_of(self, base: Checkpoint) -> WeightsDigest:
        digest = self.one_pass.digest()
        found = correspond(base.layout, correspond(base.layout, self._layout).common)
        mine = correspond(self._model.layout, found.target)
        beside = {
            found.target.tensors[piece.target].name: self._model.tensors[piece.source]
            for piece in mine.pieces
        }
        for spec, pieces in pieces_by_tensor(base.tensors, found):
            place = beside.get(spec.name)
            self.one_pass.add_to(digest, spec.name, spec.shape, pieces, place, of_base=True)
        return digest


def weights_of(checkpoint: Checkpoint, count: Counting | None = None) -> Weights:
    """Describe the weights of a checkpoint: all its tensors of floats, also those left out.

    Exact copies are told by it: the same values in another dtype are another model.

    An adapter's are its factors. The files are read once, in stretches.

    Args:
        checkpoint: the checkpoint, as it was opened.
        count: is called with the values read so far and all of them.

    Raises:
        InvalidCheckpoint: a file ends early.
        OSError: a file cannot be read.
    """
    one = OnePass()
    digest = one.digest()
    one.add_stored(digest, checkpoint.stored)
    one.read(count)
    return describe_weights(checkpoint, digest)


def describe_weights(checkpoint: Checkpoint, digest: WeightsDigest) -> Weights:
    """The description of a checkpoint's weights with this digest of them."""
    dtypes: Counter[str] = Counter()
    for tensor in checkpoint.stored:
        dtypes[tensor.dtype] += tensor.size
    files = {tensor.path for tensor in checkpoint.stored}
    return Weights(
        digest=digest.result(),
        tensors=digest.tensors,
        files=len(files),
        size=sum(file.stat().st_size for file in files),
        dtypes=dict(dtypes.most_common()),
    )
