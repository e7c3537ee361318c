"""Jobs: work that the service does after it has answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from modelkin._moments import Moment
from modelkin._printing import Printed
from modelkin.types.vocabulary import JobKind, JobState

__all__ = ["JobInfo", "JobProgress"]


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The progress of a job.

    Attributes:
        done: units of work done, of ``total``.
        total: 0 where it is not known.
        stage: the present step, in words.
    """

    done: int
    total: int
    stage: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class JobInfo(Printed):
    """A job as it was when the service answered.

    Attributes:
        kind: the kind of work: ``"rebuild_buckets"``, ``"stop_list"``, ``"clustering"``,
            ``"ingest"``, ...
        state: ``"queued"``, ``"running"``, ``"succeeded"``, ``"failed"`` or ``"cancelled"``.
        space: the name of its space; None for a job that concerns none.
        parameters: the parameters of the request, as JSON values; in a listing without ``models``.
        progress: None before the first report.
        result: JSON values, once it has succeeded.
        error: ``{"code", "detail"}`` once it has failed or was cancelled; while it is queued or
            running, why it is tried again.
        attempts: how often it was started.
        cancelling: whether its cancellation was requested, and has not taken effect yet.
        not_before: the earliest time that it may start.
        started_at: when it was first started.
    """

    _listed: ClassVar[tuple[str, ...]] = (
        *("id", "kind", "state", "space", "created_at", "progress", "error"),
    )
    id: str
    kind: JobKind
    state: JobState
    space: str | None = None
    parameters: Mapping[str, Any] = field(hash=False)
    progress: JobProgress | None = None
    result: Mapping[str, Any] | None = field(default=None, hash=False)
    error: Mapping[str, Any] | None = field(default=None, hash=False)
    attempts: int
    cancelling: bool
    created_at: Moment
    not_before: Moment | None = None
    started_at: Moment | None = None
    finished_at: Moment | None = None

    @property
    def finished(self) -> bool:
        """Whether the job has ended: succeeded, failed or cancelled."""
        return self.state in {"succeeded", "failed", "cancelled"}
