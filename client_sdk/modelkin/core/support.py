"""``Support``: the indices of a model's most salient parameters, and nothing else of the model.

A support is immutable and valid by construction: whoever holds one may rely on sorted, distinct,
in-range indices. How it is chosen is ``selection``'s business, how it travels ``modelkin.wire``'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from modelkin.core.codecs import gaps
from modelkin.core.indices import (
    IndexArray,
    _as_integers,
    check_num_parameters,
    index_dtype,
)
from modelkin.errors import InvalidSupport

if TYPE_CHECKING:
    from modelkin.core.sketching.signature import Signature
    from modelkin.core.sketching.sketch import Sketch

__all__ = ["Support"]


class Support:
    """A sorted set of K distinct parameter indices out of M parameters.

    Make one with :meth:`from_indices`, ``modelkin.select_support`` or :meth:`from_bytes`. Two
    supports are equal when their M and their indices are.
    """

    __slots__ = ("_digest", "_indices", "_num_parameters")

    def __init__(
        self, indices: IndexArray, num_parameters: int, *, digest: str | None = None
    ) -> None:
        """Trusts its caller: indices and digest are valid. Elsewhere use :meth:`from_indices`."""
        view = indices.view()
        view.flags.writeable = False
        self._indices = view
        self._num_parameters = num_parameters
        self._digest = digest

    @classmethod
    def from_indices(cls, indices: Any, num_parameters: int) -> Support:
        """A support from any one-dimensional integers: a numpy array, a torch tensor, a list.

        Args:
            indices: K distinct integers in ``[0, num_parameters)``, ascending. They are copied.
            num_parameters: M, 1 to 2^63 - 1.

        Raises:
            InvalidSupport: empty, not integers, not one-dimensional, unsorted, repeated or out of
                range. Nothing is sorted silently: unsorted indices are often a sign that something
                else went wrong.
            InvalidParameter: M is not an integer in its range.
        """
        m = check_num_parameters(num_parameters)
        array = _as_integers(indices)
        if array.ndim != 1:
            raise InvalidSupport(
                f"indices must be one-dimensional, these have shape {array.shape}", field="indices"
            )
        if array.size == 0:
            raise InvalidSupport(
                "a support needs at least one index, this one is empty", field="indices"
            )
        # Signedness and range are settled on the original dtype: a cast would wrap -1 into range.
        ascending = array[1:] > array[:-1]
        if not ascending.all():
            at = int(np.argmin(ascending))
            a, b = int(array[at]), int(array[at + 1])
            wrong = "repeated" if a == b else "not sorted"
            raise InvalidSupport(
                f"indices are {wrong}: indices[{at}] = {a} is followed by {b}; "
                f"pass np.unique(indices) if they are meant as a set",
                field="indices",
            )
        if int(array[0]) < 0:
            raise InvalidSupport(f"indices[0] = {int(array[0])} is negative", field="indices")
        if int(array[-1]) >= m:
            raise InvalidSupport(
                f"indices[{array.size - 1}] = {int(array[-1])} is out of range for {m} parameters",
                field="indices",
            )
        checked: Any = array.astype(index_dtype(m), copy=True)
        return cls(checked, m)

    @property
    def indices(self) -> IndexArray:
        """The K indices, ascending, read-only: uint32 where M <= 2^32, else uint64."""
        return self._indices

    @property
    def num_parameters(self) -> int:
        """M, the size of the index space."""
        return self._num_parameters

    @property
    def k(self) -> int:
        """K, how many indices there are."""
        return int(self._indices.size)

    @property
    def density(self) -> float:
        """K / M."""
        return self.k / self._num_parameters

    @property
    def digest(self) -> str:
        """``sha256:`` and the digest of M, K and the gap stream (docs/wire-format.md), in hex."""
        if self._digest is None:
            stream = gaps.encode(self._indices, self._num_parameters)
            self._digest = gaps.digest(stream, self._num_parameters, self.k)
        return self._digest

    def signature(self, num_perm: int = 256, seed: int = 1, scheme: str | None = None) -> Signature:
        """The MinHash signature, see :meth:`Signature.of`."""
        from modelkin.core.sketching.signature import Signature

        return Signature.of(self, num_perm=num_perm, seed=seed, scheme=scheme)

    def sketch(self, size: int = 1 << 16, seed: int = 1) -> Sketch:
        """What a sample of coordinates shows of it, see :meth:`Sketch.of`."""
        from modelkin.core.sketching.sketch import Sketch

        return Sketch.of(self, size=size, seed=seed)

    def to_bytes(self) -> bytes:
        """The native wire format, ``application/vnd.modelkin.support``."""
        from modelkin import wire

        return wire.encode_support(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> Support:
        """A support from the native wire format; an :class:`InvalidSupport` says what is wrong."""
        from modelkin import wire

        return wire.decode_support(data)

    def to_roaring(self) -> bytes:
        """A portable Roaring bitmap; needs ``modelkin[fast]``."""
        from modelkin import wire

        return wire.encode_roaring(self)

    @classmethod
    def from_roaring(cls, data: bytes, num_parameters: int) -> Support:
        """A support from a portable Roaring bitmap, which has no M; needs ``modelkin[fast]``."""
        from modelkin import wire

        return wire.decode_roaring(data, num_parameters)

    def __len__(self) -> int:
        return self.k

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Support):
            return NotImplemented
        return self._num_parameters == other._num_parameters and np.array_equal(
            self._indices, other._indices
        )

    def __hash__(self) -> int:
        return hash((self._num_parameters, self.digest))

    def __repr__(self) -> str:
        return (
            f"<Support of {self.k:,} of {self._num_parameters:,} parameters ({self.density:.2%})>"
        )
