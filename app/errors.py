"""What the service refuses: one tree, which continues that of ``modelkin.errors``.

    ModelkinError                          of the SDK, as all that is marked with *
    ├── InvalidInput*                      the request itself cannot be right
    │   └── SupportRequired                a signature was sent where only a support can answer
    ├── Unauthorized                       no key, or a malformed, unknown, revoked or expired one
    ├── Forbidden                          a good key without the scope that this needs
    ├── CrossSiteRequest                   another site's page would change something
    ├── MisdirectedRequest                 a Host that this service does not answer to
    ├── RateLimited                        too many requests of a tenant or an address
    ├── QuotaExceeded                      the tenant has as much of something as it may
    │   └── QueueFull                      jobs or streams; there is room again when some ended
    ├── NotFound
    │   ├── SpaceNotFound
    │   ├── ModelNotFound
    │   ├── RevisionNotFound               one that never was, or whose support is not kept
    │   ├── ClusteringNotFound             a clustering, or a space's policy for them
    │   ├── JobNotFound
    │   ├── SourceNotFound                 a source of models on a hub
    │   ├── SubscriptionNotFound           a subscription to events
    │   ├── DeliveryNotFound               a webhook delivery of a subscription
    │   └── HubNotFound                    the hub has no such model, revision or file
    ├── Conflict                           the request is sound, the present state forbids it
    │   ├── SpaceExists
    │   ├── SupportExists                  a signature alone may not replace a support
    │   ├── SupportMissing                 the model sent only a signature
    │   ├── SketchMissing                  and no sketch beside it
    │   ├── JobFinished                    a job that has ended cannot be cancelled
    │   ├── SecretKeyMissing               a secret is to be stored, and there is no key for it
    │   └── SubscriptionDisabled           nothing is sent until it is enabled again
    ├── SpaceMismatch*                     two things of different index spaces or schemes
    ├── PreconditionFailed                 If-Match names another version
    ├── PreconditionRequired               this changes nothing without an If-Match
    ├── PayloadTooLarge*                   a body, or what it would decode to, is over the limit
    ├── UnsupportedMediaType*              a body of a type that this operation does not take
    ├── NotAcceptable                      an Accept header that asks for no type on offer
    ├── BodyTimeout                        a body that came too slowly
    ├── ClientLeft                         the client hung up before its answer
    ├── Unavailable                        a store cannot be reached or written just now
    │   ├── StorageFull                    there is no room left to write
    │   ├── TooMuch                        a question that took longer than it may
    │   ├── BackendUnavailable             an accelerator is away; the truth is not
    │   └── RetryLater                     a job waits for another service and begins again
    │       └── HubUnavailable             a hub is down, too slow or asks to wait
    ├── HubForbidden                       the hub knows the model and does not give it
    ├── JobTimeout                         an attempt at a job took longer than it may
    ├── HubTimeout                         all requests of a sync together took too long
    ├── HubProtocolError                   a hub sent something else than it declared
    └── EgressRefused                      an address that the service does not connect to

The rule: an error belongs here if a client can read its ``code``, in a problem document, in a line
of a batch or as the ``error`` of a job. Two subclasses live beside their only raiser, which adds to
them what no client sees: ``auth.rate_limits.RateLimitExceeded`` (the counters) and
``hubs.ingestion.service._Busy`` (another sync holds the model). Internal control flow stays out,
and never leaves its module or its caller: ``hubs.incoming.events.InvalidWebhookSignature`` (the
sender reads only ``unauthorized``), ``infra.http.bodies._Refused`` (carries an error through
FastAPI), ``workers.executor.ShuttingDown`` and ``LeaseLost`` (end the work on a job).

No two classes define the same code. ``infra.http.problems`` has the statuses.
"""

from __future__ import annotations

from modelkin.errors import InvalidInput, ModelkinError

__all__ = [
    "BackendUnavailable",
    "BodyTimeout",
    "ClientLeft",
    "ClusteringNotFound",
    "Conflict",
    "CrossSiteRequest",
    "DeliveryNotFound",
    "EgressRefused",
    "Forbidden",
    "HubForbidden",
    "HubNotFound",
    "HubProtocolError",
    "HubTimeout",
    "HubUnavailable",
    "JobFinished",
    "JobNotFound",
    "JobTimeout",
    "MisdirectedRequest",
    "ModelNotFound",
    "NotAcceptable",
    "NotFound",
    "PreconditionFailed",
    "PreconditionRequired",
    "QueueFull",
    "QuotaExceeded",
    "RateLimited",
    "RetryLater",
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
    "SupportRequired",
    "TooMuch",
    "Unauthorized",
    "Unavailable",
    "explain",
]


class Unauthorized(ModelkinError):
    """No key was sent, or one that is malformed, unknown, revoked or expired."""

    code = "unauthorized"


class Forbidden(ModelkinError):
    """The key is good, and lacks the scope that this needs."""

    code = "forbidden"


class CrossSiteRequest(ModelkinError):
    """A browser sent the request for a page of another site, and it would change something."""

    code = "cross_site"


class MisdirectedRequest(ModelkinError):
    """This service does not answer to the ``Host``: a page may have rebound its name."""

    code = "misdirected"


class QuotaExceeded(ModelkinError):
    """The tenant has as much of something as it may; the message says of what, and how much."""

    code = "quota_exceeded"


