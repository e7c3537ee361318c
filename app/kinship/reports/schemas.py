"""The JSON of reports and their policies. A report itself is its own JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import AwareDatetime, BeforeValidator, ConfigDict, Field

from app.infra.http.fields import NextCursor
from app.infra.http.schemas import RequestModel, ResponseModel
from app.kinship.reports.records import ReportPolicyRecord, ReportRecord
from app.kinship.reports.service import Since
from modelkin.types.reports import (
    ContradictedBase,
    CopyGroup,
    DeclaredLicense,
    LicenseFinding,
    ReportedModel,
    Saving,
    TakenApart,
    UndeclaredBase,
)

__all__ = [
    "ReportIn",
    "ReportInfoOut",
    "ReportOut",
    "ReportPage",
    "ReportPolicyIn",
    "ReportPolicyOut",
]

_HOUR_S: Final = 3_600
_YEAR_S: Final = 366 * 86_400
_MONTH_S: Final = 30 * 86_400


EXAMPLE: Final[dict[str, Any]] = {
    "id": "019ad1c1-0000-7000-8000-000000000001",
    "owner": "labs",
    "service": "0.2.0",
    "since": "2026-11-01T10:00:00Z",
    "until": "2026-11-29T21:50:00Z",
    "size": {
        "fingerprints": 163,
        "models": 1,
        "new": 1,
        "contradicted": 0,
        "declared": 1,
        "undeclared": 0,
        "copies": 0,
        "merges": 0,
        "licenses": 1,
        "file_bytes": 14_000_000_000,
        "saved": 4_060_000_000,
    },
    "opening": "labs holds the fingerprints of 163 models. The report is about 1 model: 1 new, and "
    "0 changed or measured again.",
    "headlines": [
        "Declared bases of this model: none is contradicted, of 1 declared base that could be "
        "judged."
    ],
    "notes": ["That nothing is found proves nothing."],
    "contradicted": [],
    "undeclared": [],
    "copies": [],
    "merges": [],
    "license_findings": [
        {
            "model": "org/client-7",
            "license": "apache-2.0",
            "base": "org/base",
            "base_license": "mit",
            "share": 0.58,
            "is_declared": True,
            "kind": "differs",
        }
    ],
    "licenses": [{"license": "apache-2.0", "models": 1}],
    "savings": [
        {
            "model": "org/client-7",
            "base": "org/base",
            "file_bytes": 14_000_000_000,
            "share": 0.58,
            "saved": 4_060_000_000,
        }
    ],
    "models": [
        {
            "model": "org/client-7",
            "is_new": True,
            "stored_at": "2026-11-03T10:00:00Z",
            "stated_by": "hub",
            "parameters": 7_000_000_000,
            "file_bytes": 14_000_000_000,
            "digest": "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            "weights": None,
            "license": "apache-2.0",
            "declared": ["org/base"],
            "verdict": "derived",
            "sentences": ["changed, as by fine-tuning or rounding: 58% of lines unchanged"],
            "bases": [
                {
                    "model": "org/base",
                    "verdict": "derived",
                    "share": 0.58,
                    "log10_p": -2610.0,
                    "is_declared": True,
                    "is_older": True,
                }
            ],
        }
    ],
}


def _moment(value: object) -> datetime:
    if not isinstance(value, str):
        raise ValueError("should be a moment as text, 2026-11-01T10:00:00Z, or `last`")
    return datetime.fromisoformat(value)


Moment = Annotated[AwareDatetime, BeforeValidator(_moment)]


class ReportIn(RequestModel):
    """A report to make."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"since": "2026-11-01T00:00:00Z"}]})

    since: Literal["last"] | Moment | None = Field(
        "last",
        description="the begin of its time: a moment, `last` for the end of the last report's, "
        "which is all models before the first, or null for all models",
    )

    def to_since(self) -> Since:
        return self.since


class ReportSizeOut(ResponseModel):
    fingerprints: int = Field(description="models that have a fingerprint, whenever they came")
    models: int = Field(description="that the report is about: new, changed or measured again")
    new: int = Field(description="those of them that are new")
    contradicted: int = Field(description="declared bases that the measurements speak against")
    declared: int = Field(description="declared bases that were judged at all")
    undeclared: int = Field(description="models with the weights of one that they do not name")
    copies: int = Field(description="models that are copies of others")
    merges: int = Field(description="models that were taken apart")
    licenses: int = Field(description="licences that stand beside another one of a base")
    file_bytes: int = Field(description="of the files of the models, as far as they are known")
    saved: int = Field(description="bytes that storing differences would save, estimated")


class ReportInfoOut(ResponseModel):
    """A report, without its tables."""

    id: str = Field(description="that of the job which made it")
    since: datetime | None = Field(description="the begin of its time; null for all models")
    until: datetime = Field(description="the end of its time")
    size: ReportSizeOut = Field(description="its figures")
    made_by: Literal["request", "policy"] = Field(
        description="`policy` where it was made by itself"
    )

    @classmethod
    def of(cls, report: ReportRecord) -> ReportInfoOut:
        return cls.model_validate(report)


class ReportPage(ResponseModel):
    items: list[ReportInfoOut] = Field(description="the newest first")
    next_cursor: NextCursor


class ReportOut(ResponseModel):
    """A whole report. It is stored as it is answered."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    id: str = Field(description="that of the job which made it")
    owner: str = Field(description="the name of the tenant")
    service: str = Field(description="the version of the service that made it")
    since: datetime | None = Field(description="the begin of its time; null for all models")
    until: datetime = Field(description="the end of its time")
    size: ReportSizeOut = Field(description="its figures")
    opening: str = Field(description="what it is about, for people")
    headlines: list[str] = Field(description="the lines that matter, for people")
    notes: list[str] = Field(description="what it cannot say, or did not look at")
    contradicted: list[ContradictedBase] = Field(
        description="declared bases that the measurements speak against"
    )
    undeclared: list[UndeclaredBase] = Field(description="bases that nobody declared")
    copies: list[CopyGroup] = Field(description="models with the same weights")
    merges: list[TakenApart] = Field(description="averages and assembled models, taken apart")
    license_findings: list[LicenseFinding] = Field(
        description="licences beside those of measured bases"
    )
    licenses: list[DeclaredLicense] = Field(description="how many models declare which licence")
    savings: list[Saving] = Field(description="what storing differences would save")
    models: list[ReportedModel] = Field(description="the models that it is about, by name")


class ReportPolicyIn(RequestModel):
    """How often reports are made, and how many are kept."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"every_seconds": 604_800, "keep": 12}]}
    )

    every_seconds: int = Field(
        _MONTH_S, ge=_HOUR_S, le=_YEAR_S, description="from one report to the next"
    )
    keep: int = Field(
        12, ge=1, le=1000, description="reports that are kept; the oldest are deleted"
    )


class ReportPolicyOut(ResponseModel):
    every_seconds: int = Field(description="from one report to the next")
    keep: int = Field(description="reports that are kept; the oldest are deleted")
    last_at: datetime | None = Field(description="when the last report was started by it")
    next_at: datetime = Field(description="when the next one is due")

    @classmethod
    def of(cls, policy: ReportPolicyRecord) -> ReportPolicyOut:
        return cls.model_validate(policy)
