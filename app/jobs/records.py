"""Records of jobs: plain frozen values, safe to hand to any thread."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from app.tenancy.auth.records import Tenant

__all__ = [
    "CANCELLED",
    "CHANNEL",
    "HUB_QUEUES",
    "JobRecord",
    "JobState",
    "QueueName",
    "kept_parameters",
]

_MAX_KEPT_BYTES: Final = 4096
"""Bytes of parameters that an ended job keeps; a tenant may have 100,000 such jobs."""

CANCELLED: Final = {"code": "job_cancelled", "detail": "the job was cancelled"}
"""The ``error`` of a cancelled job."""
CHANNEL: Final = "modelkin_jobs"
"""The channel of the database on which workers are notified of queued jobs."""
QueueName = Literal["jobs", "hubs", "backfills", "short"]
"""The queues of the workers: of most kinds, of kinds that wait for hubs, of those that do so behind
all these, and of short kinds."""
HUB_QUEUES: Final = frozenset[QueueName]({"hubs", "backfills"})
"""Those whose jobs may take long: hubs are slow."""
JobState = Literal["queued", "running", "succeeded", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as the database knows it.

    Attributes:
        id: an opaque id; ids of later jobs sort after those of earlier jobs.
        space_id: the id of the job's space, which may be deleted by now; ``space`` is its name.
        progress: ``{"done", "total", "stage"}``, the last report; None before the first.
        result: the handler's answer, once the job has succeeded.
        error: ``{"code", "detail"}``, once it has failed or was cancelled.
        attempts: the number of starts.
        cancel_requested: whether a client asked to cancel it.
        revision: a number that grows with every change that clients can see.
        worker: the worker that carries the job out, or did so last.
    """

    id: str
    tenant: Tenant
    kind: str
    space_id: int | None
    space: str | None
    parameters: dict[str, Any]
    state: JobState
    progress: dict[str, Any] | None
    result: dict[str, Any] | None
    error: dict[str, Any] | None
    attempts: int
    cancel_requested: bool
    revision: int
    created_at: datetime
    not_before: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    worker: str | None

    @property
    def finished(self) -> bool:
        """Whether the job has succeeded, failed or was cancelled."""
        return self.finished_at is not None


def kept_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """Shorten the parameters of a job that ends: a long list of model names becomes its length."""
    names = parameters.get("models")
    if names is None or len(json.dumps(parameters)) <= _MAX_KEPT_BYTES:
        return parameters
    others = {name: value for name, value in parameters.items() if name != "models"}
    return {**others, "models_left_out": len(names)}
