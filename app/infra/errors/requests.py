"""Refusals of a request by its content, by its sender and by the way it is sent."""

from __future__ import annotations

from modelkin.errors import ModelkinError

__all__ = [
    "BodyTimeout",
    "ClientLeft",
    "CrossSiteRequest",
    "Forbidden",
    "MisdirectedRequest",
    "NotAcceptable",
    "QueryBudgetSpent",
    "QueueFull",
    "QuotaExceeded",
    "RangeNotSatisfiable",
    "RateLimited",
    "Unauthorized",
]


class Unauthorized(ModelkinError):
    """No key was sent, or a malformed, unknown, revoked or expired one."""

    code = "unauthorized"


class Forbidden(ModelkinError):
    """The key is good, and lacks the scope that this needs."""

    code = "forbidden"


class CrossSiteRequest(ModelkinError):
    """A browser sent the request for a page of another site, and it would change something."""

    code = "cross_site"


class MisdirectedRequest(ModelkinError):
    """The ``Host`` is no name and port, or not one that this service answers to without keys."""

    code = "misdirected"


class QuotaExceeded(ModelkinError):
    """The tenant has as much of something as it may; the message says of what, and how much."""

    code = "quota_exceeded"


class QueueFull(QuotaExceeded):
    """Too many jobs or event streams of the tenant; there is room again when some have ended.

    The code is that of :class:`QuotaExceeded`; the status says whether waiting helps.
    """

    code = QuotaExceeded.code


class RateLimited(ModelkinError):
    """Too many requests; another is allowed after ``retry_after`` whole seconds."""

    code = "rate_limited"

    def __init__(self, message: str, *, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class QueryBudgetSpent(RateLimited):
    """The tenant's budget of queries of a public space is used up for today."""

    code = "query_budget_spent"


class RangeNotSatisfiable(ModelkinError):
    """The range begins beyond the end of the content; ``size`` is its length in bytes."""

    code = "range_not_satisfiable"

    def __init__(self, message: str, *, size: int) -> None:
        super().__init__(message)
        self.size = size


class NotAcceptable(ModelkinError):
    """The ``Accept`` header asks for no type on offer."""

    code = "not_acceptable"


class BodyTimeout(ModelkinError):
    """The body came too slowly."""

    code = "body_timeout"


class ClientLeft(ModelkinError):
    """The client hung up before it had its answer."""

    code = "client_left"
