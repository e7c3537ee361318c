"""Refusals for things that do not exist."""

from __future__ import annotations

from modelkin.errors import ModelkinError

__all__ = [
    "ClusterNotFound",
    "ClusteringNotFound",
    "DeliveryNotFound",
    "FingerprintNotFound",
    "HubNotFound",
    "JobNotFound",
    "KeyNotFound",
    "LearngeneNotFound",
    "MapNotFound",
    "MergeNotFound",
    "ModelNotFound",
    "NotFound",
    "PublicSpaceNotFound",
    "ReportNotFound",
    "RevisionNotFound",
    "SourceNotFound",
    "SpaceNotFound",
    "SubscriptionNotFound",
    "WeightsNotFound",
]


class NotFound(ModelkinError):
    """The thing that the request names does not exist, or belongs to another tenant."""

    code = "not_found"


class SpaceNotFound(NotFound):
    """The tenant has no space of this name."""

    code = "space_not_found"


class PublicSpaceNotFound(NotFound):
    """The space is not public, whether or not it exists."""

    code = "public_space_not_found"


class ModelNotFound(NotFound):
    """The space has no model of this name."""

    code = "model_not_found"


class RevisionNotFound(NotFound):
    """The model never had this revision, or its support is not kept any more."""

    code = "revision_not_found"


class ClusteringNotFound(NotFound):
    """The space has no such clustering, or no policy for them."""

    code = "clustering_not_found"


class ClusterNotFound(NotFound):
    """The clustering has no cluster of this id."""

    code = "cluster_not_found"


class MapNotFound(NotFound):
    """No map of the space was drawn yet."""

    code = "map_not_found"


class ReportNotFound(NotFound):
    """The tenant has no such report, or no policy for them."""

    code = "report_not_found"


class LearngeneNotFound(NotFound):
    """The cluster has no learngene, or none of this version."""

    code = "learngene_not_found"


class WeightsNotFound(NotFound):
    """Nobody stated the weights that the model's support was made from."""

    code = "weights_not_found"


class FingerprintNotFound(NotFound):
    """The tenant has no fingerprint of a model of this name."""

    code = "fingerprint_not_found"


class JobNotFound(NotFound):
    """The tenant has no job of this id."""

    code = "job_not_found"


class KeyNotFound(NotFound):
    """The tenant has no key with these first characters."""

    code = "key_not_found"


class MergeNotFound(NotFound):
    """The space has no merge of this name, or the merge has no such party, cell or result yet."""

    code = "merge_not_found"


class SourceNotFound(NotFound):
    """The tenant has no source of this id."""

    code = "source_not_found"


class SubscriptionNotFound(NotFound):
    """The tenant has no subscription of this id."""

    code = "subscription_not_found"


class DeliveryNotFound(NotFound):
    """The subscription has no delivery of this id."""

    code = "delivery_not_found"


class HubNotFound(NotFound):
    """The hub has no such model, revision or file, or does not say so to this token.

    Attributes:
        definitive: whether the hub itself, and no server before it, states that the model does not
            exist, and not only a version or a file.
    """

    code = "hub_not_found"

    def __init__(self, message: str, *, definitive: bool = False) -> None:
        super().__init__(message)
        self.definitive = definitive
