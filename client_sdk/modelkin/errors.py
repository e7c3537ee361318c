"""Every error that the SDK raises; each class here is raised somewhere in it.

    ModelkinError
    ├── InvalidInput (also a ValueError)   input that is wrong for every service; nothing was sent
    │   ├── InvalidSupport                 indices unsorted, repeated, out of range; broken payload
    │   ├── InvalidSignature               values, scheme or payload of a signature
    │   ├── InvalidFingerprint             tensors, keys or payload of a fingerprint
    │   ├── InvalidCatalogue               a catalogue of bases that is none, or damaged
    │   ├── InvalidSubspace                columns, weights or payload of a data subspace
    │   ├── InvalidImportance              NaN, infinite, negative or all-zero importance
    │   ├── InvalidLayout                  tensor names and shapes that make no layout
    │   ├── InvalidCheckpoint              a safetensors file, index or tensor that cannot be read
    │   ├── InvalidLearngene               a learngene's file, or a manifest that is not of it
    │   ├── InvalidName                    a space, model or tag name
    │   ├── InvalidCell                    a cell of a shard: broken, of another round, not finite
    │   ├── InvalidWebhook                 a webhook that is forged, stale or damaged
    │   └── InvalidParameter               any other argument: k, coverage, method, a cursor
    ├── SpaceMismatch                      two things of different index spaces or schemes
    ├── DeltaMismatch                      a patch that changes another support than the given one
    ├── LearngeneMismatch                  a learngene that fits neither its manifest nor the model
    ├── PayloadTooLarge                    a payload or an answer that holds more than it may
    ├── UnsupportedMediaType               a media type that the wire formats do not define
    ├── PrivacyBudgetExceeded              a private support that the budget has no room for
    ├── MergeFailed                        an average whose parties were lost; nothing has moved
    ├── JobFailed                          a job that was waited for did not succeed
    │   └── JobCancelled                   because it was cancelled
    ├── MissingExtra (also an ImportError) an optional dependency; says what to install
    ├── ClientClosed                       a call of a client that was closed
    ├── ConnectionFailed                   the client found no service at its address
    └── ApiError                           the service refused; by itself for any other status
        ├── BadRequestError                400: the service could not parse the request
        ├── AuthenticationError            401: no key, or one that is unknown, revoked or expired
        ├── PermissionDeniedError          403: the key lacks a scope
        ├── NotFoundError                  404: no such space, model, revision, job, source, ...
        ├── ConflictError                  409: the request is sound, the present state forbids it
        ├── PreconditionError              412: If-Match names another version; 428: it is required
        ├── RequestTooLargeError           413: the body, or what it decodes to, is over the limit
        ├── MediaTypeError                 406, 415: a format that this service does not speak
        ├── UnprocessableEntityError       422: the service rejects a value; ``errors`` names it
        ├── RateLimitError                 429: too many requests; says when to try again
        └── ServerError                    500 and above: the service or a store of it is failing

The status alone selects the class of an ``ApiError``; ``problem_code`` says which case it is. What
the service itself raises is the tree of ``app.infra.errors``. This module imports nothing of
modelkin.
"""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = [
    "ApiError",
    "AuthenticationError",
    "BadRequestError",
    "ClientClosed",
    "ConflictError",
    "ConnectionFailed",
    "DeltaMismatch",
    "InvalidCatalogue",
    "InvalidCell",
    "InvalidCheckpoint",
    "InvalidFingerprint",
    "InvalidImportance",
    "InvalidInput",
    "InvalidLayout",
    "InvalidLearngene",
    "InvalidName",
    "InvalidParameter",
    "InvalidSignature",
    "InvalidSubspace",
    "InvalidSupport",
    "InvalidWebhook",
    "JobCancelled",
    "JobFailed",
    "LearngeneMismatch",
    "MediaTypeError",
    "MergeFailed",
    "MissingExtra",
    "ModelkinError",
    "NotFoundError",
    "PayloadTooLarge",
    "PermissionDeniedError",
    "PreconditionError",
    "PrivacyBudgetExceeded",
    "RateLimitError",
    "RequestTooLargeError",
    "ServerError",
    "SpaceMismatch",
    "UnprocessableEntityError",
    "UnsupportedMediaType",
]


class ModelkinError(Exception):
    """The root: ``except modelkin.ModelkinError`` catches all of them.

    ``code`` is the stable, machine-readable name that also stands in the problem documents of the
    service.
    """

    code: ClassVar[str] = "error"

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle all attributes, since the class has other arguments."""
        return _restored, (type(self), self.args, self.__dict__)


def _restored(
    kind: type[ModelkinError], args: tuple[Any, ...], attributes: dict[str, Any]
) -> Exception:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(attributes)
    return error


class InvalidInput(ModelkinError, ValueError):
    """The input itself is wrong. ``field`` names the argument or field, where one can be named."""

    code = "invalid_input"

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class InvalidSupport(InvalidInput):
    """The indices are unsorted, repeated or out of range, or a payload of them is damaged."""

    code = "invalid_support"


class InvalidSignature(InvalidInput):
    """The values, the scheme or the payload of a signature or sketch cannot be right."""

    code = "invalid_signature"


class InvalidFingerprint(InvalidInput):
    """Bytes or values that do not make a fingerprint, or more than one may have."""

    code = "invalid_fingerprint"


class InvalidCatalogue(InvalidInput):
    """Bytes or values that do not make a catalogue of bases, or more than one may have."""

    code = "invalid_catalogue"


class InvalidSubspace(InvalidInput):
    """Bytes or arrays that do not make a data subspace."""

    code = "invalid_subspace"


class InvalidImportance(InvalidInput):
    """The importance is NaN, infinite or negative, or zero everywhere."""

    code = "invalid_importance"


class InvalidLayout(InvalidInput):
    """The tensor names and shapes make no layout."""

    code = "invalid_layout"


class InvalidCheckpoint(InvalidInput):
    """A safetensors file, its index or one of its tensors cannot be read."""

    code = "invalid_checkpoint"


class InvalidLearngene(InvalidInput):
    """A learngene's file cannot be one, or its manifest says other things than the file."""

    code = "invalid_learngene"


