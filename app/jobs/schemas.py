"""The JSON of jobs, as they are answered."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from app.jobs.records import JobRecord, JobState

__all__ = ["JobOut", "JobPage"]


class ProgressOut(BaseModel):
    done: int = Field(description="how many, in whatever the job counts")
    total: int = Field(description="of how many; 0 where nobody knows")
    stage: str = Field(description="what is being done, for people")


class JobErrorOut(BaseModel):
    code: str = Field(description="stable, for programs; those of problem documents among them")
    detail: str


class JobOut(BaseModel):
    """A job, as it is now."""

    model_config = ConfigDict(
        from_attributes=True,
        json_schema_extra={
            "examples": [
                {
                    "id": "0198c7a2-5b7e-7cc3-98c4-dc0c0c07398f",
                    "kind": "rebuild_buckets",
                    "state": "running",
                    "space": "digits-mlp",
                    "parameters": {},
                    "progress": {"done": 4000, "total": 100000, "stage": "bucketing"},
                    "result": None,
                    "error": None,
                    "attempts": 1,
                    "cancelling": False,
                    "created_at": "2026-05-04T10:00:00Z",
                    "not_before": None,
                    "started_at": "2026-05-04T10:00:00.4Z",
                    "finished_at": None,
                }
            ]
        },
    )

    id: str
    kind: str
    state: JobState
    space: str | None = Field(description="the name of the space it is about")
    parameters: dict[str, Any]
    progress: ProgressOut | None = Field(description="null before the first word of it")
    result: dict[str, Any] | None = Field(description="once it has succeeded")
    error: JobErrorOut | None = Field(
        description="why it failed or was cancelled; while it is queued or running, why it is "
        "begun again"
    )
    attempts: int = Field(description="how often it was begun; again after a crash or an outage")
    cancelling: bool = Field(
        validation_alias="cancel_requested",
        description="it ends as soon as it hears that it was cancelled",
    )
    created_at: datetime
    not_before: datetime | None = Field(description="when it may begin, if not at once")
    started_at: datetime | None = Field(description="when it was begun first")
    finished_at: datetime | None

    @classmethod
    def of(cls, job: JobRecord) -> JobOut:
        return cls.model_validate(job)


class JobPage(BaseModel):
    items: list[JobOut]
    next_cursor: str | None

    @classmethod
    def of(cls, jobs: tuple[JobRecord, ...], next_cursor: str | None) -> JobPage:
        return cls(items=[JobOut.of(job) for job in jobs], next_cursor=next_cursor)
