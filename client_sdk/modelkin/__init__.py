"""modelkin finds which models are kin, by the indices of their most salient parameters.

The names here are the public ones, and only these. They need numpy, httpx, msgspec and zstandard.
What needs torch is in ``modelkin.torch``. The clients and their values, and httpx with them, are
loaded at their first use, and so is numba.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from modelkin._version import __version__
from modelkin.core.blinding import Blinding
from modelkin.core.importance import Importance, Origin
from modelkin.core.layout import Layout, TensorSpec
from modelkin.core.privacy.account import PrivacyAccount
from modelkin.core.privacy.top_k import private_support
from modelkin.core.selection.selection import Selection, SmallSupportWarning, UnstableSupportWarning
from modelkin.core.selection.stability import stability
from modelkin.core.similarity.ordered import ordered_similarity
from modelkin.core.similarity.overlap import similarity
from modelkin.core.sketching.banding import Banding
from modelkin.core.sketching.signature import Signature
from modelkin.core.sketching.sketch import Sketch
from modelkin.core.subspaces.affinity import affinity
from modelkin.core.subspaces.angles import principal_angles
from modelkin.core.subspaces.fit import FewSamplesWarning, fit_subspace
from modelkin.core.subspaces.subspace import Subspace
from modelkin.core.support import Support
from modelkin.errors import (
    ApiError,
    AuthenticationError,
    BadRequestError,
    ClientClosed,
    ConflictError,
    ConnectionFailed,
    InvalidInput,
    JobCancelled,
    JobFailed,
    LearngeneMismatch,
    MediaTypeError,
    MissingExtra,
    ModelkinError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    PrivacyBudgetExceeded,
    RateLimitError,
    RequestTooLargeError,
    ServerError,
    SpaceMismatch,
    UnprocessableEntityError,
)
from modelkin.selection import select, select_signature, select_support

if TYPE_CHECKING:
    from torch.nn import Module

    from modelkin.checkpoints.anatomies import anatomy
    from modelkin.client import AsyncClient, Client, ModelkinVersionWarning, SplitClient
    from modelkin.core.catalogues.catalogue import Base, Catalogue
    from modelkin.core.fingerprints.anatomy import (
        Anatomy,
        Parent,
        TensorAnatomy,
        TensorSource,
    )
    from modelkin.core.fingerprints.fingerprint import Fingerprint
    from modelkin.types.checkpoints.pushed import (
        CheckpointItem,
        PushedCheckpoint,
        PushedCheckpoints,
    )
    from modelkin.types.clusterings import (
        Assignment,
        Cluster,
        Clustering,
        ClusteringInfo,
        ClusteringPolicy,
        ClusterQuality,
        Vote,
    )
    from modelkin.types.fingerprints.stored import FingerprintItem, StoredFingerprint
    from modelkin.types.hubs import HubEvent, Source
    from modelkin.types.jobs import JobInfo, JobProgress
    from modelkin.types.keys import ApiKey
    from modelkin.types.kinship import (
        Donor,
        DonorExplanation,
        Donors,
        Graph,
        GraphEdge,
        GraphNode,
        SimilarityBaseline,
    )
    from modelkin.types.learngenes import (
        HttpsFile,
        HubFile,
        Learngene,
        LearngeneInfo,
        LearngeneTensor,
        MlflowFile,
    )
    from modelkin.types.lineages import (
        DeclaredBase,
        FingerprintLineage,
        Kin,
        LikelyBase,
        Lineage,
        LineageLink,
        LineEvidence,
        LineRelation,
    )
    from modelkin.types.maps import ModelMap
    from modelkin.types.merges import Merge, Merged, MergeInfo, MergeParty
    from modelkin.types.models import (
        BulkItem,
        BulkResult,
        BulkSummary,
        DuplicateModel,
        DuplicateWeights,
        ModelInfo,
        StatedWeights,
    )
    from modelkin.types.paging import UNCHANGED
    from modelkin.types.public import (
        PublicNeighbor,
        PublicNeighbors,
        PublicSpace,
        PublicSpaceInfo,
    )
    from modelkin.types.reports import Report, ReportInfo, ReportPolicy
    from modelkin.types.reports.audits import Acknowledgement, LineageFinding, LineageTotals
    from modelkin.types.revisions import Revision, Revisions
    from modelkin.types.search import BlockAngles, Neighbor, Neighbors, Overlap, SimilarityMatrix
    from modelkin.types.spaces import (
        SignatureSpec,
        SpaceInfo,
        StopList,
        SubspaceSpec,
        SupportSize,
        SupportSizePolicy,
        TensorOverlap,
    )
    from modelkin.types.tensors import SpaceTensors, TensorSummary
    from modelkin.types.webhooks import Delivery, DeliveryAttempt, Subscription

__all__ = [
    "Acknowledgement",
    "Anatomy",
    "ApiError",
    "ApiKey",
    "Assignment",
    "AsyncClient",
    "AuthenticationError",
    "BadRequestError",
    "Banding",
    "Base",
    "Blinding",
    "BlockAngles",
    "BulkItem",
    "BulkResult",
    "BulkSummary",
    "Catalogue",
    "CheckpointItem",
    "Client",
    "ClientClosed",
    "Cluster",
    "ClusterQuality",
    "Clustering",
    "ClusteringInfo",
    "ClusteringPolicy",
    "ConflictError",
    "ConnectionFailed",
    "Delivery",
    "DeliveryAttempt",
    "Donor",
    "DonorExplanation",
    "Donors",
    "DuplicateModel",
    "DuplicateWeights",
    "FewSamplesWarning",
    "Fingerprint",
    "FingerprintItem",
    "Graph",
    "GraphEdge",
    "GraphNode",
    "HttpsFile",
    "HubEvent",
    "HubFile",
    "Importance",
    "InvalidInput",
    "JobCancelled",
    "JobFailed",
    "JobInfo",
    "JobProgress",
    "Kin",
    "Layout",
    "Learngene",
    "LearngeneInfo",
    "LearngeneMismatch",
    "LearngeneTensor",
    "Lineage",
    "LineageFinding",
    "DeclaredBase",
    "FingerprintLineage",
    "LikelyBase",
    "LineEvidence",
    "LineRelation",
    "LineageLink",
    "LineageTotals",
    "MediaTypeError",
    "MissingExtra",
    "MlflowFile",
    "ModelInfo",
    "ModelMap",
    "ModelkinError",
    "ModelkinVersionWarning",
    "Neighbor",
    "Neighbors",
    "NotFoundError",
    "Origin",
    "Overlap",
    "Parent",
    "PermissionDeniedError",
    "PreconditionError",
    "PrivacyAccount",
    "PrivacyBudgetExceeded",
    "PublicNeighbor",
    "PublicNeighbors",
    "PublicSpace",
    "PublicSpaceInfo",
    "PushedCheckpoint",
    "PushedCheckpoints",
    "RateLimitError",
    "RequestTooLargeError",
    "Report",
    "ReportInfo",
    "ReportPolicy",
    "Revision",
    "Revisions",
    "Selection",
    "ServerError",
    "Signature",
    "SignatureSpec",
    "SimilarityBaseline",
    "SimilarityMatrix",
    "Sketch",
    "SmallSupportWarning",
    "Source",
    "SpaceInfo",
    "SpaceMismatch",
    "SpaceTensors",
    "SplitClient",
    "StatedWeights",
    "StoredFingerprint",
    "StopList",
    "Subscription",
    "Subspace",
    "SubspaceSpec",
    "Support",
    "SupportSize",
    "SupportSizePolicy",
    "TensorAnatomy",
    "TensorOverlap",
    "TensorSource",
    "TensorSpec",
    "TensorSummary",
    "UNCHANGED",
    "UnprocessableEntityError",
    "UnstableSupportWarning",
    "Vote",
    "__version__",
    "affinity",
    "anatomy",
    "fit_subspace",
    "layout_of",
    "ordered_similarity",
    "principal_angles",
    "private_support",
    "select",
    "select_signature",
    "select_support",
    "similarity",
    "stability",
    "Merge",
    "MergeInfo",
    "MergeParty",
    "Merged",
]


def layout_of(model: Module) -> Layout:
    """The layout of a torch model, see :func:`modelkin.torch.layout_of`.

    Raises:
        MissingExtra: torch is not installed. It is imported at the call, so nothing else needs it.
    """
    from modelkin import torch

    return torch.layout_of(model)


_FROM = {
    **dict.fromkeys(
        ("AsyncClient", "Client", "ModelkinVersionWarning", "SplitClient"), "modelkin.client"
    ),
    **dict.fromkeys(
        ("Anatomy", "Parent", "TensorAnatomy", "TensorSource"),
        "modelkin.core.fingerprints.anatomy",
    ),
    **dict.fromkeys(("Base", "Catalogue"), "modelkin.core.catalogues.catalogue"),
    "Fingerprint": "modelkin.core.fingerprints.fingerprint",
    "anatomy": "modelkin.checkpoints.anatomies",
}
"""Where names are that are loaded at their first use; those of no other place are types."""


def __getattr__(name: str) -> Any:
    """The clients and their values, and what answers without one, loaded at their first use.

    They take as long to import as all else, and supports do not need them.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_FROM.get(name, "modelkin.types")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