class QueueFull(QuotaExceeded):
    """Too many jobs or event streams of the tenant; there is room again when some have ended.

    Its code is that of :class:`QuotaExceeded`; the status says whether waiting helps.
    """

    code = QuotaExceeded.code


class RateLimited(ModelkinError):
    """Too many requests; ``retry_after`` is in how many whole seconds there may be another."""

    code = "rate_limited"

    def __init__(self, message: str, *, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


# --- what is not there ----------------------------------------------------------------------------


class NotFound(ModelkinError):
    """What the request names does not exist, or belongs to another tenant."""

    code = "not_found"


class SpaceNotFound(NotFound):
    """The tenant has no space of this name."""

    code = "space_not_found"


class ModelNotFound(NotFound):
    """The space has no model of this name."""

    code = "model_not_found"


class RevisionNotFound(NotFound):
    """The model never had this revision, or its support is not kept any more."""

    code = "revision_not_found"


class ClusteringNotFound(NotFound):
    """The space has no such clustering, or no policy for them."""

    code = "clustering_not_found"


class JobNotFound(NotFound):
    """The tenant has no job of this id."""

    code = "job_not_found"


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
        definitive: the hub itself says in its own words that the model does not exist; not a
            server before it, and not of a version or a file.
    """

    code = "hub_not_found"

    def __init__(self, message: str, *, definitive: bool = False) -> None:
        super().__init__(message)
        self.definitive = definitive


# --- what the present state forbids ---------------------------------------------------------------


class Conflict(ModelkinError):
    """The request is sound, the present state forbids it; the message says how."""

    code = "conflict"


class SpaceExists(Conflict):
    """A space of this name exists and is another one."""

    code = "space_exists"


class SupportExists(Conflict):
    """The model has a support, which a signature alone may not replace."""

    code = "support_exists"


class SupportMissing(Conflict):
    """The model sent only a signature, and this needs its support."""

    code = "support_missing"


class SupportRequired(InvalidInput):
    """The request carries only a signature, and asks what only a support can answer.

    Its code is that of :class:`SupportMissing`, since the remedy is the same: send the support. The
    status says where it is missing, in the request or in the store.
    """

    code = SupportMissing.code


class SketchMissing(Conflict):
    """The model sent only a signature, and no sketch beside it."""

    code = "sketch_missing"


class JobFinished(Conflict):
    """The job has ended, so it cannot be cancelled."""

    code = "job_finished"


class SecretKeyMissing(Conflict):
    """A secret is to be stored, and the service has no key to encrypt it with."""

    code = "secret_key_missing"


class SubscriptionDisabled(Conflict):
    """The subscription is disabled: nothing is sent until it is enabled again."""

    code = "subscription_disabled"


class PreconditionFailed(ModelkinError):
    """``If-Match`` names another version than the present one."""

    code = "precondition_failed"


class PreconditionRequired(ModelkinError):
    """This changes nothing without an ``If-Match``."""

    code = "precondition_required"


# --- how the request is sent ----------------------------------------------------------------------


class NotAcceptable(ModelkinError):
    """The ``Accept`` header asks for no type on offer."""

    code = "not_acceptable"


class BodyTimeout(ModelkinError):
    """The body came too slowly."""

    code = "body_timeout"


class ClientLeft(ModelkinError):
    """The client hung up before it had its answer."""

    code = "client_left"


# --- what is away ---------------------------------------------------------------------------------


class Unavailable(ModelkinError):
    """A store cannot be reached or written just now, or a stored file is damaged.

    Attributes:
        reason: what the store said, for operators alone: it may name hosts, users and paths.
    """

    code = "unavailable"

    def __init__(self, message: str, *, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class StorageFull(Unavailable):
    """There is no room left to write."""

    code = "storage_full"


class TooMuch(Unavailable):
    """The answer took longer than it may; the message says what would take less."""

    code = "too_much"


class BackendUnavailable(Unavailable):
    """An accelerator is away; correct answers come without it, only slower."""

    code = "backend_unavailable"


class RetryLater(Unavailable):
    """A job waits for another service: it begins again after growing pauses, uncounted.

    Attributes:
        retry_after: seconds that it waits for at least.
        most: seconds that a pause has at most, unless ``retry_after`` is more.
    """

    def __init__(self, message: str, *, retry_after: float = 0, most: float = 7200) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.most = most


class HubUnavailable(RetryLater):
    """The hub is down, too slow or asks to wait: the job is retried later, for days."""

    code = "hub_unavailable"


# --- what other servers answer --------------------------------------------------------------------


class HubForbidden(ModelkinError):
    """The hub refuses the model: it is private or gated, or the hub rejects the token."""

    code = "hub_refused"


class JobTimeout(ModelkinError):
    """One attempt at a job took longer than it may; the message says how far it came."""

    code = "timed_out"


class HubTimeout(ModelkinError):
    """All requests of a sync together took longer than it may."""

    code = "hub_too_slow"


class HubProtocolError(ModelkinError):
    """The hub sent more bytes than it declared, or other ones, or an unreadable answer."""

    code = "hub_untrue"


class EgressRefused(ModelkinError):
    """The service does not connect to this address, or takes no more of what it answers."""

    code = "egress_refused"


# --- what a log says ------------------------------------------------------------------------------


def explain(error: BaseException) -> str:
    """What a log says of an error: its message, and the reason that no client is shown."""
    reason = error.reason if isinstance(error, Unavailable) else ""
    return f"{error}: {reason}" if reason else str(error)
