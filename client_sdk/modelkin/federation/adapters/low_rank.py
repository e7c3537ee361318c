"""``LowRank``: the difference that an adapter makes to one tensor, by its factors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from modelkin.errors import InvalidParameter

__all__ = ["Adapter", "LowRank", "Matrix"]

Matrix: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class LowRank:
    """A difference ``b @ a``, whose scale is in its factors.

    Attributes:
        b: float64, shape ``(out, r)``.
        a: float64, shape ``(r, in)``.

    Raises:
        InvalidParameter: the factors do not fit, or have a value that is NaN or infinite.
    """

    b: Matrix
    a: Matrix

    def __post_init__(self) -> None:
        if self.a.ndim != 2 or self.b.ndim != 2 or self.b.shape[1] != self.a.shape[0]:
            raise InvalidParameter(
                f"factors b of shape {list(self.b.shape)} and a of shape {list(self.a.shape)} have "
                f"no product",
                field="adapter",
            )
        if not (np.isfinite(self.a).all() and np.isfinite(self.b).all()):
            raise InvalidParameter("a factor has a value that is NaN or infinite", field="adapter")

    @property
    def rank(self) -> int:
        """r, which may be more than the product's."""
        return len(self.a)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the difference, ``(out, in)``."""
        return self.b.shape[0], self.a.shape[1]

    def product(self) -> Matrix:
        """The difference itself, shape ``(out, in)``."""
        return self.b @ self.a

    def singular_values(self) -> tuple[Matrix, Matrix, Matrix]:
        """The product as ``u @ diag(s) @ v``, without what is zero but for rounding.

        The product is never formed: two QR decompositions leave a core of ``(r, r)`` at most.

        Returns:
            Of k values, descending: u of shape ``(out, k)``, s of ``(k,)``, v of ``(k, in)``.
        """
        b, a = self._balanced()
        left, left_core = np.linalg.qr(b)
        right, right_core = np.linalg.qr(a.T)
        u, s, v = np.linalg.svd(left_core @ right_core.T, full_matrices=False)
        scale = np.linalg.norm(left_core) * np.linalg.norm(right_core)
        k = int((s > np.finfo(np.float64).eps * max(self.shape) * scale).sum())
        return left @ u[:, :k], s[:k], v[:k] @ right.T

    def _balanced(self) -> tuple[Matrix, Matrix]:
        """Factors of the same product, each column of b as long as its row of a.

        Clients may have large values in either; the error of rounding is of the longer ones.
        """
        long, wide = np.linalg.norm(self.b, axis=0), np.linalg.norm(self.a, axis=1)
        used = (long > 0) & (wide > 0)
        ratio = np.sqrt(wide[used] / long[used])
        return self.b[:, used] * ratio, self.a[used] / ratio[:, None]


Adapter: TypeAlias = Mapping[str, LowRank]
"""The differences of an adapter, by the names of the base's tensors."""
