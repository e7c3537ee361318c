"""The JSON of jobs in answers."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from app.infra.http.fields import NextCursor
from app.jobs.records import JobRecord, JobState

__all__ = ["JobOut", "JobPage", "without_models"]


class ProgressOut(BaseModel):
    done: int = Field(description="units of work done, as the job counts them")
    total: int = Field(description="units of work in all; 0 if unknown")
    stage: str = Field(description="the present stage, for people")


class JobErrorOut(BaseModel):
    code: str = Field(description="stable, for programs; includes the codes of problem documents")
    detail: str = Field(description="what went wrong, for people")


class JobOut(BaseModel):
    """The present state of a job."""

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

    id: str = Field(description="made by the service, for paths")
    kind: str = Field(description="what it does, such as `clustering` or `ingest`")
    state: JobState = Field(description="queued, running, or how it ended")
    space: str | None = Field(description="the name of the space it is about")
    parameters: dict[str, Any] = Field(
        description="as given; a listing leaves out `models`, and so does a job that has ended "
        "where all are more than 4 KiB: `models_left_out` is how many they were"
    )
    progress: ProgressOut | None = Field(description="null before the first report")
    result: dict[str, Any] | None = Field(description="once it has succeeded")
    error: JobErrorOut | None = Field(
        description="why it failed or was cancelled; while it is queued or running, why it was "
        "started again"
    )
    attempts: int = Field(
        description="how often it was started, restarts after crashes and outages included"
    )
    cancelling: bool = Field(
        validation_alias="cancel_requested",
        description="a client has cancelled it; it ends as soon as its handler notices",
    )
    created_at: datetime = Field(description="when it was asked for, in UTC")
    not_before: datetime | None = Field(description="the earliest start, if not at once")
    started_at: datetime | None = Field(description="when it was first started")
    finished_at: datetime | None = Field(description="when it ended, in UTC; null before")

    @classmethod
    def of(cls, job: JobRecord) -> JobOut:
        return cls.model_validate(job)

    @classmethod
    def brief(cls, job: JobRecord) -> JobOut:
        """The job without the names of models among its parameters, which may be many."""
        return cls.of(replace(job, parameters=without_models(job.parameters)))


class JobPage(BaseModel):
    items: list[JobOut] = Field(description="the newest first")
    next_cursor: NextCursor


def without_models(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters without the names of models."""
    return {name: value for name, value in parameters.items() if name != "models"}
