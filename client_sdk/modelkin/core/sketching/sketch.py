"""``Sketch``: the part of a support within a fixed sample of coordinates, one bit a coordinate.

All models of a space use the same sample, so two sketches share what their supports share within
it. A sketch holds 64 Ki coordinates by default: a support of 8% of all parameters keeps 5,000
members there, and 8 KiB give similarities within 0.006.

The sample is one coordinate of each of ``size`` equal stretches of the space, each drawn on its
own: coordinate j is ``floor((j * 2^64 + u_j) * M / (size * 2^64))``, where ``u_j`` is output j
(from 0) of SplitMix64 seeded with the sample's seed. Every coordinate is as likely as any other,
tensors are represented by their sizes, and the sample ascends; where M is less than twice the size
it may hold one coordinate twice, in neighbouring stretches. Where M is at most the size, the sample
is all of M, in order, and every figure is exact.

``modelkin.core.codecs.sketch`` knows the bytes of a sketch.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from modelkin.core.codecs import sketch as native
from modelkin.core.codecs.checks import Payload
from modelkin.core.estimators import similarity_of, standard_error
from modelkin.core.indices import IndexArray, check_num_parameters
from modelkin.core.kernels.choice import kernels
from modelkin.core.kernels.reference.search import mix64
from modelkin.core.sketching.schemes import MAX_SEED
from modelkin.errors import InvalidParameter, InvalidSignature, SpaceMismatch

__all__ = [
    "DEFAULT_SIZE",
    "MAX_SIZE",
    "Sketch",
    "coordinates",
    "similarity_in_sample",
    "standard_error_in_sample",
]

Words = npt.NDArray[np.uint64]

DEFAULT_SIZE = 1 << 16
"""Coordinates of a sample: 8 KiB a model."""

MAX_SIZE = 1 << 20
"""The largest sample, 128 KiB a model."""

GAMMA = 0x9E3779B97F4A7C15
"""The increment of SplitMix64's state."""


