"""Index spaces: signature parameters, support sizes, stop-lists and counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from modelkin._moments import Moment
from modelkin._printing import Printed
from modelkin.core.importance import UNSTATED, Importance
from modelkin.core.layout import Layout
from modelkin.core.similarity.overlap import TensorOverlap
from modelkin.core.sketching.banding import Banding
from modelkin.core.subspaces.subspace import CONSTANT
from modelkin.types.vocabulary import (
    Compare,
    SignatureScheme,
    SpaceKind,
    SupportSizePolicyName,
    Weighting,
)

__all__ = [
    "FREE",
    "SignatureSpec",
    "SpaceInfo",
    "StopList",
    "SubspaceSpec",
    "SupportSize",
    "SupportSizePolicy",
    "TensorOverlap",
]


@dataclass(frozen=True, slots=True)
class SignatureSpec:
    """The parameters of a space's signatures, so that all of them compare.

    Attributes:
        scheme: ``"affine32"`` for M up to 2^32, ``"affine64"`` beyond.
        num_perm: h, the number of minhashes.
        seed: 0 to 2^32 - 1.
    """

    scheme: SignatureScheme = "affine32"
    num_perm: int = 256
    seed: int = 1


@dataclass(frozen=True, slots=True)
class SubspaceSpec:
    """The parameters that the data subspaces of a space share, so that all of them compare.

    Attributes:
        features: what a sample's features are, for people: clients must use the same.
        constant: the entry that stands behind each unit sample; 0 for none.
        weighting: ``"spectrum"`` or ``"flat"``.
        compare: ``"classes"`` or ``"whole"``: which blocks meet where a request does not say.
        max_columns: the most columns of a subspace.
    """

    features: str = ""
    constant: float = CONSTANT
    weighting: Weighting = "spectrum"
    compare: Compare = "classes"
    max_columns: int = 256


@dataclass(frozen=True, slots=True)
class SupportSizePolicy:
    """The rule of a space for the sizes of its supports.

    Attributes:
        policy: ``"free"``; ``"fixed"``, where no support may have more than ``k`` indices; or
            ``"agreed"``, where K is the median of the K* that the clients reported.
        k: K, where it is fixed; else None.
    """

    policy: SupportSizePolicyName = "free"
    k: int | None = None


FREE: Final = SupportSizePolicy()
"""Each client chooses its own size: the default policy of a space."""


@dataclass(frozen=True, slots=True, repr=False)
class SupportSize(Printed):
    """The number of indices that a support of a space should have.

    Attributes:
        policy: as in :class:`SupportSizePolicy`.
        k: K. None before the first report, and where the size is free. A report to a free space is
            answered with its own K*. Each K* ends at its client's ``k_max``, 20% of M by default,
            and so does their median where most need more.
        reports: how many clients' K* it is the median of; 0 unless it is agreed.
    """

    policy: SupportSizePolicyName
    k: int | None = None
    reports: int = 0


@dataclass(frozen=True, slots=True)
class StopList:
    """The indices that most models of a space share, which ``method="lsh"`` leaves out.

    Attributes:
        version: 1 for the first; grows with each that is started.
        size: how many indices it holds.
        share: the share of the counted supports that hold each of these indices, at least.
        models: how many supports were counted: all, up to 1,000.
        computed_at: when.
    """

    version: int
    size: int
    share: float
    models: int
    computed_at: Moment


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SpaceInfo(Printed):
    """An index space: the parameters that the supports of its models index.

    Attributes:
        num_parameters: M; of data subspaces m, how many features a sample has.
        layout: the tensors; None for a space that was created without them, and of every space in
            a listing, whose ``layout_digest`` says whether it has one. Those that the space
            excludes are not in it.
        signature: the parameters of signatures; the defaults in a space of data subspaces, which
            have none.
        models: how many models it holds, of any kind.
        supports: models with a support.
        signatures: models that sent a signature alone.
        version: grows by one or more with every write to the space.
        banding: how its signatures are cut for ``method="lsh"``; None from a service without.
        support_size: the rule for the sizes of its supports.
        stop_list: the indices that ``method="lsh"`` leaves out; None where it leaves out none.
        importance: the kind of importance that its supports are selected by; of kind ``"unstated"``
            where the space takes any.
        exclude: shell patterns of the tensors that supports leave out.
        layout_digest: the digest of its layout; None without one, and from a service without.
        kind: ``"supports"``, or ``"subspaces"`` of data.
        subspaces: what these share; None in a space of supports.
        blinding: the check value of the key that its supports are blinded under; None where they
            are not. A :class:`modelkin.Blinding` of the right key and layout has the same.
        ordered: whether its supports have the octaves of their ranks, for ``measure="ordered"``.
    """

    _listed: ClassVar[tuple[str, ...]] = (
        *("name", "kind", "models", "num_parameters", "importance", "created_at"),
    )
    name: str
    num_parameters: int
    layout: Layout | None = None
    signature: SignatureSpec
    models: int
    supports: int
    signatures: int
    version: int
    created_at: Moment
    banding: Banding | None = None
    support_size: SupportSizePolicy = FREE
    stop_list: StopList | None = None
    importance: Importance = UNSTATED
    exclude: tuple[str, ...] = ()
    layout_digest: str | None = None
    kind: SpaceKind = "supports"
    subspaces: SubspaceSpec | None = None
    blinding: str | None = None
    ordered: bool = False
