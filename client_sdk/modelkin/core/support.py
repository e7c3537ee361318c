"""``Support``: the indices of a model's most salient parameters, and nothing else of the model.

A support is immutable and valid by construction: its indices are sorted, distinct and in range. An
ordered one has the octave of each index's rank beside them, and no value either.
``modelkin.core.selection`` chooses it, ``modelkin.core.codecs`` knows its bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from modelkin.core import support_files
from modelkin.core.codecs import gaps as gap_stream
from modelkin.core.codecs import roaring
from modelkin.core.codecs import support as native
from modelkin.core.codecs.checks import Payload
from modelkin.core.gaps import NO_GAPS, Gaps, check_gaps
from modelkin.core.importance import Origin, check_origin
from modelkin.core.indices import IndexArray, check_indices, check_num_parameters
from modelkin.core.layout import Layout
from modelkin.core.matching.correspondence import correspond
from modelkin.core.octaves import Octaves, check_octaves
from modelkin.core.sketching.signature import Signature
from modelkin.core.sketching.sketch import DEFAULT_SIZE, Sketch
from modelkin.core.support_files import AnyPath
from modelkin.errors import InvalidParameter

__all__ = ["Support"]


class Support:
    """A sorted set of K distinct parameter indices out of M parameters.

    Make one with this constructor, ``modelkin.select_support`` or :meth:`from_bytes`. Two supports
    are equal when their M, indices, octaves and gaps are; ``origin`` does not count.
    """

    __slots__ = ("_digest", "_gaps", "_indices", "_num_parameters", "_octaves", "_origin")

    _indices: IndexArray
    _num_parameters: int
    _digest: str | None
    _origin: Origin | None
    _octaves: Octaves | None
    _gaps: Gaps

    def __init__(
        self,
        indices: Any,
        num_parameters: int,
        *,
        octaves: Any = None,
        origin: Origin | None = None,
        gaps: Iterable[Sequence[int]] = (),
    ) -> None:
        """A support from any one-dimensional integers: a numpy array, a torch tensor, a list.

        Args:
            indices: K distinct integers in ``[0, num_parameters)``, ascending. They are copied.
            num_parameters: M, 1 to 2^63 - 1.
            octaves: the octaves of an ordered support: for each index ``floor(log2(r))`` of its
                rank r by importance, 1 for the most important one. They are copied.
            origin: the kind of importance that the indices were selected by and the layout that
                they follow, as far as they are known.
            gaps: half-open ranges of the parameters that the model does not have, and the support
                does not cover: comparisons leave them out.

        Raises:
            InvalidSupport: not integers, empty, unsorted, repeated, out of range, in a gap: nothing
                is sorted silently, since that often shows another fault. Or octaves not of ranks.
            InvalidParameter: M is not an integer in its range, or origin is not an ``Origin``.
            SpaceMismatch: the layout of the origin has another number of parameters.
        """
        m = check_num_parameters(num_parameters)
        checked = check_indices(indices, m)
        ordered = None if octaves is None else check_octaves(octaves, checked.size)
        left_out = check_gaps(gaps, checked, m, ordered=ordered is not None)
        self._set(checked, m, None, check_origin(origin, m), ordered, left_out)

    @classmethod
    def trusted(
        cls,
        indices: IndexArray,
        num_parameters: int,
        *,
        digest: str | None = None,
        origin: Origin | None = None,
        octaves: Octaves | None = None,
        gaps: Gaps = NO_GAPS,
    ) -> Support:
        """A support of indices that are known to be valid; nothing is checked or copied.

        Args:
            indices: ascending, distinct, below M, at least one, uint32 where M <= 2^32, else
                uint64. They are shared and must not change.
            num_parameters: M.
            digest: ``sha256:`` and hex, if it is known.
            origin: as for the constructor.
            octaves: the octaves of the indices, shared as these are; None for a plain support.
            gaps: the parameters that it does not cover.
        """
        support = cls.__new__(cls)
        support._set(indices, num_parameters, digest, origin, octaves, gaps)
        return support

    def _set(
        self,
        indices: IndexArray,
        num_parameters: int,
        digest: str | None,
        origin: Origin | None,
        octaves: Octaves | None,
        gaps: Gaps,
    ) -> None:
        self._gaps = gaps
        self._indices = _read_only(indices)
        self._num_parameters = num_parameters
        self._digest = digest
        self._origin = origin
        self._octaves = None if octaves is None else _read_only(octaves)

    @classmethod
    def from_indices(
        cls,
        indices: Any,
        num_parameters: int,
        *,
        octaves: Any = None,
        origin: Origin | None = None,
        gaps: Iterable[Sequence[int]] = (),
    ) -> Support:
        """Call the constructor by another name, with the same arguments and errors."""
        return cls(indices, num_parameters, octaves=octaves, origin=origin, gaps=gaps)

    @property
    def indices(self) -> IndexArray:
        """The K indices, ascending, read-only: uint32 where M <= 2^32, else uint64."""
        return self._indices

    @property
    def octaves(self) -> Octaves | None:
        """The octave of each index's rank by importance, read-only; None of a plain support."""
        return self._octaves

    @property
    def ordered(self) -> bool:
        """Whether the support has octaves."""
        return self._octaves is not None

    @property
    def gaps(self) -> Gaps:
        """The ranges of parameters that it does not cover, since the model does not have them."""
        return self._gaps

    def unordered(self) -> Support:
        """The plain support of the same indices, without a copy of them."""
        if self._octaves is None:
            return self
        return Support.trusted(self._indices, self._num_parameters, origin=self._origin)

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
    def origin(self) -> Origin | None:
        """The kind of importance and the layout behind the indices, which no byte of it says."""
        return self._origin

    def with_origin(self, origin: Origin | None) -> Support:
        """The same support with another origin, without a copy of its indices.

        Raises:
            InvalidParameter: it is not an ``Origin``.
            SpaceMismatch: its layout has another number of parameters.
        """
        origin = check_origin(origin, self._num_parameters)
        return Support.trusted(
            self._indices,
            self._num_parameters,
            digest=self._digest,
            origin=origin,
            octaves=self._octaves,
            gaps=self._gaps,
        )

    def reordered(self, layout: Layout) -> Support:
        """The same parameters in a layout that has the tensors in another order, or other names.

        Indices are moved, not selected again: of entries that tie at the K-th place, a selection in
        the other order may hold others. Give ``order`` to ``select_support`` to have the same.

        Args:
            layout: a layout of the tensors of :attr:`origin`'s layout, under any names that mean
                the same. The result has gaps where this one lacks a part (docs/families.md).

        Raises:
            InvalidParameter: the origin has no layout.
            SpaceMismatch: more of the layout is missing; names the tensors.
        """
        origin = self._origin
        if origin is None or origin.layout is None:
            raise InvalidParameter(
                "the layout of this support is not known: pass layout= to select_support",
                field="layout",
            )
        if origin.layout.digest == layout.digest:
            return self.with_origin(replace(origin, layout=layout))
        tensors = correspond(origin.layout, layout)
        tensors.require_part()
        moved = replace(origin, layout=layout, note=tensors.note or origin.note)
        indices, octaves = tensors.moved(self._indices, self._octaves)
        m, gaps = layout.num_parameters, tensors.gaps(self._gaps)
        return Support.trusted(indices, m, origin=moved, octaves=octaves, gaps=gaps)

    @property
    def digest(self) -> str:
        """``sha256:`` and the digest of M, K and the content (docs/wire-format.md), in hex.

        An ordered support, and one with gaps, has another than the plain one of its indices.
        """
        if self._digest is None:
            m = self._num_parameters
            stream = gap_stream.encode(self._indices, m)
            self._digest = gap_stream.digest(stream, m, self.k, self._octaves, self._gaps)
        return self._digest

    def signature(self, num_perm: int = 256, seed: int = 1, scheme: str | None = None) -> Signature:
        """The MinHash signature of the support: of its indices alone, whatever their octaves.

        Args:
            num_perm: h, 1 to 4,096.
            seed: 0 to 2^32 - 1; only signatures of equal seeds can be compared.
            scheme: ``affine32`` or ``affine64``; by default ``affine32`` up to M = 2^32,
                ``affine64`` beyond.

        Raises:
            InvalidSignature: an argument out of its range, or a 32-bit scheme where indices need
                more than 32 bits.
        """
        return Signature.of(
            self._indices,
            self._num_parameters,
            num_perm=num_perm,
            seed=seed,
            scheme=scheme,
            origin=self._origin,
        )

    def sketch(self, size: int = DEFAULT_SIZE, seed: int = 1) -> Sketch:
        """The support within a sample of coordinates: of its indices alone.

        Args:
            size: coordinates of the sample, a multiple of 64 up to 2^20.
            seed: 0 to 2^32 - 1; only sketches of equal seeds can be compared.
        """
        return Sketch.of(self._indices, self._num_parameters, size=size, seed=seed)

    def to_bytes(self) -> bytes:
        """The native wire format, ``application/vnd.modelkin.support``."""
        return native.encode(self._indices, self._num_parameters, self._octaves, self._gaps)

    @classmethod
    def from_bytes(
        cls, data: Payload, *, num_parameters: int | None = None, max_k: int | None = None
    ) -> Support:
        """A support from the native wire format.

        A short payload can honestly declare a huge K, so leave ``max_k`` out only for trusted
        writers: memory grows with K as the header declares it.

        Args:
            data: the whole payload.
            num_parameters: the M it has to have; None takes the payload's own.
            max_k: the most indices to decode; None for no limit.

        Raises:
            InvalidSupport: not this format, another version, truncated, damaged, or followed by
                other bytes, or octaves that are not those of ranks.
            SpaceMismatch: the payload has another M.
            PayloadTooLarge: K is above ``max_k``.
        """
        header, indices, octaves = native.decode(data, num_parameters=num_parameters, max_k=max_k)
        m, digest = header.num_parameters, header.digest
        return cls.trusted(indices, m, digest=digest, octaves=octaves, gaps=header.gaps)

    def save(self, path: AnyPath) -> None:
        """Write the support to a file, and its origin to ``FILE.origin.json`` beside it."""
        support_files.save(path, self.to_bytes(), self.digest, self._origin)

    @classmethod
    def load(cls, path: AnyPath) -> Support:
        """The support of a file, with its origin where that is beside it.

        Raises: InvalidSupport for another or a damaged file, OSError for one that is not read.
        """
        support = cls.from_bytes(Path(path).read_bytes())
        m = support.num_parameters
        return support.with_origin(support_files.origin_beside(path, support.digest, m))

    def to_roaring(self) -> bytes:
        """A portable Roaring bitmap, 64-bit where M > 2^32; needs ``modelkin[roaring]``.

        Raises:
            InvalidParameter: the support is ordered, and a bitmap has no place for octaves.
            MissingExtra: pyroaring is not installed.
        """
        self.require_unordered("a Roaring bitmap has no place for octaves: send the native format")
        return roaring.encode_roaring(self._indices, self._num_parameters)

    @classmethod
    def from_roaring(
        cls, data: Payload, num_parameters: int, *, max_k: int | None = None
    ) -> Support:
        """A support from a portable Roaring bitmap, which has no M; needs ``modelkin[roaring]``.

        Args:
            data: the bitmap and nothing behind it; 32-bit where M <= 2^32, else 64-bit.
            num_parameters: M, 1 to 2^63 - 1.
            max_k: the most indices to decode; None only for trusted writers.

        Raises:
            InvalidSupport: not a bitmap, damaged, empty, out of range, or followed by other bytes.
            PayloadTooLarge: more than ``max_k`` indices.
            MissingExtra: pyroaring is not installed.
        """
        indices = roaring.decode_roaring(data, num_parameters, max_k=max_k)
        return cls.from_indices(indices, num_parameters)

    def require_unordered(self, why: str) -> None:
        """Refuse a support whose octaves or gaps would be lost, for whatever reason that is.

        Raises:
            InvalidParameter: the support has octaves, with the reason; or it has gaps.
        """
        if self._gaps:
            raise InvalidParameter(
                "the support covers a part of the parameters, and its gaps have no place here: "
                "send it whole, in the native format or as JSON",
                field="support",
            )
        if self.ordered:
            raise InvalidParameter(
                f"the support is ordered, and {why}, or support.unordered()", field="support"
            )

    def __len__(self) -> int:
        return self.k

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Support):
            return NotImplemented
        if (self._num_parameters, self._gaps) != (other._num_parameters, other._gaps):
            return False
        if not np.array_equal(self._indices, other._indices):
            return False
        if self._octaves is None or other._octaves is None:
            return self._octaves is other._octaves
        return np.array_equal(self._octaves, other._octaves)

    def __hash__(self) -> int:
        return hash((self._num_parameters, self.digest))

    def __reduce__(self) -> tuple[Any, ...]:
        plain = (self._indices, self._num_parameters, self._digest, self._origin)
        return _restored, (*plain, self._octaves, self._gaps)

    def __repr__(self) -> str:
        name = "Support, ordered," if self.ordered else "Support"
        return f"<{name} of {self.k:,} of {self._num_parameters:,} parameters ({self.density:.2%})>"


def _restored(indices: Any, m: int, digest: Any, origin: Any, *more: Any) -> Support:
    """A support out of a pickle; one of an older version has neither octaves nor gaps."""
    named = dict(zip(("octaves", "gaps"), more, strict=False))
    return Support.trusted(indices, m, digest=digest, origin=origin, **named)


def _read_only(array: Any) -> Any:
    view = array.view()
    view.flags.writeable = False
    return view
