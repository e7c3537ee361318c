"""Errors of absent stores and wrong answers of other servers, and their text in a log."""

from __future__ import annotations

from modelkin.errors import ModelkinError

__all__ = [
    "BackendUnavailable",
    "EgressRefused",
    "Explanation",
    "HubForbidden",
    "HubProtocolError",
    "HubTimeout",
    "HubUnavailable",
    "JobTimeout",
    "RetryLater",
    "StorageFull",
    "TooMuch",
    "Unavailable",
    "explain",
    "is_announced",
]


class Unavailable(ModelkinError):
    """A store cannot be reached or written just now, or a stored file is damaged.

    Attributes:
        reason: the store's message, for operators alone: it may name hosts, users and paths.
        announced: whether the log has a line about the outage, and needs none about this error.
    """

    code = "unavailable"

    def __init__(self, message: str, *, reason: str = "", announced: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.announced = announced


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


class HubForbidden(ModelkinError):
    """The hub refuses the model: it is private or gated, or the hub rejects the token."""

    code = "hub_refused"


class JobTimeout(ModelkinError):
    """One attempt at a job took longer than it may; the message states its progress."""

    code = "timed_out"


class HubTimeout(ModelkinError):
    """All requests of a sync together took longer than it may."""

    code = "hub_too_slow"


class HubProtocolError(ModelkinError):
    """The hub sent more bytes than it declared, or other ones, or an unreadable answer."""

    code = "hub_untrue"


class EgressRefused(ModelkinError):
    """The service does not connect to this address, or takes no more of its answer."""

    code = "egress_refused"


class Explanation(str):
    """An error's text for a log, which still knows the error."""

    __slots__ = ("error",)
    error: BaseException


def is_announced(error: BaseException | None) -> bool:
    """Whether the log has a line about the outage that caused an error."""
    while error is not None:
        if isinstance(error, Unavailable) and error.announced:
            return True
        error = error.__cause__
    return False


def explain(error: BaseException) -> Explanation:
    """Return an error's text for a log: its message, and the reason that no client is shown."""
    reason = error.reason if isinstance(error, Unavailable) else ""
    text = Explanation(f"{error}: {reason}" if reason else str(error))
    text.error = error
    return text
