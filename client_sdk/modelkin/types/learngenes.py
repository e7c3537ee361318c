"""Learngenes of a space: what a newcomer starts from, by cluster and version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from modelkin._moments import Moment
from modelkin._printing import Printed
from modelkin.core.learngenes.manifest import LearngeneTensor
from modelkin.core.learngenes.references import HttpsFile, HubFile, MlflowFile

__all__ = [
    "HttpsFile",
    "HubFile",
    "Learngene",
    "LearngeneInfo",
    "LearngeneTensor",
    "MlflowFile",
]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LearngeneInfo(Printed):
    """A version of a cluster's learngene, without the list of its tensors.

    Attributes:
        space: whose cluster it is for.
        cluster: the lasting id of the cluster, or ``"all"`` for one of the whole space.
        version: 1 for the first of its cluster; never used twice.
        clustering: the id of the clustering that the cluster was found in; None for ``"all"``.
        digest: ``sha256:`` of the file, in hexadecimal.
        bytes: how many bytes the file has.
        num_tensors: how many tensors it has.
        kept: whether the service keeps the file; else it is at the reference alone.
        reference: where the file is in a hub of its owner, as the JSON of a :class:`HubFile`,
            :class:`MlflowFile` or :class:`HttpsFile`; None where the service alone has it.
        members: how many models it was averaged over, as the publisher says.
        rounds: how many rounds the members trained together, as the publisher says.
        metrics: the publisher's metrics by name.
        note: free text of the publisher, for readers.
        published_by: the first characters of the key that published it.
        stale: whether the newest clustering has no such cluster any more.
    """

    _listed: ClassVar[tuple[str, ...]] = (
        *("cluster", "version", "created_at", "stale", "members", "bytes", "metrics"),
    )
    space: str
    cluster: int | str
    version: int
    clustering: str | None = None
    digest: str
    bytes: int
    num_tensors: int
    kept: bool
    reference: Mapping[str, Any] | None = field(default=None, hash=False)
    members: int | None = None
    rounds: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict, hash=False)
    note: str | None = None
    published_by: str | None = None
    stale: bool = False
    created_at: Moment


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Learngene(LearngeneInfo):
    """A version of a cluster's learngene: its manifest.

    Attributes:
        tensors: the tensors of the file, in the order of their bytes.
        etag: the etag of this version, for ``if_match``.
    """

    tensors: tuple[LearngeneTensor, ...]
    etag: str | None = None
