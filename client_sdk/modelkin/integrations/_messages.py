"""``SupportMessage``: how the support of a client travels through a federation, and its checks.

A support, which tells more exactly whom it is kin to and more about the client's data, or a
signature of it alone. It is carried as a few plain values; whose records these travel in is not
known here. What comes from elsewhere is checked before it is used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from modelkin import wire
from modelkin.core.indices import MAX_PARAMETERS
from modelkin.core.selection.rule import SelectionRule
from modelkin.core.similarity.overlap import PackedSupport, matrix
from modelkin.core.sketching.signature import Signature
from modelkin.core.sketching.signature_matrix import estimated_matrix
from modelkin.core.support import Support
from modelkin.errors import InvalidParameter, SpaceMismatch

__all__ = ["MAX_K", "Bounds", "SupportMessage", "comparable", "similarities"]

K = TypeVar("K", bound=Hashable)

MAX_K: Final = 1 << 28
"""Indices of one support at most: a gigabyte. Beyond, a few bytes could ask for all memory."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What an offer may be of, since a few bytes can unpack to any number of indices.

    Attributes:
        num_parameters: M at most.
        k: K at most.
    """

    num_parameters: int = MAX_PARAMETERS
    k: int = MAX_K

    @classmethod
    def of(cls, num_parameters: int, k_max: float | None) -> Bounds:
        """Those of a model of so many values, of which supports hold a share of ``k_max``."""
        if num_parameters < 1:
            return cls()
        cap = SelectionRule.of(num_parameters, k_max=k_max).k
        return cls(num_parameters, min(cap, MAX_K))


@dataclass(frozen=True, slots=True)
class SupportMessage:
    """What one client tells.

    Attributes:
        content: its support, or a signature of it.
        k_star: the K that its own coverage would choose.
    """

    content: Support | Signature
    k_star: int

    def to_values(self) -> dict[str, str | int | bytes]:
        """As plain values; :meth:`from_values` reads them."""
        if isinstance(self.content, Support):
            data, kind = wire.encode_support(self.content), "support"
        else:
            data, kind = wire.encode_signature(self.content), "signature"
        return {"kind": kind, "data": data, "k-star": self.k_star}

    @classmethod
    def from_values(cls, values: Mapping[str, Any], bounds: Bounds | None = None) -> SupportMessage:
        """An offer as it was sent by whomever.

        Raises:
            InvalidInput: it is none, or a damaged one.
            PayloadTooLarge: its support has more indices than may be; none is unpacked.
            SpaceMismatch: it is of more parameters than may be.
        """
        bounds = Bounds() if bounds is None else bounds
        kind, data, k_star = (values.get(name) for name in ("kind", "data", "k-star"))
        if not isinstance(data, bytes) or kind not in {"support", "signature"}:
            raise InvalidParameter("it holds neither a support nor a signature", field="kind")
        content = (
            wire.decode_support(data, max_k=bounds.k)
            if kind == "support"
            else wire.decode_signature(data)
        )
        if content.num_parameters > bounds.num_parameters:
            raise SpaceMismatch(
                f"it is of {content.num_parameters} parameters, the model of this round has "
                f"{bounds.num_parameters} values at most"
            )
        if type(k_star) is not int or not 1 <= k_star <= content.num_parameters:
            raise InvalidParameter(
                f"k-star is {k_star!r}, not 1 to {content.num_parameters}", field="k-star"
            )
        return cls(content, k_star)


def comparable(offers: Mapping[K, SupportMessage]) -> tuple[dict[K, SupportMessage], dict[K, str]]:
    """The most offers that can be compared with each other, and why the others cannot.

    All are of one M, and all signatures of one scheme, h and seed: those that most have.
    """
    sizes = Counter(offer.content.num_parameters for offer in offers.values())
    m = sizes.most_common(1)[0][0] if sizes else 0
    ways = Counter(
        _way(offer.content)
        for offer in offers.values()
        if isinstance(offer.content, Signature) and offer.content.num_parameters == m
    )
    way = ways.most_common(1)[0][0] if ways else None
    kept, left_out = dict[K, SupportMessage](), dict[K, str]()
    for key, offer in offers.items():
        content = offer.content
        if content.num_parameters != m:
            left_out[key] = f"it is of {content.num_parameters} parameters, most are of {m}"
        elif isinstance(content, Signature) and _way(content) != way:
            left_out[key] = f"its signature is made as {_way(content)}, most are as {way}"
        else:
            kept[key] = offer
    return kept, left_out


def similarities(offers: Sequence[SupportMessage]) -> tuple[npt.NDArray[np.float64], int | None]:
    """S of all pairs: exact where all are supports, else estimated from signatures.

    Args:
        offers: comparable ones, at least one.

    Returns:
        Shape ``(n, n)``; and h of the signatures, None where it is exact.
    """
    contents = [offer.content for offer in offers]
    signed = next((c for c in contents if isinstance(c, Signature)), None)
    if signed is None:
        packed = [PackedSupport.pack(c) for c in contents if isinstance(c, Support)]
        return matrix(packed), None
    h, seed, scheme = signed.num_perm, signed.seed, signed.scheme
    values = [
        c.values if isinstance(c, Signature) else c.signature(h, seed, scheme).values
        for c in contents
    ]
    stacked: Any = np.stack(values)
    return estimated_matrix(stacked).astype(np.float64), h


def _way(signature: Signature) -> tuple[str, int, int]:
    return signature.scheme, signature.num_perm, signature.seed
