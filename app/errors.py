"""The errors that the service refuses requests with; ``infra.http.problems`` has their statuses."""

from __future__ import annotations

from modelkin.errors import ModelkinError

__all__ = [
    "BackendUnavailable",
    "BodyTimeout",
    "ClusteringNotFound",
    "Conflict",
    "DeliveryNotFound",
    "EgressRefused",
    "Forbidden",
    "JobFinished",
    "JobNotFound",
    "ModelNotFound",
    "NotAcceptable",
    "NotFound",
    "PreconditionRequired",
    "RateLimited",
    "RevisionNotFound",
    "SecretKeyMissing",
    "SketchMissing",
    "SourceNotFound",
    "SpaceExists",
    "SpaceNotFound",
    "StorageFull",
    "SubscriptionDisabled",
    "SubscriptionNotFound",
    "SupportExists",
    "SupportMissing",
    "Unauthorized",
    "Unavailable",
]


class NotAcceptable(ModelkinError):
    code = "not_acceptable"


class BodyTimeout(ModelkinError):
    code = "body_timeout"


class Unauthorized(ModelkinError):
    code = "unauthorized"


class Forbidden(ModelkinError):
    code = "forbidden"


class RateLimited(ModelkinError):
    """Too many requests; ``retry_after`` is in how many whole seconds there may be another."""

    code = "rate_limited"

    def __init__(self, message: str, *, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class NotFound(ModelkinError):
    code = "not_found"


class SpaceNotFound(NotFound):
    code = "space_not_found"


class ModelNotFound(NotFound):
    code = "model_not_found"


class JobNotFound(NotFound):
    code = "job_not_found"


class ClusteringNotFound(NotFound):
    code = "clustering_not_found"


class RevisionNotFound(NotFound):
    code = "revision_not_found"


class SourceNotFound(NotFound):
    code = "source_not_found"


class SubscriptionNotFound(NotFound):
    code = "subscription_not_found"


class DeliveryNotFound(NotFound):
    code = "delivery_not_found"


class Conflict(ModelkinError):
    code = "conflict"


class SpaceExists(Conflict):
    code = "space_exists"


class SupportExists(Conflict):
    code = "support_exists"


class SupportMissing(Conflict):
    code = "support_missing"


class SketchMissing(Conflict):
    code = "sketch_missing"


class JobFinished(Conflict):
    code = "job_finished"


class SecretKeyMissing(Conflict):
    code = "secret_key_missing"


class SubscriptionDisabled(Conflict):
    code = "subscription_disabled"


class PreconditionRequired(ModelkinError):
    code = "precondition_required"


class Unavailable(ModelkinError):
    code = "unavailable"


class StorageFull(Unavailable):
    code = "storage_full"


class BackendUnavailable(Unavailable):
    """What only makes answers faster cannot be used just now; right answers come without it."""

    code = "backend_unavailable"


class EgressRefused(ModelkinError):
    """The service does not connect to this address, or takes no more of what it answers."""

    code = "egress_refused"
