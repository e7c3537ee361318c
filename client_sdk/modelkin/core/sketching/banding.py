"""Banding (Algorithm 2): which supports share a bucket, and how likely similar ones do.

A signature is cut into b bands of r values; two supports are candidates if all r values of a band
agree, which happens with probability ``1 - (1 - J^r)^b``. This module computes the keys of the
bands and that curve; the service stores the buckets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from modelkin.core.estimators import jaccard_of
from modelkin.core.kernels.choice import kernels
from modelkin.core.sketching.schemes import MAX_NUM_PERM, ValueArray
from modelkin.errors import InvalidParameter

__all__ = [
    "DEFAULT_BANDING",
    "Banding",
    "band_keys",
    "banding_for",
    "collision_probability",
    "default_banding",
    "recall_at",
]


@dataclass(frozen=True, slots=True)
class Banding:
    """The cut of a signature: its first ``bands * rows`` values, ``rows`` consecutive ones a band.

    Attributes:
        bands: b, at least 1.
        rows: r, at least 1.

    Raises:
        InvalidParameter: not positive integers, or their product is above 4,096.
    """

    bands: int
    rows: int

    def __post_init__(self) -> None:
        for name, value in (("bands", self.bands), ("rows", self.rows)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidParameter(
                    f"{name} must be an integer from 1 on, not {value!r}", field=name
                )
        if self.num_values > MAX_NUM_PERM:
            raise InvalidParameter(
                f"{self} takes {self.num_values} values, a signature has {MAX_NUM_PERM} at most",
                field="bands",
            )

    @property
    def num_values(self) -> int:
        """``bands * rows``, how many values of a signature it takes."""
        return self.bands * self.rows

    def check(self, num_perm: int) -> None:
        """Check that signatures of h values are long enough.

        Raises:
            InvalidParameter: they are too short.
        """
        if self.num_values > num_perm:
            raise InvalidParameter(
                f"{self} takes {self.num_values} values, signatures of {num_perm} are too short: "
                f"take fewer bands or rows",
                field="bands",
            )

    def __str__(self) -> str:
        return f"banding {self.bands} x {self.rows}"


DEFAULT_BANDING = Banding(64, 4)
"""The default: it finds 99% of pairs at S = 0.68, 55% at S = 0.5, 6% at S = 0.3."""


_TARGET_SIMILARITY, _TARGET_RECALL = 0.7, 0.99


def default_banding(num_perm: int) -> Banding:
    """:data:`DEFAULT_BANDING`, with fewer rows for short signatures, to find 99% at S = 0.7.

    With fewer than 6 values no banding finds so many: then each value is a band.

    Args:
        num_perm: h, at least 1.
    """
    for rows in range(DEFAULT_BANDING.rows, 1, -1):
        bands = min(DEFAULT_BANDING.bands, num_perm // rows)
        if bands and recall_at(_TARGET_SIMILARITY, Banding(bands, rows)) >= _TARGET_RECALL:
            return Banding(bands, rows)
    return Banding(min(DEFAULT_BANDING.bands, num_perm), 1)


def band_keys(values: ValueArray, banding: Banding) -> npt.NDArray[np.uint64]:
    """The keys of a signature's buckets: 64 bits a band, computed from its number and its values.

    They never change, on any platform, since buckets on disk are found by them. Band i has
    ``key = mix(i)``, then ``key = mix(key ^ value)`` for each of its values in turn, where ``mix``
    is one step of SplitMix64. Keys of different values or bands agree with probability 2^-64.

    Args:
        values: the values of one signature, shape ``(h,)``, or of many, ``(n, h)``.
        banding: with ``bands * rows <= h``.

    Returns:
        Shape ``(bands,)``, or ``(n, bands)``.

    Raises:
        InvalidParameter: the signatures are too short for the banding.
    """
    banding.check(values.shape[-1])
    keys: npt.NDArray[np.uint64] = kernels().band_keys(
        np.atleast_2d(values), banding.bands, banding.rows
    )
    return keys if values.ndim == 2 else keys[0]


def collision_probability(jaccard: float, banding: Banding) -> float:
    """``1 - (1 - J^r)^b``, the probability that two supports share a bucket.

    Raises:
        InvalidParameter: J is not from 0 to 1.
    """
    _check_unit(jaccard, "jaccard")
    miss = jaccard**banding.rows
    return 1.0 if miss >= 1.0 else -math.expm1(banding.bands * math.log1p(-miss))


def recall_at(similarity: float, banding: Banding) -> float:
    """The share of the models of similarity S that banding finds: J is ``S / (2 - S)``.

    Raises:
        InvalidParameter: S is not from 0 to 1.
    """
    _check_unit(similarity, "similarity")
    return collision_probability(jaccard_of(similarity), banding)


def banding_for(similarity: float, num_perm: int, recall: float = 0.99) -> Banding | None:
    """The most selective banding that still finds models of a similarity.

    Of all that reach the recall it has the most rows, which make the curve steepest, and the
    fewest bands.

    Args:
        similarity: the least S to find.
        num_perm: h, 1 to 4,096.
        recall: the share of models at S to find, below 1.

    Returns:
        The banding, or None where no banding of h values reaches the recall.

    Raises:
        InvalidParameter: S or the recall is out of its range.
    """
    _check_unit(similarity, "similarity")
    if not 0.0 <= recall < 1.0:
        raise InvalidParameter(f"recall must be from 0 to below 1, not {recall}", field="recall")
    for rows in range(num_perm, 0, -1):
        if recall_at(similarity, Banding(num_perm // rows, rows)) >= recall:
            bands = range(1, num_perm // rows + 1)
            return next(
                banding
                for banding in (Banding(b, rows) for b in bands)
                if recall_at(similarity, banding) >= recall
            )
    return None


def _check_unit(value: float, name: str) -> None:
    if not 0.0 <= value <= 1.0:
        raise InvalidParameter(f"{name} must be from 0 to 1, not {value}", field=name)
