"""Records of learngenes: plain frozen values, safe to hand to any thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from modelkin.core.learngenes.manifest import ALL, LearngeneTensor

__all__ = ["WHOLE_SPACE", "ClusterSet", "Content", "Details", "LearngeneRecord", "shown_cluster"]

WHOLE_SPACE: Final = -1
"""Stands for ``all``, as ``assign`` answers -1 where no cluster is near."""


@dataclass(frozen=True, slots=True)
class ClusterSet:
    """The clusters of a clustering.

    Attributes:
        scope: "" for a clustering of all models of the space.
        ids: the ids of its clusters, which last from one clustering to the next.
    """

    clustering: str
    scope: str
    ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class Details:
    """A publisher's unchecked statements about a learngene beside its content.

    Attributes:
        clustering: the clustering with the cluster; None for the newest of all models.
        members: the number of models that it is the average of.
        rounds: the rounds of training together.
        metrics: the metrics, by name.
        note: a note for readers.
    """

    clustering: str | None = None
    members: int | None = None
    rounds: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a learngene as it is published.

    Attributes:
        digest: the digest of the file, ``sha256:...``.
        size: the bytes of the file.
        tensors: the tensors, in the order of their bytes.
        reference: the place where its owner has the file; None where the service gets it.
        data: the file, if the service is to keep it.
    """

    digest: str
    size: int
    tensors: tuple[LearngeneTensor, ...]
    reference: Mapping[str, Any] | None = None
    data: bytes | bytearray | None = None


@dataclass(frozen=True, slots=True)
class LearngeneRecord:
    """A version of a cluster's learngene, without its tensors.

    Attributes:
        cluster: the lasting id of the cluster; :data:`WHOLE_SPACE` for the whole space.
        version: the version, 1 for the first of its cluster; never used twice.
        clustering: the clustering with the cluster; None for the whole space.
        size: the bytes of the file.
        blob_key: the blob key of the file; None where it is not kept.
        stored_bytes: the bytes that it takes of the quota.
        published_by: the first characters of the key that published it.
    """

    id: str
    tenant_id: int
    space_id: int
    cluster: int
    version: int
    clustering: str | None
    scope: str
    digest: str
    size: int
    num_tensors: int
    reference: Mapping[str, Any] | None
    blob_key: str | None
    stored_bytes: int
    members: int | None
    rounds: int | None
    metrics: Mapping[str, float]
    note: str | None
    published_by: str | None
    created_at: datetime

    @property
    def kept(self) -> bool:
        """Whether the service keeps the file."""
        return self.blob_key is not None

    @property
    def version_tag(self) -> str:
        """A tag that no other version of any cluster has."""
        made = round(self.created_at.timestamp() * 1e6)
        return f"{self.version:x}-{made:x}-{self.digest[-16:]}"


def shown_cluster(cluster: int) -> int | str:
    """A cluster as paths and answers name it."""
    return ALL if cluster == WHOLE_SPACE else cluster
