"""The refusals of the service: one tree, which continues that of ``modelkin.errors``.

    ModelkinError                          of the SDK, as all that is marked with *
    ├── InvalidInput*                      the request itself cannot be right
    │   └── SupportRequired                a signature was sent where only a support can answer
    ├── Unauthorized                       no key, or a malformed, unknown, revoked or expired one
    ├── Forbidden                          a good key without the scope that this needs
    ├── CrossSiteRequest                   another site's page would change something
    ├── MisdirectedRequest                 a Host that this service does not answer to
    ├── RateLimited                        too many requests of a tenant or an address
    │   └── QueryBudgetSpent               too many queries of a public space today
    ├── QuotaExceeded                      the tenant has as much of something as it may
    │   └── QueueFull                      jobs or streams; there is room again when some ended
    ├── NotFound
    │   ├── SpaceNotFound
    │   ├── PublicSpaceNotFound            one that is not public, or that does not exist
    │   ├── ModelNotFound
    │   ├── RevisionNotFound               one that never was, or whose support is not kept
    │   ├── ClusteringNotFound             a clustering, or a space's policy for them
    │   ├── ClusterNotFound                a clustering has no cluster of this id
    │   ├── MapNotFound                    of a space of which none was drawn
    │   ├── LearngeneNotFound              a cluster has none, or none of this version
    │   ├── WeightsNotFound                nobody stated those of the model
    │   ├── FingerprintNotFound            the tenant has none of a model of this name
    │   ├── ReportNotFound                 a report, or a tenant's policy for them
    │   ├── JobNotFound
    │   ├── KeyNotFound
    │   ├── MergeNotFound
    │   ├── SourceNotFound                 a source of models on a hub
    │   ├── SubscriptionNotFound           a subscription to events
    │   ├── DeliveryNotFound               a webhook delivery of a subscription
    │   └── HubNotFound                    the hub has no such model, revision or file
    ├── Conflict                           the request is sound, the present state forbids it
    │   ├── SpaceExists
    │   ├── SupportExists                  a signature alone may not replace a support
    │   ├── SupportMissing                 the model sent only a signature
    │   ├── SketchMissing                  and no sketch beside it
    │   ├── FingerprintExists              a client's may not replace that of a hub's file
    │   ├── JobFinished                    a job that has ended cannot be cancelled
    │   ├── MergeClosed                    a merge is past the state in which this may be sent
    │   ├── MergeExists                    a merge of this name exists and is another one
    │   ├── ValuesNotKept                  the service keeps no file of a learngene, or not this one
    │   ├── SecretKeyMissing               a secret is to be stored, and there is no key for it
    │   ├── WrongKind                      the space holds models of another kind
    │   └── SubscriptionDisabled           nothing is sent until it is enabled again
    ├── SpaceMismatch*                     two things of different index spaces or schemes
    ├── PreconditionFailed                 If-Match names another version
    ├── PreconditionRequired               this changes nothing without an If-Match
    ├── PayloadTooLarge*                   a body, or what it would decode to, is over the limit
    ├── UnsupportedMediaType*              a body of a type that this operation does not take
    ├── NotAcceptable                      an Accept header that asks for no type on offer
    ├── RangeNotSatisfiable                a range that begins beyond the end
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
them what no client sees: ``tenancy.auth.rate_limits.RateLimitExceeded`` (the counters) and
``hubs.ingestion.service._Busy`` (another sync holds the model). Internal control flow stays out,
and never leaves its module or its caller: ``hubs.incoming.events.InvalidWebhookSignature`` (the
sender reads only ``unauthorized``), ``infra.http.requests.bodies._Refused`` (carries an error
through FastAPI), ``jobs.claim.ShuttingDown`` and ``LeaseLost`` (end the work on a job).

No two classes define the same code. ``infra.http.problems`` has the statuses.
"""

from __future__ import annotations

from app.infra.errors.absences import (
    ClusteringNotFound,
    ClusterNotFound,
    DeliveryNotFound,
    FingerprintNotFound,
    HubNotFound,
    JobNotFound,
    KeyNotFound,
    LearngeneNotFound,
    MapNotFound,
    MergeNotFound,
    ModelNotFound,
    NotFound,
    PublicSpaceNotFound,
    ReportNotFound,
    RevisionNotFound,
    SourceNotFound,
    SpaceNotFound,
    SubscriptionNotFound,
    WeightsNotFound,
)
from app.infra.errors.conflicts import (
    Conflict,
    FingerprintExists,
    JobFinished,
    MergeClosed,
    MergeExists,
    PreconditionFailed,
    PreconditionRequired,
    SecretKeyMissing,
    SketchMissing,
    SpaceExists,
    SubscriptionDisabled,
    SupportExists,
    SupportMissing,
    SupportRequired,
    ValuesNotKept,
    WrongKind,
)
from app.infra.errors.faults import (
    BackendUnavailable,
    EgressRefused,
    Explanation,
    HubForbidden,
    HubProtocolError,
    HubTimeout,
    HubUnavailable,
    JobTimeout,
    RetryLater,
    StorageFull,
    TooMuch,
    Unavailable,
    explain,
    is_announced,
)
from app.infra.errors.requests import (
    BodyTimeout,
    ClientLeft,
    CrossSiteRequest,
    Forbidden,
    MisdirectedRequest,
    NotAcceptable,
    QueryBudgetSpent,
    QueueFull,
    QuotaExceeded,
    RangeNotSatisfiable,
    RateLimited,
    Unauthorized,
)

__all__ = [
    "BackendUnavailable",
    "BodyTimeout",
    "ClientLeft",
    "ClusterNotFound",
    "ClusteringNotFound",
    "Conflict",
    "CrossSiteRequest",
    "DeliveryNotFound",
    "EgressRefused",
    "Explanation",
    "FingerprintExists",
    "FingerprintNotFound",
    "Forbidden",
    "HubForbidden",
    "HubNotFound",
    "HubProtocolError",
    "HubTimeout",
    "HubUnavailable",
    "JobFinished",
    "JobNotFound",
    "KeyNotFound",
    "JobTimeout",
    "LearngeneNotFound",
    "MapNotFound",
    "MergeClosed",
    "MergeExists",
    "MergeNotFound",
    "MisdirectedRequest",
    "ModelNotFound",
    "NotAcceptable",
    "NotFound",
    "PreconditionFailed",
    "PreconditionRequired",
    "PublicSpaceNotFound",
    "QueryBudgetSpent",
    "QueueFull",
    "QuotaExceeded",
    "RangeNotSatisfiable",
    "RateLimited",
    "RetryLater",
    "ReportNotFound",
    "RevisionNotFound",
    "SecretKeyMissing",
    "SketchMissing",
    "SourceNotFound",
    "SpaceExists",
    "SpaceNotFound",
    "StorageFull",
    "SubscriptionDisabled",
    "SubscriptionNotFound",
    "WeightsNotFound",
    "SupportExists",
    "SupportMissing",
    "SupportRequired",
    "WrongKind",
    "TooMuch",
    "Unauthorized",
    "Unavailable",
    "ValuesNotKept",
    "explain",
    "is_announced",
]
