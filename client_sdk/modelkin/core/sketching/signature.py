"""``Signature``: h minima of a support under h permutations, which estimate similarity (MinHash).

``affine32`` and ``affine64`` are datasketch 2.x's, bit for bit: an index goes through MurmurHash3's
finaliser, then through ``a * x + b`` modulo 2^32 or 2^64 for h pairs of an odd ``a`` and a ``b``.
A client that has the indices can check a signature with datasketch, and bring signatures made by
it.

A support cannot be read back out of a signature; ``modelkin.core.codecs.signature`` knows the
bytes.
"""

from __future__ import annotations

import operator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from modelkin.core.codecs import signature as native
from modelkin.core.codecs.checks import Payload
from modelkin.core.estimators import jaccard_error, similarity_from_jaccard, standard_error
from modelkin.core.importance import Origin, check_same_origin
from modelkin.core.indices import IndexArray, check_num_parameters
from modelkin.core.sketching.minhashes import check_minhash
from modelkin.core.sketching.minima import IndexMembers, Members, minima
from modelkin.core.sketching.schemes import (
    MAX_NUM_PERM,
    MAX_SEED,
    ValueArray,
    check_integer,
    check_permutations,
    check_scheme,
    value_dtype,
)
from modelkin.errors import InvalidSignature, MissingExtra, SpaceMismatch

if TYPE_CHECKING:
    import datasketch

__all__ = [
    "Signature",
    "jaccard_estimates",
]


def jaccard_estimates(values: ValueArray, query: ValueArray) -> npt.NDArray[np.float64]:
    """The share of equal values of many signatures and one: estimates of Jaccard similarity.

    Args:
        values: shape ``(n, h)``, one signature a row.
        query: shape ``(h,)``, of the same scheme, h and seed.

    Returns:
        Shape ``(n,)``.
    """
    matches: npt.NDArray[np.int64] = np.count_nonzero(values == query, axis=1)
    return matches / query.size


