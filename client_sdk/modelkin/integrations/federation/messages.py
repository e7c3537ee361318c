"""``SupportMessage``: a client's message in a federation, as plain values, and its checks.

A message carries a support or only its signature. A support gives exact similarities, and a
signature is small; both reveal which classes a client holds. A received message is checked before
it is used. Each federation library's module has its own records to carry these values.
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
from modelkin.core.packed import PackedSupport
from modelkin.core.selection.rule import SelectionRule, ratio
from modelkin.core.similarity.matrix import matrix
from modelkin.core.sketching.signature import Signature
from modelkin.core.sketching.signature_matrix import estimated_matrix
from modelkin.core.support import Support
from modelkin.errors import InvalidParameter, SpaceMismatch

__all__ = [
    "MAX_K",
    "MessageLimits",
    "SupportMessage",
    "check_k_max",
    "comparable",
    "similarities",
]

K = TypeVar("K", bound=Hashable)

MAX_K: Final = 1 << 28
"""The most indices of one support: a gigabyte. Without it a few bytes could claim all memory."""


def check_k_max(k_max: float | None) -> None:
    """Raise :class:`InvalidParameter` for a ``k_max`` that is no share of the parameters."""
    if isinstance(k_max, int):
        raise InvalidParameter(
            f"k_max must be a share of the parameters in (0, 1], such as 0.2 or 1.0, not {k_max!r}",
            field="k_max",
        )
    if k_max is not None:
        ratio(k_max, "k_max")


@dataclass(frozen=True, slots=True)
class MessageLimits:
    """Limits on a received message, since a few bytes can unpack to any number of indices.

    Attributes:
        num_parameters: the largest M.
        k: the largest K.
    """

    num_parameters: int = MAX_PARAMETERS
    k: int = MAX_K

    @classmethod
    def of(cls, num_parameters: int, k_max: float | None) -> MessageLimits:
        """The limits for a model of M values whose supports hold a share of ``k_max`` at most."""
        if num_parameters < 1:
            return cls()
        cap = SelectionRule.of(num_parameters, k_max=k_max).k
        return cls(num_parameters, min(cap, MAX_K))


@dataclass(frozen=True, slots=True)
class SupportMessage:
    """A client's support or signature.

    Attributes:
        content: the client's support, or the support's signature.
        k_star: how many indices the client's own coverage would choose.
    """

    content: Support | Signature
    k_star: int

    def to_values(self) -> dict[str, str | int | bytes]:
        """The message as plain values; :meth:`from_values` reads them."""
        if isinstance(self.content, Support):
            data, kind = wire.encode_support(self.content), "support"
        else:
            data, kind = wire.encode_signature(self.content), "signature"
        return {"kind": kind, "data": data, "k-star": self.k_star}

    @classmethod
    def from_values(
        cls, values: Mapping[str, Any], limits: MessageLimits | None = None
    ) -> SupportMessage:
        """Read a message from untrusted values.

        Raises:
            InvalidInput: the values are no message, or a damaged one.
            PayloadTooLarge: the support has more indices than the limit; they are not unpacked.
            SpaceMismatch: the message has more parameters than the limit.
        """
        limits = MessageLimits() if limits is None else limits
        kind, data, k_star = (values.get(name) for name in ("kind", "data", "k-star"))
        if not isinstance(data, bytes) or kind not in {"support", "signature"}:
            raise InvalidParameter("it holds neither a support nor a signature", field="kind")
        content = (
            wire.decode_support(data, max_k=limits.k)
            if kind == "support"
            else wire.decode_signature(data)
        )
        if content.num_parameters > limits.num_parameters:
            raise SpaceMismatch(
                f"it is of {content.num_parameters} parameters, the model of this round has "
                f"{limits.num_parameters} values at most"
            )
        if type(k_star) is not int or not 1 <= k_star <= content.num_parameters:
            raise InvalidParameter(
                f"k-star is {k_star!r}, not 1 to {content.num_parameters}", field="k-star"
            )
        return cls(content, k_star)


def comparable(
    messages: Mapping[K, SupportMessage],
) -> tuple[dict[K, SupportMessage], dict[K, str]]:
    """The largest set of comparable messages, and the reason against each other message.

    Messages are comparable if they have one M, and all signatures one scheme, h and seed. The most
    common values decide.
    """
    sizes = Counter(message.content.num_parameters for message in messages.values())
    m = sizes.most_common(1)[0][0] if sizes else 0
    settings = Counter(
        _settings(message.content)
        for message in messages.values()
        if isinstance(message.content, Signature) and message.content.num_parameters == m
    )
    expected = settings.most_common(1)[0][0] if settings else None
    kept, left_out = dict[K, SupportMessage](), dict[K, str]()
    for key, message in messages.items():
        content = message.content
        if content.num_parameters != m:
            left_out[key] = f"it is of {content.num_parameters} parameters, most are of {m}"
        elif isinstance(content, Signature) and _settings(content) != expected:
            left_out[key] = f"its signature is of {_settings(content)}, most are of {expected}"
        else:
            kept[key] = message
    return kept, left_out


def similarities(messages: Sequence[SupportMessage]) -> tuple[npt.NDArray[np.float64], int | None]:
    """S of all pairs: exact if all messages have supports, else estimated from signatures.

    Args:
        messages: comparable messages, at least one.

    Returns:
        S, shape ``(n, n)``; and h of the signatures, None where S is exact.
    """
    contents = [message.content for message in messages]
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


def _settings(signature: Signature) -> tuple[str, int, int]:
    """The scheme, h and seed of a signature."""
    return signature.scheme, signature.num_perm, signature.seed
