"""A snapshot: the models of a clustering at one version of their space.

One transaction reads everything, and maps supports before it ends. So a support that is replaced
meanwhile stays as it was. If the file is gone all the same, its signature of the same version is
used. A snapshot compares nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from app.infra.db.database import Reader
from app.infra.errors import Unavailable
from app.infra.storage.blobs import BlobStore
from app.kinship.clustering.repositories import clusterings
from app.kinship.clustering.repositories.clusterings import Member
from app.kinship.clustering.request import MAX_MODELS, ClusteringPlan, ClusteringRequest
from app.models.catalog.repositories.tensor_counts import counts_by_name, dtype_of
from app.models.catalog.stored_supports import SupportDecoder
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories.layouts import tensor_sizes
from app.models.subspaces.service import common_compare
from app.search.constants import NO_CONSTANTS, Constants
from modelkin.core.packed import PackedSupport
from modelkin.core.similarity.edges import growth_of_pairs
from modelkin.core.similarity.outside import least_covered
from modelkin.core.similarity.pair_chance import Growth, PairChance
from modelkin.core.sketching.schemes import ValueArray, value_dtype
from modelkin.core.subspaces.subspace import Subspace
from modelkin.types.vocabulary import Compare

__all__ = ["Snapshot", "take_snapshot"]

log = logging.getLogger(__name__)

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

_MAX_COUNTS: Final = 1 << 26
"""Beyond this many counts, by model and tensor, chance is not known: they take 256 MiB."""
_NO_LAYOUT: Final = (
    "the space has no layout, so what chance gives in each tensor is not known: models of one "
    "cluster may be as near as chance makes two models"
)
_NO_COUNTS: Final = (
    "no support was compared, so what chance gives in each tensor is not known: models of one "
    "cluster may be as near as chance makes two models"
)
_TOO_MANY: Final = (
    "these are too many models for a test against chance in each tensor: models of one cluster may "
    "be as near as chance makes two models"
)
_SUBSPACES: Final = (
    "data subspaces have no layout, and chance has no measure for them: models of one cluster may "
    "be as near as any two"
)
_FETCH_S = 600.0
"""Seconds for fetching missing supports side by side; afterwards the others come one by one."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The data of n models, by name.

    Attributes:
        space: the space at that version.
        names: the names, shape ``(n,)``.
        values: the values of their signatures, shape ``(n, num_perm)``.
        supports: the mapped supports; None for a model with only a signature or a damaged support,
            and if supports are not compared.
        subspaces: their data subspaces, in a space of these; else None.
        compare: the blocks of subspaces that meet; else None.
        constants: the tensors that are left out.
        chance: what chance makes of any two; None where that is not known, see ``untested``.
        untested: why chance is not known; None where it is.
    """

    plan: ClusteringPlan
    space: SpaceRecord
    names: tuple[str, ...]
    values: ValueArray
    supports: tuple[PackedSupport | None, ...]
    subspaces: tuple[Subspace, ...] | None = None
    compare: Compare | None = None
    constants: Constants = NO_CONSTANTS
    chance: PairChance | None = None
    untested: str | None = None

    def __len__(self) -> int:
        return len(self.names)

    @property
    def covered(self) -> float | None:
        """The share of the parameters that any two supports cover, or more; None for all."""
        return least_covered(self.supports)


def take_snapshot(
    session: Reader,
    blobs: BlobStore,
    space: SpaceRecord,
    request: ClusteringRequest,
    max_mapped: int,
    constants: Constants = NO_CONSTANTS,
    *,
    with_chance: bool = False,
) -> Snapshot:
    """Read the models that the request selects.

    Args:
        session: a view of the space at the version to cluster.
        max_mapped: the most supports that may be mapped at a time; each holds a descriptor.
        constants: the tensors that no training changed.
        with_chance: whether to read what chance makes of the models.

    Raises:
        ModelNotFound: a named model does not exist.
        InvalidParameter: there are too few or too many models for the request, or a data subspace
            has nothing to compare.
    """
    request.check_for(clusterings.count_members(session, space, request.tags, request.models))
    members = list(
        clusterings.members(session, space, request.tags, request.models, limit=MAX_MODELS + 1)
    )
    plan = request.resolve(len(members))
    if space.kind == "subspaces":
        return _of_subspaces(space, members, plan, request.compare)
    dtype = value_dtype(space.signature.scheme)
    stored = np.frombuffer(b"".join(member.values for member in members), dtype.newbyteorder("<"))
    values: Any = stored.reshape(len(members), -1).astype(dtype, copy=False)
    found = Snapshot(
        plan=plan,
        space=space,
        names=tuple(member.name for member in members),
        values=values,
        supports=_open(blobs, space, members, plan, max_mapped),
        constants=constants,
    )
    return _with_chance(session, found, members) if with_chance else found


def _with_chance(session: Reader, found: Snapshot, members: Sequence[Member]) -> Snapshot:
    """The snapshot with what chance makes of its models, or with the reason why that is unknown."""
    space, constants = found.space, found.constants
    sizes = tensor_sizes(session, space)
    if sizes is None:
        return replace(found, untested=_NO_LAYOUT)
    if len(found) * sizes.size > _MAX_COUNTS:
        return replace(found, untested=_TOO_MANY)
    counts = np.zeros((len(found), sizes.size), dtype_of(space))
    known = counts_by_name(session, space, found.names)
    for row, name in enumerate(found.names):
        if name in known:
            counts[row] = constants.without(known[name])
    chance = PairChance(
        counts=counts,
        sizes=sizes.astype(np.float64),
        totals=np.array([member.support_size for member in members], np.float64),
        exact=np.array([support is not None for support in found.supports], np.bool_),
        num_perm=space.signature.num_perm,
        num_parameters=space.num_parameters,
        only_exact=bool(constants),
        growth=_growth(found),
    )
    if not chance.known.any():
        return replace(found, untested=_NO_COUNTS)
    return replace(found, chance=chance)


def _growth(found: Snapshot) -> Growth | None:
    """By how much chance grows of models that have a part of the space."""
    by_row = {row: each for row, each in enumerate(found.supports) if each is not None}
    if not any(support.gaps for support in by_row.values()):
        return None
    gaps = found.constants.gaps

    def growth(one: Rows, other: Rows) -> Floats:
        ends = np.stack([one.ravel(), other.ravel()], axis=1)
        return growth_of_pairs(by_row, ends, gaps).reshape(one.shape)

    return growth


def _of_subspaces(
    space: SpaceRecord, members: Sequence[Member], plan: ClusteringPlan, compare: Compare | None
) -> Snapshot:
    subspaces = tuple(Subspace.from_bytes(member.values) for member in members)
    return Snapshot(
        plan=plan,
        space=space,
        names=tuple(member.name for member in members),
        values=np.empty((len(members), 0), np.uint32),
        supports=(None,) * len(members),
        subspaces=subspaces,
        untested=_SUBSPACES,
        compare=common_compare(space, subspaces, compare),
    )


def _open(
    blobs: BlobStore,
    space: SpaceRecord,
    members: Sequence[Member],
    plan: ClusteringPlan,
    max_mapped: int,
) -> tuple[PackedSupport | None, ...]:
    sizes = [member.support_size for member in members if member.blob_key is not None]
    if not plan.compares_supports(space.num_parameters, sizes, max_mapped):
        return (None,) * len(members)
    blobs.fetch([member.blob_key for member in members if member.blob_key is not None], _FETCH_S)
    return tuple(_support(blobs, space, member) for member in members)


def _support(blobs: BlobStore, space: SpaceRecord, member: Member) -> PackedSupport | None:
    if member.blob_key is None:
        return None
    try:
        decode = SupportDecoder(space, member.support_size, member.digest)
        return blobs.open_verified(member.blob_key, decode, mapped=True)
    except KeyError:  # replaced or deleted since this transaction began
        return None
    except Unavailable as error:  # one damaged file must not fail the clustering
        log.error("the support of %r in space %r: %s", member.name, space.name, error)
        return None
