"""``PushedFile``: a checkpoint that is read once for all that is sent of it."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from modelkin._threads import Counting
from modelkin.checkpoints.adapters import Adapter
from modelkin.checkpoints.catalogues.statements import (
    Statements,
    bytes_of,
    statements_of,
    unread_base_of,
)
from modelkin.checkpoints.importance import check_base, digest_of_base
from modelkin.checkpoints.lines import fingerprint
from modelkin.checkpoints.pushes.plan import Plan
from modelkin.checkpoints.reading import Reading, weights_of
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.importance import Importance
from modelkin.core.selection.rule import MAX_DEFAULT_K
from modelkin.core.selection.warnings import warn_if_few
from modelkin.core.support import Support
from modelkin.core.weights import Weights

__all__ = ["PushedFile"]


class PushedFile:
    """A checkpoint whose support, digests and fingerprint come from one pass over its files.

    A coverage needs all values before it says K, and more indices than a support has by default
    would not stay in memory: then the support is selected in passes of its own. So is that of an
    adapter, whose files are small.

    Args:
        plan: how its support is made, without the digest of its base.
        fixed: the K that the space fixes; None where it fixes none, or cannot be read.
        lines: whether a fingerprint is wanted.
        exclude: patterns of tensors that a fingerprint leaves out, too.
        count: is called with the values read so far and all of them.
        threads: that read lines beside the rest; by default as many as there are processors.

    Raises:
        InvalidCheckpoint: a weight is not finite, or a file ends early.
        SpaceMismatch: the base has other tensors.
        OSError: a file cannot be read.
    """

    def __init__(
        self,
        plan: Plan,
        fixed: int | None,
        *,
        lines: bool,
        exclude: Sequence[str] = (),
        count: Counting | None = None,
        threads: int | None = None,
    ) -> None:
        self._reading: Reading | None = None
        self._selecting: Reading | None = None  # the same, where it has the support, too
        if not isinstance(plan.checkpoint, Adapter):
            most = _most(plan, fixed)
            self._reading = _asked(plan, most, lines, exclude)
            self._reading.read(count, threads)
            self._selecting = None if most is None else self._reading
        if plan.base is not None:
            plan = plan.against(
                digest_of_base(plan.base, plan.checkpoint, plan.layout)
                if self._selecting is None
                else self._selecting.base_digest
            )
        self._plan = plan

    @property
    def importance(self) -> Importance:
        """The kind, with the digest of the base's weights."""
        return self._plan.importance

    def support(self, k: int | None = None) -> Support:
        """The support of the planned size, or of ``k`` indices of the whole space.

        Raises:
            InvalidImportance: all of its importance is zero.
        """
        plan, reading = self._plan, self._selecting
        if reading is None:
            return plan.support(k)
        wanted = plan.rule.k if k is None else plan.share_of(k)
        made = reading.weights_support if plan.base is None else reading.difference_support
        found = made(lambda _: wanted)
        if found is None:  # clients agreed on more than was asked for
            return plan.support(k)
        warn_if_few(found.k, wanted, plan.checkpoint.num_parameters)
        return found

    def share_of(self, k: int) -> int:
        """How many of ``k`` indices of the whole space it has, of which it may lack a part."""
        return self._plan.share_of(k)

    def weights(self) -> Weights:
        """The digests of all of its weights."""
        if self._reading is None:
            return weights_of(self._plan.checkpoint)
        return self._reading.weights

    def fingerprint(self) -> Fingerprint:
        """The fingerprint of its weights.

        Raises:
            InvalidCheckpoint: it is an adapter.
            InvalidImportance: a value of a matrix is NaN or infinite.
        """
        if self._reading is None:
            return fingerprint(self._plan.checkpoint)
        return self._reading.fingerprint()

    @property
    def statements(self) -> Statements:
        """What its files say of it."""
        return statements_of(self._plan.checkpoint)

    @property
    def unread_base(self) -> str | None:
        """Why a base that its card declares is not read; None if all is."""
        return unread_base_of(self._plan.checkpoint)

    @property
    def size(self) -> int:
        """The bytes of its files."""
        return bytes_of(self._plan.checkpoint)

    @property
    def notes(self) -> tuple[str, ...]:
        """The checkpoint's own notes, and one if differences are mostly rounding."""
        if self._selecting is None or self._plan.base is None:
            return self._plan.notes
        rounding = self._selecting.rounding_note
        mine = self._plan.checkpoint.notes
        return mine if rounding is None else (*mine, rounding)


def _asked(plan: Plan, most: int | None, lines: bool, exclude: Sequence[str]) -> Reading:
    """What is asked of a checkpoint, and of its base for a support of at most so many indices."""
    checkpoint, base = plan.checkpoint, plan.base
    reading = Reading(checkpoint, plan.layout)
    if most is not None and base is None:
        reading.ask_weights(lambda _: most)
    elif most is not None and base is not None:
        check_base(checkpoint, base)
        reading.ask_differences(base, lambda _: most)
    if lines:
        reading.ask_lines(
            [
                tensor
                for tensor in checkpoint.stored
                if not any(fnmatchcase(tensor.name, pattern) for pattern in exclude)
            ]
        )
    return reading


def _most(plan: Plan, fixed: int | None) -> int | None:
    """The most indices that may be asked for; None where a pass of its own has to select them."""
    most = max(plan.rule.k, 0 if fixed is None else plan.share_of(fixed))
    by_count = plan.rule.coverage in (None, 1)
    return most if by_count and most <= MAX_DEFAULT_K else None
