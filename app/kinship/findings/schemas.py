"""The JSON of findings, their totals, and acknowledgements."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from app.infra.http.schemas import RequestModel, ResponseModel
from app.kinship.findings.records import FindingPage
from app.kinship.schemas import LineageFindingOut, Verdict
from modelkin.types.reports.audits import LineageFinding

__all__ = ["AcknowledgementIn", "KeptFindingOut", "LineageFindingPage"]

_COUNTS = {
    "consistent": 812,
    "mismatch": 3,
    "inconclusive": 11,
    "unknown_base": 20,
    "undeclared": 7,
    "cycle": 0,
}


class AcknowledgementOut(ResponseModel):
    verdict: Verdict = Field(description="the verdict that was acknowledged")
    base: str | None = Field(
        description="the base that the finding was about: the declared one, else the likely one"
    )
    note: str | None = Field(description="why, for others; null without one")
    made_by: str | None = Field(
        description="the first characters of the key; null where no key is required"
    )
    made_at: datetime = Field(description="when it was acknowledged, in UTC")


class AcknowledgementIn(RequestModel):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"note": "the card names the wrong base"}]}
    )

    note: Annotated[str | None, Field(max_length=500, description="why, for others")] = None


class KeptFindingOut(LineageFindingOut):
    found_at: datetime | None = Field(description="since when the verdict names this base")
    judged_at: datetime | None = Field(description="when it was found last")
    acknowledgement: AcknowledgementOut | None = Field(
        description="who has acknowledged this finding; null for nobody. Another verdict, or one "
        "about another base, is open again"
    )

    @classmethod
    def of(cls, found: LineageFinding) -> KeptFindingOut:
        return cls.model_validate(found)


class FindingTotalsOut(ResponseModel):
    found: dict[Verdict, int] = Field(
        description="findings by verdict, acknowledged ones included; those of `base_model` alone "
        "where that is given, whatever else narrows the page",
        examples=[_COUNTS],
    )
    acknowledged: dict[Verdict, int] = Field(
        description="of these, those that are acknowledged", examples=[dict.fromkeys(_COUNTS, 0)]
    )
    pending: int = Field(
        description="models that were not judged yet, so that their finding is not among these"
    )
    outdated: int = Field(
        description="models whose verdict may have changed, and that will be judged again"
    )


class LineageFindingPage(ResponseModel):
    items: list[KeptFindingOut] = Field(description="what matters first")
    next_cursor: str | None = Field(description="null at the last page")
    totals: FindingTotalsOut = Field(description="counts by verdict, over all pages")

    @classmethod
    def of(cls, found: FindingPage) -> LineageFindingPage:
        values: Any = found
        return cls.model_validate(values)
