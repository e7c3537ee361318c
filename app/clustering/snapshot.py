"""The models of a clustering as they stand at one version of their space, whatever changes later.

Everything is read in one transaction, supports are mapped before it ends: a support that is
replaced meanwhile stays as it was, and one that was gone even so is estimated by its signature,
which is of the same moment. It compares nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.clustering import repository
from app.clustering.repository import Member
from app.clustering.request import MOST_MODELS, ClusteringRequest
from app.errors import Unavailable
from app.infra.db.database import Reader
from app.infra.storage.blobs import BlobStore
from app.spaces.records import SpaceRecord
from modelkin.core.packed import PackedSupport
from modelkin.core.sketching.schemes import ValueArray, value_dtype
from modelkin.errors import InvalidSupport

__all__ = ["Snapshot", "take"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """n models, by name.

    Attributes:
        space: as it was.
        names: shape ``(n,)``.
        values: of their signatures, shape ``(n, num_perm)``.
        supports: mapped; None where a model has only a signature, where its support is damaged, or
            where supports are not asked for.
    """

    space: SpaceRecord
    names: tuple[str, ...]
    values: ValueArray
    supports: tuple[PackedSupport | None, ...]

    def __len__(self) -> int:
        return len(self.names)


def take(
    session: Reader,
    blobs: BlobStore,
    space: SpaceRecord,
    asked: ClusteringRequest,
    most_mapped: int,
) -> Snapshot:
    """The models that are asked for.

    Args:
        session: sees the space as it is to be clustered.
        most_mapped: supports that may be mapped at a time, each of which holds a descriptor.

    Raises:
        ModelNotFound: one of the models that are named does not exist.
        InvalidParameter: there are too few or too many models for what is asked.
    """
    asked.check_for(repository.count_members(session, space, asked.tags, asked.models))
    members = list(
        repository.members(session, space, asked.tags, asked.models, most=MOST_MODELS + 1)
    )
    asked.check_for(len(members))
    dtype = value_dtype(space.signature.scheme)
    stored = np.frombuffer(b"".join(member.values for member in members), dtype.newbyteorder("<"))
    values: Any = stored.reshape(len(members), -1).astype(dtype, copy=False)
    return Snapshot(
        space=space,
        names=tuple(member.name for member in members),
        values=values,
        supports=_open(blobs, space, members, asked, most_mapped),
    )


def _open(
    blobs: BlobStore,
    space: SpaceRecord,
    members: Sequence[Member],
    asked: ClusteringRequest,
    most_mapped: int,
) -> tuple[PackedSupport | None, ...]:
    sizes = [member.support_size for member in members if member.blob_key is not None]
    if not asked.affords_supports(len(members), space.num_parameters, sizes, most_mapped):
        return (None,) * len(members)
    return tuple(_support(blobs, space, member) for member in members)


def _support(blobs: BlobStore, space: SpaceRecord, member: Member) -> PackedSupport | None:
    if member.blob_key is None:
        return None
    try:
        data = blobs.open(member.blob_key)
        return PackedSupport.from_buffer(data, space.num_parameters, member.support_size)
    except KeyError:  # replaced or deleted since this transaction began
        return None
    except (InvalidSupport, Unavailable) as error:  # a damaged file spoils no clustering of others
        log.error("the support of %r in space %r: %s", member.name, space.name, error)
        return None
