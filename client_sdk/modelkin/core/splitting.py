"""Supports in disjoint random parts, so that no holder of one part has the whole.

Which part an index belongs to follows from a secret key: its place under a keyed permutation of
[0, M), see :mod:`modelkin.core.blinding`. Indices themselves do not move. All supports that are
split under one key are split alike, so the overlaps of their parts add up to those of the whole.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import Any

import numpy as np

from modelkin.core.blinding import Blinding
from modelkin.core.layout import Layout
from modelkin.core.sketching.signature import Signature
from modelkin.core.support import Support
from modelkin.errors import InvalidParameter, InvalidSignature, SpaceMismatch

__all__ = ["MAX_PARTS", "Splitting", "merged_signature"]

MAX_PARTS = 64


class Splitting:
    """The rule by which the supports of one layout are split under one key.

    Args:
        key: a key of :meth:`modelkin.Blinding.new_key`, which all who split these supports share.
        layout: the layout of the supports, or M where there is none.
        parts: A, 2 to 64.

    Raises:
        InvalidParameter: an argument is out of its range; errors do not show the key.
    """

    def __init__(self, key: str | bytes, layout: Layout | int, parts: int) -> None:
        if not 2 <= parts <= MAX_PARTS:
            raise InvalidParameter(f"a support is split in 2 to {MAX_PARTS} parts, not {parts}")
        self._permutation = Blinding(key, layout)
        self.parts = parts
        self._secret = self._permutation.derived(b"splitting", 32)

    @property
    def check(self) -> str:
        """A check value of key, layout and number of parts, which says nothing of the key."""
        return self._mac(b"check", b"%d" % self.parts)

    def split(self, support: Support) -> tuple[Support, ...]:
        """The parts of a support, the same for the same indices under the same key.

        Raises:
            SpaceMismatch: the support has another M, or other tensors; names the first.
            InvalidParameter: it has so few indices that a part has none, or it is ordered: the
                octaves in one part are not those of its ranks.
        """
        support.require_unordered(
            "the octaves in one part are not those of its ranks: split it without its order"
        )
        if support.num_parameters != self._permutation.num_parameters:
            raise SpaceMismatch(
                f"the support is of {support.num_parameters} parameters, the space of "
                f"{self._permutation.num_parameters}"
            )
        layout = self._permutation.layout
        if layout is not None and support.origin is not None and support.origin.layout is not None:
            support = support.reordered(layout)
            support.require_unordered("parts of a support have no gaps")
        owners = self._owners(support.indices)
        counts = np.bincount(owners, minlength=self.parts)
        if not counts.all():
            raise InvalidParameter(
                f"a support of {support.k} indices leaves one of {self.parts} parts empty: take "
                "a larger K, or fewer services",
                field="support",
            )
        m = support.num_parameters
        return tuple(
            Support.trusted(support.indices[owners == part], m, origin=support.origin)
            for part in range(self.parts)
        )

    def content(self, support: Support) -> str:
        """A tag that the parts of one support share; it says nothing without the key."""
        return self._mac(b"content", support.digest.encode())

    def _owners(self, indices: Any) -> Any:
        """The part of each index: equal ranges of the permuted [0, M)."""
        length = -(-self._permutation.num_parameters // self.parts)
        places = self._permutation.places(indices).astype(np.uint64)
        return (places // np.uint64(length)).astype(np.int64)

    def _mac(self, purpose: bytes, value: bytes) -> str:
        return hmac.new(self._secret, purpose + b":" + value, "sha256").hexdigest()[:32]


def merged_signature(parts: Sequence[Signature]) -> Signature:
    """The signature of a whole support from those of its disjoint parts: the minima of each value.

    Args:
        parts: signatures of one scheme, seed, M and number of values.

    Raises:
        InvalidSignature: they differ in one of these.
    """
    first = parts[0]
    kinds = {(each.scheme, each.seed, each.num_parameters, each.num_perm) for each in parts}
    if len(kinds) != 1:
        raise InvalidSignature("the signatures of the parts differ in scheme, seed, M or length")
    return Signature(
        np.minimum.reduce([each.values for each in parts]),
        scheme=first.scheme,
        seed=first.seed,
        num_parameters=first.num_parameters,
        support_size=sum(each.support_size for each in parts),
        origin=first.origin,
    )