class Sketch:
    """A support of K out of M parameters within a sample of coordinates; immutable.

    Make one with :meth:`of` or :meth:`from_words`. Two are equal when M, K, size, seed and all bits
    are.
    """

    __slots__ = ("_num_parameters", "_seed", "_size", "_support_size", "_words")

    def __init__(
        self, words: Words, *, size: int, seed: int, num_parameters: int, support_size: int
    ) -> None:
        """Trust the caller: all arguments are valid. Elsewhere use :meth:`from_words`."""
        view = words.view()
        view.flags.writeable = False
        self._words = view
        self._size = size
        self._seed = seed
        self._num_parameters = num_parameters
        self._support_size = support_size

    @classmethod
    def of(
        cls,
        indices: IndexArray,
        num_parameters: int,
        *,
        size: int = DEFAULT_SIZE,
        seed: int = 1,
    ) -> Sketch:
        """The sketch of a support's indices; ``support.sketch()`` is the short way to it.

        Args:
            indices: valid ones, as ``Support.indices`` are.
            num_parameters: M.
            size: coordinates of the sample, a multiple of 64 up to 2^20.
            seed: 0 to 2^32 - 1; only sketches of equal seeds can be compared.

        Raises:
            InvalidParameter: size or seed is out of its range.
        """
        m = num_parameters
        _check_sample(size, seed)
        words: Words
        if m <= size:
            words = kernels().bitmap(indices, size)
        else:
            words = kernels().members(indices, coordinates(m, size, seed))
        return cls(words, size=size, seed=seed, num_parameters=m, support_size=int(indices.size))

    @classmethod
    def of_bitmap(
        cls,
        bitmap: Words,
        num_parameters: int,
        support_size: int,
        *,
        size: int = DEFAULT_SIZE,
        seed: int = 1,
    ) -> Sketch:
        """The same sketch from a support's bitmap, of which only the sample is read.

        Args:
            bitmap: shape ``(ceil(M / 64),)``; bit i % 64 of word i // 64 is index i's.
            num_parameters: M.
            support_size: K, how many bits are set.
            size: as in :meth:`of`.
            seed: as in :meth:`of`.

        Raises:
            InvalidParameter: size or seed is out of its range.
        """
        m = num_parameters
        _check_sample(size, seed)
        if m <= size:
            words = np.zeros(size // 64, np.uint64)
            words[: bitmap.size] = bitmap
        else:
            words = kernels().bits_at(bitmap, coordinates(m, size, seed))
        return cls(words, size=size, seed=seed, num_parameters=m, support_size=support_size)

    @classmethod
    def from_words(
        cls, words: Words, *, num_parameters: int, support_size: int, seed: int = 1
    ) -> Sketch:
        """A sketch from untrusted words.

        Args:
            words: uint64, shape ``(size / 64,)``; bit j % 64 of word j // 64 is coordinate j's.
            num_parameters: M.
            support_size: K, 1 to M.
            seed: 0 to 2^32 - 1; sketches of one seed have the same coordinates.

        Raises:
            InvalidParameter: an argument is out of its range, or more bits are set than a support
                of K can have in the sample.
        """
        m = check_num_parameters(num_parameters)
        if words.ndim != 1 or words.dtype != np.uint64:
            raise InvalidParameter(
                f"words must be one-dimensional uint64, not {words.dtype} of shape {words.shape}",
                field="words",
            )
        _check_sample(64 * words.size, seed)
        if not 1 <= support_size <= m:
            raise InvalidParameter(
                f"support_size must be 1 to {m}, not {support_size}", field="support_size"
            )
        made = cls(
            words.copy(),
            size=64 * words.size,
            seed=seed,
            num_parameters=m,
            support_size=support_size,
        )
        made._check_bits()
        return made

    @property
    def words(self) -> Words:
        """The bits, read-only, uint64 of shape ``(size / 64,)``; those after M are zero."""
        return self._words

    @property
    def size(self) -> int:
        """How many coordinates the sample has."""
        return self._size

    @property
    def seed(self) -> int:
        """The seed of the sample."""
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
    def members(self) -> int:
        """How many coordinates of the sample are in the support."""
        return int(np.bitwise_count(self._words).sum(dtype=np.int64))

    def shared(self, other: Sketch) -> int:
        """How many coordinates of the sample are in both supports.

        Raises:
            SpaceMismatch: M, size or seed differ.
        """
        self._check_comparable(other)
        return int(kernels().and_count(self._words, other._words))

    def similarity(self, other: Sketch) -> float:
        """The estimated similarity, :func:`similarity_in_sample` of the two."""
        return similarity_in_sample(self.shared(other), self.members, other.members)

    def standard_error(self, other: Sketch) -> float:
        """The standard error of :meth:`similarity`; 0 where the sample is all of M."""
        if self._num_parameters <= self._size:
            return 0.0
        return standard_error_in_sample(self.shared(other), self.members, other.members)

    def to_bytes(self) -> bytes:
        """The binary wire format, ``application/vnd.modelkin.sketch``."""
        header = native.SketchHeader(
            self._size, self._seed, self._num_parameters, self._support_size
        )
        return native.encode(header, self._words)

    @classmethod
    def from_bytes(cls, data: Payload, *, num_parameters: int | None = None) -> Sketch:
        """A sketch from the binary wire format.

        Args:
            data: the whole payload.
            num_parameters: the M it has to have; None takes the payload's own.

        Raises:
            InvalidSignature: not this format, another version, truncated, damaged, followed by
                other bytes, or bits that no support of its K has.
            SpaceMismatch: the payload has another M.
        """
        header, words = native.decode(data, max_size=MAX_SIZE, num_parameters=num_parameters)
        try:
            return cls.from_words(
                words,
                num_parameters=header.num_parameters,
                support_size=header.support_size,
                seed=header.seed,
            )
        except InvalidParameter as error:
            raise InvalidSignature(str(error), field=error.field) from None

    def _check_bits(self) -> None:
        m, members = self._num_parameters, self.members
        # A coordinate may stand in two neighbouring stretches, never in three.
        most = self._support_size * (1 if m <= self._size else 2)
        if members > most or (m <= self._size and members < most):
            raise InvalidParameter(
                f"{members} bits are set, which no support of {self._support_size} of {m} "
                f"parameters has in a sample of {self._size}",
                field="words",
            )
        behind = self._words[m // 64 :]
        if behind.size and (behind[0] >> np.uint64(m % 64) or behind[1:].any()):
            raise InvalidParameter(f"bits after the last of {m} parameters are set", field="words")

    def _key(self) -> tuple[int, int, int]:
        return self._num_parameters, self._size, self._seed

    def _check_comparable(self, other: Sketch) -> None:
        names = ("num_parameters", "size", "seed")
        for name, mine, theirs in zip(names, self._key(), other._key(), strict=True):
            if mine != theirs:
                raise SpaceMismatch(
                    f"sketches of different {name} cannot be compared: {mine} and {theirs}"
                )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sketch):
            return NotImplemented
        same = self._key() == other._key() and self._support_size == other._support_size
        return same and np.array_equal(self._words, other._words)

    def __hash__(self) -> int:
        return hash((self._key(), self._support_size, self._words.tobytes()))

    def __repr__(self) -> str:
        return (
            f"<Sketch of {self._size:,} coordinates, {self.members:,} of them in a support of "
            f"{self._support_size:,} of {self._num_parameters:,} parameters>"
        )


def similarity_in_sample(shared: int, members_a: int, members_b: int) -> float:
    """The similarity of two supports within a sample, which estimates their similarity.

    It is ``2 * shared / (members_a + members_b)``, and not scaled from the known sizes of the
    supports, because shared and own members vary together: at S = 0.9 a quarter of the error.
    0 if the sample holds no member of either.
    """
    return similarity_of(shared, members_a, members_b) if members_a + members_b else 0.0


def standard_error_in_sample(shared: int, members_a: int, members_b: int) -> float:
    """The standard error of :func:`similarity_in_sample`.

    Each of the u members of the union within the sample is shared with probability J. So the share
    of the shared ones estimates J from u trials, and S, a function of it, has the error of a
    signature of h = u values: ``2 / (1 + J)^2 * sqrt(J (1 - J) / u)``. For equal sizes and m
    members a support that is ``sqrt(S (1 - S) (2 - S) / 2m)``, at most 0.0062 where m is 5,000.
    J is taken as ``(shared + 1/2) / (u + 1)``. If none or all are shared, the error is the upper
    bound of :func:`modelkin.core.estimators.standard_error` by the rule of three. It is 1 if the
    sample holds no member of either.
    """
    union = members_a + members_b - shared
    if union == 0:
        return 1.0
    if shared in (0, union):
        return standard_error(shared / union, union)
    return standard_error((shared + 0.5) / (union + 1), union + 1)


@lru_cache(maxsize=16)
def coordinates(num_parameters: int, size: int, seed: int) -> IndexArray:
    """The coordinates of a sample, as the module describes it.

    Args:
        num_parameters: M, more than the size.
        size: a multiple of 64 up to 2^20.
        seed: 0 to 2^32 - 1.

    Returns:
        Ascending and read-only, of the dtype of the space's indices, shape ``(size,)``.

    Raises:
        InvalidParameter: size or seed is out of its range.
    """
    _check_sample(size, seed)
    drawn = mix64(np.uint64(seed) + np.arange(size, dtype=np.uint64) * np.uint64(GAMMA))
    sample = (narrow_coordinates if num_parameters <= 2**32 else wide_coordinates)(
        drawn, num_parameters
    )
    sample.flags.writeable = False
    return sample


def narrow_coordinates(drawn: Words, num_parameters: int) -> IndexArray:
    """The coordinates where M is at most 2^32: ``u_j * M`` in halves that 64 bits hold."""
    m, half = np.uint64(num_parameters), np.uint64(32)
    low = (drawn & np.uint64(2**32 - 1)) * m
    within = ((drawn >> half) * m + (low >> half)) >> half
    stretches = np.arange(drawn.size, dtype=np.uint64) * m
    return ((stretches + within) // np.uint64(drawn.size)).astype(np.uint32)


def wide_coordinates(drawn: Words, num_parameters: int) -> IndexArray:
    """The coordinates of any M: up to 147 bits, which Python's integers have."""
    sample = np.empty(drawn.size, np.uint64)
    for begin in range(0, drawn.size, 1 << 12):
        some = enumerate(drawn[begin : begin + (1 << 12)].tolist(), begin)
        sample[begin : begin + (1 << 12)] = [
            ((j << 64) + u) * num_parameters // (drawn.size << 64) for j, u in some
        ]
    return sample


def _check_sample(size: int, seed: int) -> None:
    if size % 64 or not 64 <= size <= MAX_SIZE:
        raise InvalidParameter(
            f"a sample has a multiple of 64 coordinates, 64 to {MAX_SIZE}, not {size}",
            field="size",
        )
    if not 0 <= seed <= MAX_SEED:
        raise InvalidParameter(f"seed must be 0 to {MAX_SEED}, not {seed}", field="seed")
