"""``Delta``: the indices to add to a support, and to remove from it, that make another of it.

Set arithmetic on sorted arrays and nothing else: what crosses the network is ``modelkin.wire``'s,
who may apply a delta to what is the service's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from modelkin.core.indices import IndexArray, check_same_space, index_dtype
from modelkin.core.kernels.choice import kernels
from modelkin.core.support import Support
from modelkin.errors import InvalidSupport

__all__ = ["Delta"]


@dataclass(frozen=True, slots=True, eq=False)
class Delta:
    """What changes from one support to the next.

    Made by :meth:`between` or :meth:`of`; the constructor trusts its caller.

    Attributes:
        added: the new indices, ascending, distinct and in range, of the support's dtype; possibly
            none.
        removed: those that go, likewise.
        digest: of the support that this makes; None where it is not known.
    """

    added: IndexArray
    removed: IndexArray
    digest: str | None = None

    @classmethod
    def between(cls, before: Support, after: Support) -> Delta:
        """The delta with which ``before`` becomes ``after``.

        Raises:
            SpaceMismatch: they are of different numbers of parameters.
        """
        check_same_space(before.num_parameters, after.num_parameters)
        difference = kernels().difference
        added = difference(after.indices, before.indices)
        return cls(added, difference(before.indices, after.indices), after.digest)

    @classmethod
    def of(
        cls, added: Any, removed: Any, num_parameters: int, *, digest: str | None = None
    ) -> Delta:
        """A delta from any one-dimensional integers, ascending and distinct; either may be empty.

        Args:
            added: the new indices, in ``[0, num_parameters)``.
            removed: those that go.
            num_parameters: M, 1 to 2^63 - 1.
            digest: of the support that this makes.

        Raises:
            InvalidSupport: unsorted, repeated, out of range or no integers.
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
            InvalidSupport: an index to remove is not there, one to add is there already, nothing
                would be left, or what is made has not the ``digest``.
        """
        difference = kernels().difference
        absent = difference(self.removed, before.indices)
        if absent.size:
            raise InvalidSupport(
                f"index {int(absent[0])} is to be removed, and the support has it not",
                field="removed",
            )
        new = difference(self.added, before.indices)
        if new.size < self.added.size:
            present = int(difference(self.added, new)[0])
            raise InvalidSupport(
                f"index {present} is to be added, and the support has it already", field="added"
            )
        kept = difference(before.indices, self.removed)
        if kept.size + new.size == 0:
            raise InvalidSupport(
                f"this removes all {before.k} indices, and a support needs at least one",
                field="removed",
            )
        after = Support(np.insert(kept, np.searchsorted(kept, new), new), before.num_parameters)
        if self.digest is not None and after.digest != self.digest:
            raise InvalidSupport(
                f"the result has the digest {after.digest}, not {self.digest} as the delta says: "
                f"its writer is at fault"
            )
        return after


def _indices(name: str, values: Any, num_parameters: int) -> IndexArray:
    """Checked as those of a support are, but that there may be none."""
    if np.ndim(values) == 1 and len(values) == 0:
        none: IndexArray = np.empty(0, index_dtype(num_parameters))
        return none
    try:
        return Support.from_indices(values, num_parameters).indices
    except InvalidSupport as error:
        raise InvalidSupport(f"{name}: {error}", field=name) from None
