"""Every error that modelkin raises, on either side of the wire.

    ModelkinError
    ├── InvalidInput (also a ValueError)   what was given cannot be right, whoever reads it
    │   ├── InvalidSupport                 indices unsorted, repeated, out of range; broken payload
    │   ├── InvalidSignature               values, scheme or payload of a signature
    │   ├── InvalidImportance              NaN, infinite, negative or all-zero importance
    │   ├── InvalidLayout                  tensor names and shapes that make no layout
    │   ├── InvalidCheckpoint              a safetensors file, index or tensor that cannot be read
    │   ├── InvalidName                    a space, model or tag name
    │   ├── InvalidWebhook                 one that is forged, stale or damaged
    │   ├── SupportNeeded                  a signature alone, asked what only a support can tell
    │   └── InvalidParameter               any other argument: k, coverage, method, a cursor
    ├── SpaceMismatch                      two things of different index spaces or schemes
    ├── PayloadTooLarge                    a body, or what it would decode to, is over the limit
    ├── UnsupportedMediaType               a body of a type nobody reads here
    ├── NotAcceptable                      an Accept header that asks for nothing on offer
    ├── BodyTimeout                        a body that came too slowly
    ├── Unauthorized                       no key, or a malformed, unknown, revoked or expired one
    ├── Forbidden                          a good key without the scope that this needs
    ├── RateLimited                        somebody has asked too often
    ├── NotFound
    │   ├── SpaceNotFound
    │   ├── ModelNotFound
    │   ├── RevisionNotFound               one that never was, or whose support is not kept
    │   ├── ClusteringNotFound             a clustering, or a space's policy for them
    │   ├── JobNotFound
    │   ├── SourceNotFound                 a source of models on a hub
    │   ├── SubscriptionNotFound           a subscription to events
    │   └── DeliveryNotFound               a delivery of an event to one
    ├── Conflict                           the request is sound, the present state forbids it
    │   ├── SpaceExists
    │   ├── SupportExists                  a signature alone may not replace a support
    │   ├── SupportMissing                 the model sent only a signature
    │   ├── SketchMissing                  and no sketch beside it
    │   ├── JobFinished                    a job that has ended cannot be cancelled
    │   ├── SecretKeyMissing               a secret is to be stored, and there is no key for it
    │   └── SubscriptionDisabled           nothing is sent until it is enabled again
    ├── PreconditionFailed                 If-Match named another version
    ├── PreconditionRequired               this changes nothing without an If-Match
    ├── Unavailable                        a store cannot be reached or written just now
    │   ├── StorageFull                    there is no room left to write
    │   └── BackendUnavailable             an accelerator is away; the truth is not
    ├── EgressRefused                      an address that the service does not connect to
    ├── JobFailed                          a job that was waited for did not succeed
    │   └── JobCancelled                   because somebody cancelled it
    ├── MissingExtra (also an ImportError) an optional dependency; says what to install
    ├── ConnectionFailed                   the client found no service at its address
    └── ApiError                           the service answered with a problem document

The domain and the services raise these; only ``app.infra.http.problems`` knows which HTTP status
each becomes. This module never imports anything of modelkin.
"""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = [
    "ApiError",
    "ConnectionFailed",
    "InvalidCheckpoint",
    "InvalidImportance",
    "InvalidInput",
    "InvalidLayout",
    "InvalidName",
    "InvalidParameter",
    "InvalidSignature",
    "InvalidSupport",
    "InvalidWebhook",
    "JobCancelled",
    "JobFailed",
    "MissingExtra",
    "ModelkinError",
    "PayloadTooLarge",
    "PreconditionFailed",
    "SpaceMismatch",
    "SupportNeeded",
    "UnsupportedMediaType",
]


class ModelkinError(Exception):
    """The root: ``except modelkin.ModelkinError`` catches all of them.

    ``code`` is the stable, machine-readable name that also stands in the problem documents of the
    service.
    """

    code: ClassVar[str] = "error"

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled whole: calling the class anew would take what made the message."""
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[ModelkinError], args: tuple[Any, ...], told: dict[str, Any]) -> Exception:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(told)
    return error


class InvalidInput(ModelkinError, ValueError):
    """The input itself is wrong. ``field`` names the argument or field, where one can be named."""

    code = "invalid_input"

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class InvalidSupport(InvalidInput):
    code = "invalid_support"


class InvalidSignature(InvalidInput):
    code = "invalid_signature"


class InvalidImportance(InvalidInput):
    code = "invalid_importance"


class InvalidLayout(InvalidInput):
    code = "invalid_layout"


class InvalidCheckpoint(InvalidInput):
    code = "invalid_checkpoint"


class InvalidName(InvalidInput):
    code = "invalid_name"


class InvalidWebhook(InvalidInput):
    code = "invalid_webhook"


class SupportNeeded(InvalidInput):
    code = "support_missing"


class InvalidParameter(InvalidInput):
    code = "invalid_parameter"


class SpaceMismatch(ModelkinError):
    code = "space_mismatch"


class PayloadTooLarge(ModelkinError):
    code = "payload_too_large"


class UnsupportedMediaType(ModelkinError):
    code = "unsupported_media_type"


class PreconditionFailed(ModelkinError):
    code = "precondition_failed"


class JobFailed(ModelkinError):
    """A job did not succeed; the message says which and why.

    ``job`` is the :class:`modelkin.JobInfo` where the client has waited for one.
    """

    code = "job_failed"

    def __init__(self, message: str, job: Any = None) -> None:
        super().__init__(message)
        self.job = job


class JobCancelled(JobFailed):
    """Somebody cancelled the job."""

    code = "job_cancelled"


class MissingExtra(ModelkinError, ImportError):
    """An optional dependency is not installed.

    Args:
        package: what could not be imported, ``"torch"``.
        extra: the extra that brings it, ``"torch"``.
        of: whose extra; ``"."`` is the service's, in its repository.
    """

    code = "missing_extra"

    def __init__(self, package: str, extra: str, *, of: str = "modelkin") -> None:
        super().__init__(
            f"this needs {package}, which is not installed: pip install '{of}[{extra}]'"
        )


class ConnectionFailed(ModelkinError):
    code = "connection_failed"


class ApiError(ModelkinError):
    """The service refused, and said why.

    Attributes:
        status: the HTTP status.
        problem_code: the ``code`` of the problem document, ``"space_not_found"`` for one.
        request_id: what to quote to whoever runs the service; it stands in its log.
        errors: for invalid input, one ``{"field", "message"}`` per field.
    """

    code = "api_error"

    def __init__(
        self,
        status: int,
        problem_code: str,
        detail: str,
        *,
        request_id: str | None = None,
        errors: tuple[dict[str, str], ...] = (),
    ) -> None:
        unsaid = [e for e in errors if e.get("message", "") not in detail]
        named = "; ".join(f"{e.get('field', '?')}: {e.get('message', '?')}" for e in unsaid)
        where = f" [request {request_id}]" if request_id else ""
        super().__init__(
            f"{status} {problem_code}: {detail}{f' ({named})' if named else ''}{where}"
        )
        self.status = status
        self.problem_code = problem_code
        self.detail = detail
        self.request_id = request_id
        self.errors = errors
