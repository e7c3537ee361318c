"""Reports and their policies, as the stores keep them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from modelkin.types.reports import ReportSize

__all__ = ["MadeBy", "ReportPolicyRecord", "ReportRecord"]

MadeBy = Literal["request", "policy"]
"""What a report is made for."""


@dataclass(frozen=True, slots=True)
class ReportRecord:
    """A stored report, without its content.

    Attributes:
        id: that of the job that made it.
        since: the begin of its time; None for one about all models.
        until: the end of its time.
        content_bytes: the bytes of its JSON.
        bill_bytes: the bytes of its bill of materials; 0 without one.
    """

    id: str
    tenant_id: int
    since: datetime | None
    until: datetime
    size: ReportSize
    made_by: MadeBy
    content_bytes: int
    bill_bytes: int

    @property
    def models(self) -> int:
        """How many models it is about."""
        return self.size.models


@dataclass(frozen=True, slots=True)
class ReportPolicyRecord:
    """When the reports of a tenant are made by themselves.

    Attributes:
        every_seconds: the time from one to the next.
        keep: how many reports are kept.
        last_at: when the last one was requested; None before the first.
        next_at: when the next one is due.
    """

    tenant_id: int
    every_seconds: int
    keep: int
    last_at: datetime | None
    next_at: datetime
