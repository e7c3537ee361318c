"""What the client says of jobs: work that the service does after it has answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

__all__ = ["JobInfo", "JobProgress"]


@dataclass(frozen=True, slots=True)
class JobProgress:
    """How far a job is.

    Attributes:
        done: of ``total``, in whatever the job counts.
        total: 0 where nobody knows.
        stage: what is being done, for people.
    """

    done: int
    total: int
    stage: str


@dataclass(frozen=True, slots=True)
class JobInfo:
    """A job as it was when the service answered.

    Attributes:
        kind: what is done: ``"rebuild_buckets"``, ``"stop_list"``, ...
        state: ``"queued"``, ``"running"``, ``"succeeded"``, ``"failed"`` or ``"cancelled"``.
        space: the name of the space it is about; None for one about no space.
        parameters: what it was asked to do, by JSON values.
        progress: None before the first word of it.
        result: JSON values, once it has succeeded.
        error: ``{"code", "detail"}`` once it has failed or was cancelled; while it is queued or
            running, why it is begun again.
        attempts: how often it was begun.
        cancelling: it was asked to end, and will when it hears of it.
        not_before: when it may begin, if not at once.
        started_at: when it was begun first.
    """

    id: str
    kind: str
    state: str
    space: str | None
    parameters: Mapping[str, Any] = field(hash=False)
    progress: JobProgress | None
    result: Mapping[str, Any] | None = field(hash=False)
    error: Mapping[str, Any] | None = field(hash=False)
    attempts: int
    cancelling: bool
    created_at: datetime
    not_before: datetime | None
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def finished(self) -> bool:
        """Whether it has ended, however that was."""
        return self.state in {"succeeded", "failed", "cancelled"}
