"""``Patch``: the indices to add to a support and to remove from it, to get another support.

This is set arithmetic on sorted arrays, without octaves: one index that changes moves the octaves
of others, so ordered supports are sent whole. ``modelkin.wire`` has the network format; the service
decides which client may apply a patch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from modelkin.core.indices import IndexArray, check_same_space, index_dtype
from modelkin.core.kernels.choice import kernels
from modelkin.core.support import Support
from modelkin.errors import InvalidSupport

__all__ = ["Patch"]

_NO_OCTAVES: Final = "a patch has no place for octaves: send the support whole"


@dataclass(frozen=True, slots=True, eq=False)
class Patch:
    """The change from one support to the next.

    Make one with :meth:`between` or :meth:`of`; the constructor trusts its caller.

    Attributes:
        added: the new indices, ascending, distinct and in range, of the support's dtype; possibly
            none.
        removed: the indices to remove, likewise.
        digest: ``sha256:`` and hex, of the support that it results in; None if unknown.
    """

    added: IndexArray
    removed: IndexArray
    digest: str | None = None

    @classmethod
    def between(cls, before: Support, after: Support) -> Patch:
        """The patch with which ``before`` becomes ``after``.

        Raises:
            SpaceMismatch: they are of different numbers of parameters.
            InvalidParameter: one of them is ordered.
        """
        check_same_space(before.num_parameters, after.num_parameters)
        before.require_unordered(_NO_OCTAVES)
        after.require_unordered(_NO_OCTAVES)
        difference = kernels().difference
        added = difference(after.indices, before.indices)
        return cls(added, difference(before.indices, after.indices), after.digest)

    @classmethod
    def of(
        cls, added: Any, removed: Any, num_parameters: int, *, digest: str | None = None
    ) -> Patch:
        """A patch from any one-dimensional integers, ascending and distinct; either may be empty.

        Args:
            added: the new indices, in ``[0, num_parameters)``.
            removed: the indices to remove.
            num_parameters: M, 1 to 2^63 - 1.
            digest: ``sha256:`` and hex, of the support that the patch results in.

        Raises:
            InvalidSupport: unsorted, repeated, out of range or not integers.
        """
        return cls(
            _indices("added", added, num_parameters),
            _indices("removed", removed, num_parameters),
            digest,
        )

    @property
    def size(self) -> int:
        """How many indices change."""
        return int(self.added.size + self.removed.size)

    def apply(self, before: Support) -> Support:
        """The support that ``before`` becomes.

        Raises:
            InvalidSupport: an index to remove is missing, one to add is present already, no index
                would remain, or the result does not have the ``digest``.
            InvalidParameter: ``before`` is ordered.
        """
        before.require_unordered(_NO_OCTAVES)
        difference = kernels().difference
        absent = difference(self.removed, before.indices)
        if absent.size:
            raise InvalidSupport(
                f"index {int(absent[0])} is to be removed, but is not in the support",
                field="removed",
            )
        new = difference(self.added, before.indices)
        if new.size < self.added.size:
            present = int(difference(self.added, new)[0])
            raise InvalidSupport(
                f"index {present} is to be added, but is already in the support", field="added"
            )
        kept = difference(before.indices, self.removed)
        if kept.size + new.size == 0:
            raise InvalidSupport(
                f"the patch removes all {before.k} indices, but a support needs at least one",
                field="removed",
            )
        after = Support.trusted(
            np.insert(kept, np.searchsorted(kept, new), new), before.num_parameters
        )
        if self.digest is not None and after.digest != self.digest:
            raise InvalidSupport(
                f"the result has the digest {after.digest}, not {self.digest} as the patch says: "
                f"its writer is at fault"
            )
        return after


def _indices(name: str, values: Any, num_parameters: int) -> IndexArray:
    """Check indices like those of a support, except that there may be none."""
    if np.ndim(values) == 1 and len(values) == 0:
        none: IndexArray = np.empty(0, index_dtype(num_parameters))
        return none
    try:
        return Support.from_indices(values, num_parameters).indices
    except InvalidSupport as error:
        raise InvalidSupport(f"{name}: {error}", field=name) from None
