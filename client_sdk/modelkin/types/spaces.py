"""What the client returns: frozen values, named and shaped as the service's JSON.

They never read JSON themselves (``client._answers`` does) and never talk to a service; supports and
signatures live in ``core``. What is a table or a matrix has ``to_pandas()`` or ``to_numpy()``.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from modelkin.core.layout import Layout
from modelkin.core.similarity.overlap import TensorOverlap
from modelkin.core.sketching.banding import Banding

__all__ = [
    "FREE",
    "SignatureSpec",
    "SpaceInfo",
    "StopList",
    "SupportSize",
    "SupportSizePolicy",
    "TensorOverlap",
]


@dataclass(frozen=True, slots=True)
class SignatureSpec:
    """How the signatures of a space are made, so that all of them compare.

    Attributes:
        scheme: ``"affine32"`` or ``"fss32"`` for M up to 2^32, ``"affine64"`` beyond.
        num_perm: h, the number of minhashes.
        seed: 0 to 2^32 - 1.
    """

    scheme: str = "affine32"
    num_perm: int = 256
    seed: int = 1


@dataclass(frozen=True, slots=True)
class SupportSizePolicy:
    """What a space was made to ask of the sizes of its supports.

    Attributes:
        policy: ``"free"``; ``"fixed"``, where no support may have more than ``k`` indices; or
            ``"agreed"``, where the median of what the clients reported is told to all of them.
        k: K, where it is fixed; else None.
    """

    policy: str = "free"
    k: int | None = None


FREE: Final = SupportSizePolicy()
"""Every client chooses its own: the policy of spaces that were made without another one."""


@dataclass(frozen=True, slots=True)
class SupportSize:
    """How many indices a support of a space should have.

    Attributes:
        policy: as in :class:`SupportSizePolicy`.
        k: K. None where nobody has reported one yet, and where it is free; to whoever reports a K*
            to a free space, that K*.
        reports: how many clients' K* it is the median of; 0 unless it is agreed.
    """

    policy: str
    k: int | None
    reports: int = 0


@dataclass(frozen=True, slots=True)
class StopList:
    """The indices that are everybody's in a space, which ``method="lsh"`` leaves out.

    Attributes:
        version: 1 for the first; grows with every one that is begun.
        size: how many indices it holds.
        share: of the supports that were counted, how many hold each of them at least.
        models: how many supports were counted: all, up to 1,000.
        computed_at: when.
    """

    version: int
    size: int
    share: float
    models: int
    computed_at: datetime


@dataclass(frozen=True, slots=True)
class SpaceInfo:
    """An index space: the parameters that the supports of its models index.

    Attributes:
        num_parameters: M.
        layout: the tensors, where the space was made with them.
        models: how many models it holds, ``supports + signatures``.
        supports: models with a support.
        signatures: models that sent a signature alone.
        version: grows by one or more with every write to the space.
        banding: how its signatures are cut for ``method="lsh"``; None from a service without.
        support_size: what it asks of the sizes of its supports.
        stop_list: the indices that ``method="lsh"`` leaves out; None where that is nothing.
    """

    name: str
    num_parameters: int
    layout: Layout | None
    signature: SignatureSpec
    models: int
    supports: int
    signatures: int
    version: int
    created_at: datetime
    banding: Banding | None = None
    support_size: SupportSizePolicy = FREE
    stop_list: StopList | None = None
