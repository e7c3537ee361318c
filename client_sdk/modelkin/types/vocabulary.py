"""The words that arguments take and answers give, as ``Literal`` types for type checkers.

At run time each of them is ``str``: a newer service may answer a word that this version does not
know, and the answer is still read. The clients send an unknown word too; the service refuses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

__all__ = [
    "BaseRelation",
    "BulkStatus",
    "ClusteringAlgorithm",
    "Compare",
    "DeliveryState",
    "DonorMethod",
    "DonorWeights",
    "Estimate",
    "EdgeReason",
    "EventType",
    "HubEventOutcome",
    "HubImportance",
    "HubKind",
    "ImportanceKind",
    "JobKind",
    "JobState",
    "KeyScope",
    "KeyState",
    "LineFinding",
    "LineVerdict",
    "MergeState",
    "LineageReason",
    "LineageRelation",
    "LineageVerdict",
    "Linkage",
    "Measure",
    "ModelKind",
    "ModelOrder",
    "NeighborMeasure",
    "OnDelete",
    "PushState",
    "Relation",
    "ReportForm",
    "SearchMethod",
    "SignatureScheme",
    "SimilarityChoice",
    "SimilaritySource",
    "SpaceKind",
    "StartableJobKind",
    "StatedBy",
    "SupportSizePolicyName",
    "UsedSearchMethod",
    "Weighting",
]

KnownHubKind: TypeAlias = Literal["huggingface", "mlflow"]
"""The kinds of hub that this version knows, for the command line, which needs them at run time."""

if TYPE_CHECKING:
    from modelkin.core.fingerprints.relations.edges import EdgeReason
    from modelkin.core.fingerprints.sources import Verdict as LineVerdict
    from modelkin.core.importance import ImportanceKind
    from modelkin.core.kinship.line_relations import LineageRelation
    from modelkin.core.kinship.lineage import BaseRelation
    from modelkin.core.kinship.lineage import Reason as LineageReason
    from modelkin.core.kinship.lines import Finding as LineFinding
    from modelkin.core.subspaces.subspace import Compare, Weighting

    BulkStatus: TypeAlias = Literal["created", "replaced", "unchanged", "skipped", "failed"]
    ClusteringAlgorithm: TypeAlias = Literal[
        "affinity_propagation", "leiden", "agglomerative", "hdbscan"
    ]
    DeliveryState: TypeAlias = Literal["pending", "succeeded", "failed"]
    DonorMethod: TypeAlias = Literal["similarity", "idf", "cover", "knn_shapley"]
    DonorWeights: TypeAlias = Literal["zscore", "similarity", "score"]
    Estimate: TypeAlias = Literal["exact", "sketch", "signature"]
    EventType: TypeAlias = Literal[
        "support.stored",
        "neighbors.changed",
        "clustering.completed",
        "lineage.mismatch",
        "merge.joining",
        "merge.completed",
        "merge.failed",
        "learngene.published",
        "model.duplicate",
        "anatomy.changed",
        "fingerprint.stored",
        "fingerprint.removed",
        "report.ready",
        "ping",
    ]
    HubEventOutcome: TypeAlias = Literal["enqueued", "ignored", "recorded"]
    HubKind: TypeAlias = KnownHubKind
    HubImportance: TypeAlias = Literal["delta", "weight"]
    JobKind: TypeAlias = Literal[
        "rebuild_buckets",
        "stop_list",
        "clustering",
        "map",
        "ingest",
        "backfill",
        "poll",
        "source_polls",
        "fingerprint_backfills",
        "prune_deliveries",
        "deliveries",
        "events",
        "tensor_counts",
        "merge_deadline",
        "anatomies",
        "report",
        "findings",
    ]
    JobState: TypeAlias = Literal["queued", "running", "succeeded", "failed", "cancelled"]
    MergeState: TypeAlias = Literal["joining", "sending", "combining", "done", "failed"]
    KeyScope: TypeAlias = Literal["read", "write", "metrics", "values", "admin"]
    KeyState: TypeAlias = Literal["valid", "expired", "revoked"]
    LineageVerdict: TypeAlias = Literal[
        "consistent", "mismatch", "inconclusive", "unknown_base", "undeclared", "cycle"
    ]
    Linkage: TypeAlias = Literal["average", "complete", "single"]
    Measure: TypeAlias = Literal["similarity", "kappa", "ordered"]
    ModelKind: TypeAlias = Literal["support", "signature", "subspace"]
    ModelOrder: TypeAlias = Literal[
        "name", "newest", "oldest", "largest", "smallest", "most_revised"
    ]
    NeighborMeasure: TypeAlias = Literal["similarity", "ordered"]
    OnDelete: TypeAlias = Literal["keep", "remove"]
    PushState: TypeAlias = Literal[
        "created", "replaced", "unchanged", "planned", "skipped", "failed"
    ]
    Relation: TypeAlias = Literal["base", "ancestor", "derivative", "sibling"]
    ReportForm: TypeAlias = Literal["html", "csv", "json", "cyclonedx"]
    SearchMethod: TypeAlias = Literal["auto", "exact", "scan", "lsh"]
    SignatureScheme: TypeAlias = Literal["affine32", "affine64"]
    SimilarityChoice: TypeAlias = Literal["auto", "exact", "signature"]
    SimilaritySource: TypeAlias = Literal["exact", "signature", "mixed"]
    SpaceKind: TypeAlias = Literal["supports", "subspaces"]
    StatedBy: TypeAlias = Literal["hub", "client"]
    StartableJobKind: TypeAlias = Literal["rebuild_buckets", "stop_list"]
    SupportSizePolicyName: TypeAlias = Literal["free", "fixed", "agreed"]
    UsedSearchMethod: TypeAlias = Literal["exact", "scan", "lsh"]
else:
    ModelOrder = str
    BulkStatus = ClusteringAlgorithm = DeliveryState = DonorMethod = DonorWeights = Estimate = str
    EventType = HubEventOutcome = HubImportance = HubKind = ImportanceKind = JobKind = JobState = (
        str
    )
    KeyScope = KeyState = MergeState = str
    BaseRelation = LineageReason = LineageVerdict = Linkage = SimilarityChoice = str
    LineFinding = LineVerdict = LineageRelation = str
    Measure = ModelKind = NeighborMeasure = OnDelete = Relation = ReportForm = str
    SearchMethod = PushState = str
    EdgeReason = StatedBy = str
    SignatureScheme = SimilaritySource = StartableJobKind = str
    Compare = SpaceKind = SupportSizePolicyName = UsedSearchMethod = Weighting = str
