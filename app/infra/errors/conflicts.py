"""Refusals of requests that the present state forbids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from modelkin.errors import InvalidInput, ModelkinError

__all__ = [
    "Conflict",
    "FingerprintExists",
    "JobFinished",
    "MergeClosed",
    "MergeExists",
    "PreconditionFailed",
    "PreconditionRequired",
    "SecretKeyMissing",
    "SketchMissing",
    "SpaceExists",
    "SubscriptionDisabled",
    "SupportExists",
    "SupportMissing",
    "SupportRequired",
    "ValuesNotKept",
    "WrongKind",
]


class Conflict(ModelkinError):
    """The request is sound, the present state forbids it; the message says how."""

    code = "conflict"


class SpaceExists(Conflict):
    """A space of this name exists and is another one."""

    code = "space_exists"


class SupportExists(Conflict):
    """The model has a support, which a signature alone may not replace."""

    code = "support_exists"


class FingerprintExists(Conflict):
    """The service made the fingerprint from a hub's file, and a client's may not replace it."""

    code = "fingerprint_exists"


class SupportMissing(Conflict):
    """The model sent only a signature, and this needs its support."""

    code = "support_missing"


class SupportRequired(InvalidInput):
    """The request carries only a signature, and asks what only a support can answer.

    The code is that of :class:`SupportMissing`, since the remedy is the same: send the support. The
    status says where the support is missing, in the request or in the store.
    """

    code = SupportMissing.code


class SketchMissing(Conflict):
    """The model sent only a signature, and no sketch beside it."""

    code = "sketch_missing"


class JobFinished(Conflict):
    """The job has ended, so it cannot be cancelled."""

    code = "job_finished"


class WrongKind(Conflict):
    """The space holds models of another kind than the call is for."""

    code = "wrong_kind"


class MergeExists(Conflict):
    """Another merge has this name; or a repeated message differs from the first."""

    code = "merge_exists"


class MergeClosed(Conflict):
    """The merge is past the state in which this may be sent."""

    code = "merge_closed"


class ValuesNotKept(Conflict):
    """The service keeps no values of models, or not those of this learngene.

    Attributes:
        reference: the place at the owner's, from the manifest; None if it is unknown.
    """

    code = "values_not_kept"

    def __init__(self, message: str, *, reference: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.reference = reference


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
