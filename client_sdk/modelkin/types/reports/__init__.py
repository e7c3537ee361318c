"""Reports: what the models of a tenant are made of, in figures and sentences for others."""

from modelkin.types.reports.findings import (
    ContradictedBase,
    CopyGroup,
    DeclaredLicense,
    LicenseFinding,
    MeasuredBase,
    ReportedModel,
    Saving,
    TakenApart,
    UndeclaredBase,
)
from modelkin.types.reports.report import Report, ReportInfo, ReportPolicy, ReportSize

__all__ = [
    "ContradictedBase",
    "CopyGroup",
    "DeclaredLicense",
    "LicenseFinding",
    "MeasuredBase",
    "Report",
    "ReportInfo",
    "ReportPolicy",
    "ReportSize",
    "ReportedModel",
    "Saving",
    "TakenApart",
    "UndeclaredBase",
]
