"""``Support``: the indices of a model's most salient parameters, and nothing else of the model.

A support is immutable and valid by construction: its indices are sorted, distinct and in range. An
ordered one has the octave of each index's rank beside them, and no value either.
``modelkin.core.selection`` chooses it, ``modelkin.core.codecs`` knows its bytes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from modelkin.core import support_files
from modelkin.core.codecs import gaps, roaring
from modelkin.core.codecs import support as native
from modelkin.core.codecs.checks import Payload
from modelkin.core.importance import Origin
from modelkin.core.indices import IndexArray, check_indices, check_num_parameters
from modelkin.core.layout import Layout
from modelkin.core.matching.correspondence import correspond
from modelkin.core.octaves import Octaves, check_octaves
from modelkin.core.sketching.signature import Signature
from modelkin.core.sketching.sketch import DEFAULT_SIZE, Sketch
from modelkin.core.support_files import AnyPath
from modelkin.errors import InvalidParameter, SpaceMismatch

__all__ = ["Support"]


class Support:
    """A sorted set of K distinct parameter indices out of M parameters.

    Make one with this constructor, ``modelkin.select_support`` or :meth:`from_bytes`. Two supports
    are equal when their M, their indices and their octaves are; ``origin`` does not count.
    """

    __slots__ = ("_digest", "_indices", "_num_parameters", "_octaves", "_origin")

    _indices: IndexArray
    _num_parameters: int
    _digest: str | None
    _origin: Origin | None
    _octaves: Octaves | None

    def __init__(
        self,
        indices: Any,
        num_parameters: int,
        *,
        octaves: Any = None,
        origin: Origin | None = None,
    ) -> None:
        """A support from any one-dimensional integers: a numpy array, a torch tensor, a list.

        Args:
            indices: K distinct integers in ``[0, num_parameters)``, ascending. They are copied.
            num_parameters: M, 1 to 2^63 - 1.
            octaves: the octaves of an ordered support: for each index ``floor(log2(r))`` of its
                rank r by importance, 1 for the most important one. They are copied.
            origin: the kind of importance that the indices were selected by and the layout that
                they follow, as far as they are known.

        Raises:
            InvalidSupport: empty, not integers, not one-dimensional, unsorted, repeated or out of
                range. Nothing is sorted silently: unsorted indices are often a sign that something
                else went wrong. Or the octaves are not those of the ranks 1 to K.
            InvalidParameter: M is not an integer in its range, or origin is not an ``Origin``.
            SpaceMismatch: the layout of the origin has another number of parameters.
        """
        m = check_num_parameters(num_parameters)
        checked = check_indices(indices, m)
        ordered = None if octaves is None else check_octaves(octaves, checked.size)
        self._set(checked, m, None, _check_origin(origin, m), ordered)

    @classmethod
    def trusted(
        cls,
        indices: IndexArray,
        num_parameters: int,
        *,
        digest: str | None = None,
        origin: Origin | None = None,
        octaves: Octaves | None = None,
    ) -> Support:
        """A support of indices that are known to be valid; nothing is checked or copied.

        Args:
            indices: ascending, distinct, below M, at least one, uint32 where M <= 2^32, else
                uint64. They are shared and must not change.
            num_parameters: M.
            digest: ``sha256:`` and hex, if it is known.
            origin: as for the constructor.
            octaves: the octaves of the indices, shared as these are; None for a plain support.
        """
        support = cls.__new__(cls)
        support._set(indices, num_parameters, digest, origin, octaves)
        return support

    def _set(
        self,
        indices: IndexArray,
        num_parameters: int,
        digest: str | None,
        origin: Origin | None,
        octaves: Octaves | None,
    ) -> None:
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
    ) -> Support:
        """Call the constructor by another name, with the same arguments and errors."""
        return cls(indices, num_parameters, octaves=octaves, origin=origin)

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
        """The kind of importance and the layout behind the indices; None if neither is known.

        It is part of neither equality nor digest nor bytes.
        """
        return self._origin

    def with_origin(self, origin: Origin | None) -> Support:
        """The same support with another origin, without a copy of its indices.

        Raises:
            InvalidParameter: it is not an ``Origin``.
            SpaceMismatch: its layout has another number of parameters.
        """
        origin = _check_origin(origin, self._num_parameters)
        return Support.trusted(
            self._indices,
            self._num_parameters,
            digest=self._digest,
            origin=origin,
            octaves=self._octaves,
        )

    def reordered(self, layout: Layout) -> Support:
        """The same parameters in a layout that has the tensors in another order, or other names.

        The indices are moved, not selected again. Of entries that tie at the K-th place the lower
        index is selected, so a selection from an importance in the other order may hold others of
        them: give ``layout`` to ``select_support`` to have the same.

        Args:
            layout: a layout of the tensors of :attr:`origin`'s layout. They may have other names
                that mean the same (docs/hubs.md).

        Raises:
            InvalidParameter: the origin has no layout.
            SpaceMismatch: the tensors differ; names those that do.
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
        tensors.require_equal()
        moved = replace(origin, layout=layout, note=tensors.note or origin.note)
        indices, octaves = tensors.moved(self._indices, self._octaves)
        return Support.trusted(indices, layout.num_parameters, origin=moved, octaves=octaves)

    @property
    def digest(self) -> str:
        """``sha256:`` and the digest of M, K and the content (docs/wire-format.md), in hex.

        An ordered support has another one than the plain support of the same indices.
        """
        if self._digest is None:
            stream = gaps.encode(self._indices, self._num_parameters)
            self._digest = gaps.digest(stream, self._num_parameters, self.k, self._octaves)
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

        Raises:
            InvalidParameter: size or seed is out of its range.
        """
        return Sketch.of(self._indices, self._num_parameters, size=size, seed=seed)

    def to_bytes(self) -> bytes:
        """The native wire format, ``application/vnd.modelkin.support``."""
        return native.encode(self._indices, self._num_parameters, self._octaves)

    @classmethod
    def from_bytes(
        cls, data: Payload, *, num_parameters: int | None = None, max_k: int | None = None
    ) -> Support:
        """A support from the native wire format.

        Memory grows with K as the header declares it, and ``max_k`` bounds K. A short payload can
        honestly declare a huge K (consecutive indices compress to nearly nothing), so leave
        ``max_k`` out only for trusted writers.

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
        return cls.trusted(indices, header.num_parameters, digest=header.digest, octaves=octaves)

    def save(self, path: AnyPath) -> None:
        """Write the support to a file, and its origin to ``FILE.origin.json`` beside it.

        ``modelkin support`` writes the same two files.
        """
        support_files.save(path, self.to_bytes(), self.digest, self._origin)

    @classmethod
    def load(cls, path: AnyPath) -> Support:
        """The support of a file, with its origin where that is beside it.

        Raises:
            InvalidSupport: the file holds no support, or a damaged one.
            OSError: the file cannot be read.
        """
        support = cls.from_bytes(Path(path).read_bytes())
        m = support.num_parameters
        return support.with_origin(support_files.origin_beside(path, support.digest, m))

    def to_roaring(self) -> bytes:
        """A portable Roaring bitmap, 64-bit where M > 2^32; needs ``modelkin[fast]``.

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
        """A support from a portable Roaring bitmap, which has no M; needs ``modelkin[fast]``.

        Args:
            data: the bitmap and nothing behind it; 32-bit where M <= 2^32, else 64-bit.
            num_parameters: M, 1 to 2^63 - 1.
            max_k: the most indices to decode. A megabyte of runs can hold four billion, so leave it
                out only for trusted writers.

        Raises:
            InvalidSupport: not a bitmap, damaged, empty, out of range, or followed by other bytes.
            PayloadTooLarge: more than ``max_k`` indices.
            MissingExtra: pyroaring is not installed.
        """
        indices = roaring.decode_roaring(data, num_parameters, max_k=max_k)
        return cls.from_indices(indices, num_parameters)

    def require_unordered(self, why: str) -> None:
        """Refuse an ordered support where its order would be lost, for whatever reason that is.

        Raises:
            InvalidParameter: the support has octaves; gives the reason.
        """
        if self.ordered:
            raise InvalidParameter(
                f"the support is ordered, and {why}, or support.unordered()", field="support"
            )

    def __len__(self) -> int:
        return self.k

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Support):
            return NotImplemented
        if self._num_parameters != other._num_parameters:
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
        return _restored, (*plain, self._octaves)

    def __repr__(self) -> str:
        name = "Support, ordered," if self.ordered else "Support"
        return f"<{name} of {self.k:,} of {self._num_parameters:,} parameters ({self.density:.2%})>"


def _restored(indices: Any, m: int, digest: Any, origin: Any, octaves: Any = None) -> Support:
    """A support out of a pickle; one of an older version has no octaves."""
    return Support.trusted(indices, m, digest=digest, origin=origin, octaves=octaves)


def _read_only(array: Any) -> Any:
    view = array.view()
    view.flags.writeable = False
    return view


def _check_origin(origin: Any, m: int) -> Origin | None:
    if origin is None:
        return None
    if not isinstance(origin, Origin):
        raise InvalidParameter(
            f"origin must be a modelkin.core.importance.Origin, not {origin!r}", field="origin"
        )
    if origin.layout is not None and origin.layout.num_parameters != m:
        raise SpaceMismatch(
            f"the layout of the origin has {origin.layout.num_parameters} parameters, the support "
            f"{m}"
        )
    return origin