class InvalidName(InvalidInput):
    """A space, a model or a tag cannot have this name."""

    code = "invalid_name"


class InvalidCell(InvalidInput):
    """A cell of a shard is damaged, of another round or roster, does not open, or is not finite."""

    code = "invalid_cell"


class InvalidWebhook(InvalidInput):
    """A webhook is forged, stale or damaged."""

    code = "invalid_webhook"


class InvalidParameter(InvalidInput):
    """Any other argument is out of its range or of another type."""

    code = "invalid_parameter"


class SpaceMismatch(ModelkinError):
    """Two things belong to different index spaces, or were made by different schemes."""

    code = "space_mismatch"


class PayloadTooLarge(ModelkinError):
    """A payload or an answer holds more than the caller allows; the rest was not read."""

    code = "payload_too_large"


class UnsupportedMediaType(ModelkinError):
    """The wire formats define no such media type."""

    code = "unsupported_media_type"


class DeltaMismatch(ModelkinError):
    """The patch changes another support than the given one."""

    code = "delta_mismatch"


class LearngeneMismatch(ModelkinError):
    """A learngene is not what its manifest says, or does not fit the model; nothing was changed."""

    code = "learngene_mismatch"


class PrivacyBudgetExceeded(ModelkinError):
    """A private support would spend more than the budget of its account; nothing was spent."""

    code = "privacy_budget_exceeded"


class MergeFailed(ModelkinError):
    """An average of several parties was not completed; the message says why.

    Nothing has moved: each party's model and shifts are as before.
    """

    code = "merge_failed"


class JobFailed(ModelkinError):
    """A job did not succeed; the message says which and why.

    ``job`` is the :class:`modelkin.JobInfo` where the client has waited for one.
    """

    code = "job_failed"

    def __init__(self, message: str, job: Any = None) -> None:
        super().__init__(message)
        self.job = job


class JobCancelled(JobFailed):
    """The job was cancelled."""

    code = "job_cancelled"


class MissingExtra(ModelkinError, ImportError):
    """An optional dependency is not installed.

    Args:
        package: what could not be imported, ``"torch"``.
        extra: the extra that brings it, ``"torch"``.
        of: the distribution whose extra it is.
    """

    code = "missing_extra"

    def __init__(self, package: str, extra: str, *, of: str = "modelkin") -> None:
        super().__init__(
            f"this needs {package}, which is not installed: pip install '{of}[{extra}]'"
        )


class ClientClosed(ModelkinError):
    """A call of a client after its ``close``, or after the end of its ``with`` block."""

    code = "client_closed"

    def __init__(self, url: str) -> None:
        super().__init__(
            f"this client of {url} is closed: make another one, or call it within its with block"
        )


class ConnectionFailed(ModelkinError):
    """No service, or no store of a merge, answers, or its answer was lost on the way."""

    code = "connection_failed"


class ApiError(ModelkinError):
    """The service refused, and said why; the subclass follows from the status.

    Attributes:
        status: the HTTP status.
        problem_code: the ``code`` of the problem document, such as ``"space_not_found"``.
        detail: what is wrong, in a sentence.
        request_id: quote it to the operator of the service, whose log has it.
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


class BadRequestError(ApiError):
    """400: the service, or a proxy before it, could not parse the request."""


class AuthenticationError(ApiError):
    """401: the service asks for a key, and this one is missing, unknown, revoked or expired."""


class PermissionDeniedError(ApiError):
    """403: the key is good, and lacks the scope that this needs."""


class NotFoundError(ApiError):
    """404: there is no such space, model, revision, clustering, job, source or subscription."""


class ConflictError(ApiError):
    """409: the request is sound, and the present state forbids it."""


class PreconditionError(ApiError):
    """412: ``if_match`` names another version. 428: the service does this only with one."""


class RequestTooLargeError(ApiError):
    """413: the body, or what it decodes to, is larger than the service accepts."""


class MediaTypeError(ApiError):
    """415: the service cannot read the format that was sent. 406: nor write the one asked for."""


class UnprocessableEntityError(ApiError):
    """422: the service rejects a value; ``errors`` names the fields."""


class RateLimitError(ApiError):
    """429: the tenant or the address made too many requests.

    Attributes:
        retry_after: seconds until the service accepts the next one; None if it does not say.
    """

    def __init__(
        self,
        status: int,
        problem_code: str,
        detail: str,
        *,
        request_id: str | None = None,
        errors: tuple[dict[str, str], ...] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(status, problem_code, detail, request_id=request_id, errors=errors)
        self.retry_after = retry_after


class ServerError(ApiError):
    """500 and above: the service or one of its stores fails; the same request may succeed later."""