class Signature:
    """The MinHash signature of a support of K out of M parameters; immutable.

    Make one with :meth:`of`, ``support.signature()``, :meth:`from_values` or
    :meth:`from_datasketch`. Two are equal when scheme, seed, M, K and all values are; ``origin``
    does not count.
    """

    __slots__ = ("_num_parameters", "_origin", "_scheme", "_seed", "_support_size", "_values")

    def __init__(
        self,
        values: ValueArray,
        *,
        scheme: str,
        seed: int,
        num_parameters: int,
        support_size: int,
        origin: Origin | None = None,
    ) -> None:
        """Trust the caller: all arguments are valid. Elsewhere use :meth:`from_values`."""
        view = values.view()
        view.flags.writeable = False
        self._values = view
        self._scheme = scheme
        self._seed = seed
        self._num_parameters = num_parameters
        self._support_size = support_size
        self._origin = origin

    @classmethod
    def of(
        cls,
        indices: IndexArray,
        num_parameters: int,
        *,
        num_perm: int = 256,
        seed: int = 1,
        scheme: str | None = None,
        origin: Origin | None = None,
    ) -> Signature:
        """The signature of a support's indices; ``support.signature()`` is the short way to it.

        Args:
            indices: valid ones, as ``Support.indices`` are.
            num_parameters: M.
            num_perm: h, 1 to 4,096.
            seed: 0 to 2^32 - 1; only signatures of equal seeds can be compared.
            scheme: ``affine32`` or ``affine64``; by default :func:`default_scheme` of M.
            origin: what the support says of its importance; None where nothing is known.

        Raises:
            InvalidSignature: an argument out of its range, or a 32-bit scheme where indices need
                more than 32 bits.
        """
        members = IndexMembers(indices, num_parameters)
        return cls.of_members(members, num_perm=num_perm, seed=seed, scheme=scheme, origin=origin)

    @classmethod
    def of_members(
        cls,
        members: Members,
        *,
        num_perm: int = 256,
        seed: int = 1,
        scheme: str | None = None,
        origin: Origin | None = None,
    ) -> Signature:
        """The signature of a support in any form; arguments and errors are those of :meth:`of`."""
        m = members.num_parameters
        scheme, h, seed = check_permutations(m, num_perm, seed, scheme)
        return cls(
            minima(members, scheme, h, seed),
            scheme=scheme,
            seed=seed,
            num_parameters=m,
            support_size=members.k,
            origin=origin,
        )

    @classmethod
    def from_values(
        cls,
        values: Any,
        *,
        num_parameters: int,
        support_size: int,
        scheme: str = "affine32",
        seed: int = 1,
    ) -> Signature:
        """A signature from untrusted values.

        Args:
            values: 1 to 4,096 integers, a list or a one-dimensional array: below 2^32, or 2^64 for
                ``affine64``.
            num_parameters: M.
            support_size: K, 1 to M.
            scheme: as in :meth:`of`.
            seed: as in :meth:`of`.

        Raises:
            InvalidSignature: an argument is out of its range. Values cannot be distinguished from
                random ones: that they come from a support of this size remains the sender's claim.
        """
        m = check_num_parameters(num_parameters)
        checked = _as_values(values, value_dtype(check_scheme(scheme, m)))
        return cls(
            checked,
            scheme=scheme,
            seed=check_integer(seed, "seed", 0, MAX_SEED),
            num_parameters=m,
            support_size=check_integer(support_size, "support_size", 1, m),
        )

    @property
    def values(self) -> ValueArray:
        """The h minima, read-only: uint64 for ``affine64``, else uint32."""
        return self._values

    @property
    def scheme(self) -> str:
        """``affine32`` or ``affine64``."""
        return self._scheme

    @property
    def num_perm(self) -> int:
        """h, how many permutations."""
        return int(self._values.size)

    @property
    def seed(self) -> int:
        """The seed of the permutations."""
        return self._seed

    @property
    def num_parameters(self) -> int:
        """M, the size of the index space."""
        return self._num_parameters

    @property
    def support_size(self) -> int:
        """K, the size of the support."""
        return self._support_size

    @property
    def origin(self) -> Origin | None:
        """The kind of importance and the layout of the support; None if neither is known.

        It is part of neither equality nor bytes.
        """
        return self._origin

    def jaccard(self, other: Signature) -> float:
        """The estimated Jaccard similarity of the two supports: the share of equal values.

        Raises:
            SpaceMismatch: scheme, h, seed or M differ, or the supports' origins state different
                kinds of importance or different layouts.
        """
        self._check_comparable(other)
        check_same_origin(self._origin, other._origin)
        return int(np.count_nonzero(self._values == other._values)) / self.num_perm

    def jaccard_error(self, other: Signature) -> float:
        """The standard error of :meth:`jaccard`, above 0."""
        return jaccard_error(self.jaccard(other), self.num_perm)

    def similarity(self, other: Signature) -> float:
        """The estimated similarity ``S = 2J / (1 + J)`` (Lemma E.1 estimates J, not S)."""
        return similarity_from_jaccard(self.jaccard(other))

    def standard_error(self, other: Signature) -> float:
        """The standard error of :meth:`similarity`, above 0: 0.026 at S = 0.7 and h = 256.

        If no value is equal, or all are, it is an upper bound by the rule of three.
        """
        return standard_error(self.jaccard(other), self.num_perm)

    def merge(self, *others: Signature) -> Signature:
        """The signature of the union of disjoint shards of one support: the least of each value.

        Raises:
            SpaceMismatch: scheme, h, seed or M differ.
            InvalidSignature: together the shards have more indices than there are parameters, so
                they overlap.
        """
        for other in others:
            self._check_comparable(other)
        size = self._support_size + sum(other._support_size for other in others)
        if size > self._num_parameters:
            raise InvalidSignature(
                f"the shards have {size} indices together, more than {self._num_parameters} "
                f"parameters: merge takes disjoint shards",
                field="support_size",
            )
        values = np.minimum.reduce([self._values, *(other._values for other in others)])
        return Signature(
            values,
            scheme=self._scheme,
            seed=self._seed,
            num_parameters=self._num_parameters,
            support_size=size,
        )

    def to_datasketch(self) -> datasketch.MinHash:
        """The same signature as a ``datasketch.MinHash`` whose hash function is the identity.

        Raises:
            MissingExtra: datasketch is not installed.
        """
        return _datasketch().MinHash(
            hashvalues=self._values, seed=self._seed, scheme=self._scheme, hashfunc=operator.index
        )

    @classmethod
    def from_datasketch(cls, minhash: Any, *, num_parameters: int, support_size: int) -> Signature:
        """A signature from a ``datasketch.MinHash`` of the indices under an identity hash.

        Args:
            minhash: made with ``MinHash(num_perm=h, seed=s, scheme="affine32", hashfunc=lambda i:
                i)``.
            num_parameters: M.
            support_size: K, which a MinHash does not carry.

        Raises:
            InvalidSignature: see :func:`~modelkin.core.sketching.minhashes.check_minhash`.
        """
        check_minhash(minhash, check_num_parameters(num_parameters))
        return cls.from_values(
            minhash.hashvalues,
            num_parameters=num_parameters,
            support_size=support_size,
            scheme=minhash.scheme,
            seed=minhash.seed,
        )

    def to_bytes(self) -> bytes:
        """The binary wire format, ``application/vnd.modelkin.signature``."""
        header = native.SignatureHeader(
            self._scheme, self.num_perm, self._seed, self._num_parameters, self._support_size
        )
        return native.encode(header, self._values)

    @classmethod
    def from_bytes(cls, data: Payload, *, num_parameters: int | None = None) -> Signature:
        """A signature from the binary wire format.

        Args:
            data: the whole payload.
            num_parameters: the M it has to have; None takes the payload's own.

        Raises:
            InvalidSignature: not this format, another version, truncated, damaged, or followed by
                other bytes.
            SpaceMismatch: the payload has another M.
        """
        header, values = native.decode(
            data, max_num_perm=MAX_NUM_PERM, num_parameters=num_parameters
        )
        return cls.from_values(
            values,
            num_parameters=header.num_parameters,
            support_size=header.support_size,
            scheme=header.scheme,
            seed=header.seed,
        )

    def _key(self) -> tuple[str, int, int, int]:
        return self._scheme, self.num_perm, self._seed, self._num_parameters

    def _check_comparable(self, other: Signature) -> None:
        names = ("scheme", "num_perm", "seed", "num_parameters")
        for name, mine, theirs in zip(names, self._key(), other._key(), strict=True):
            if mine != theirs:
                raise SpaceMismatch(
                    f"signatures of different {name} cannot be compared: {mine} and {theirs}"
                )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Signature):
            return NotImplemented
        same = self._key() == other._key() and self._support_size == other._support_size
        return same and np.array_equal(self._values, other._values)

    def __hash__(self) -> int:
        return hash((self._key(), self._support_size, self._values.tobytes()))

    def __reduce__(self) -> tuple[Any, ...]:
        described = partial(
            Signature,
            scheme=self._scheme,
            seed=self._seed,
            num_parameters=self._num_parameters,
            support_size=self._support_size,
            origin=self._origin,
        )
        return described, (self._values,)

    def __repr__(self) -> str:
        return (
            f"<Signature {self._scheme} of {self.num_perm} permutations, {self._support_size:,} of "
            f"{self._num_parameters:,} parameters>"
        )


def _as_values(values: Any, dtype: np.dtype[Any]) -> ValueArray:
    """A copy of the values in their dtype; ranges are checked before the cast, which would wrap."""
    try:
        size = len(values)
    except TypeError:
        raise InvalidSignature(
            "values must be a list or an array of integers", field="values"
        ) from None
    if not 1 <= size <= MAX_NUM_PERM:
        raise InvalidSignature(
            f"a signature has 1 to {MAX_NUM_PERM} values, not {size}", field="values"
        )
    most = int(np.iinfo(dtype).max)
    if not isinstance(values, np.ndarray):
        return np.array(
            [check_integer(v, f"values[{j}]", 0, most) for j, v in enumerate(values)], dtype
        )
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise InvalidSignature(
            f"values must be one-dimensional integers, not {values.dtype} of shape {values.shape}",
            field="values",
        )
    for extreme in (int(values.min()), int(values.max())):
        if not 0 <= extreme <= most:
            raise InvalidSignature(f"values must be 0 to {most}, one is {extreme}", field="values")
    return values.astype(dtype)


def _datasketch() -> Any:
    try:
        import datasketch
    except ImportError:
        raise MissingExtra("datasketch", "datasketch") from None
    return datasketch
