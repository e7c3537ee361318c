"""``/family``, ``/relatives`` and ``/duplicates``: what stored models are to each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, get_args

from fastapi import Query, Request, Response
from fastapi.responses import HTMLResponse

from app.anatomy.families import FamilyService
from app.anatomy.overviews import AnatomyOverviews
from app.anatomy.records import Kin
from app.fingerprints.records import FingerprintRecord
from app.fingerprints.service import FingerprintService
from app.infra.db.database import Reader
from app.infra.http.routes import Routes
from app.infra.http.services import Service
from app.infra.spreadsheets import Row
from app.kinship.inbox.service import InboxService
from app.tenancy.auth.dependencies import CallerContext, ReadingContext
from app.ui import programs
from app.ui.family_charts import family_branches, family_tree
from app.ui.files import csv_file
from app.ui.rendering import PageRoutes, render
from modelkin._validation import check_model_name
from modelkin.core.fingerprints.chance import power_of_ten
from modelkin.core.fingerprints.sources import Verdict, words_of

__all__ = ["VERDICTS", "WORDS", "Of", "data", "routes"]

routes = PageRoutes()
data = Routes(include_in_schema=False)
"""The tables as files."""

VERDICTS: Final = {verdict: words_of(verdict) for verdict in get_args(Verdict)} | {
    "average": "an average",
    "assembled": "assembled",
    "unknown": "nothing found",
}
WORDS: Final[dict[str, Any]] = {"words": VERDICTS, "power": power_of_ten}
"""The values of all templates of anatomies and families."""
Of = Annotated[str, Query(max_length=800)]

_LISTED: Final = 100
_AT_ONCE: Final = 1000
"""Relatives of a file that are read at a time."""
_MOST_SKIPPED: Final = 10_000_000
_COLUMNS: Final = (
    *("model", "found", "sentence", "share_of_lines", "share_of_the_others", "log10_p"),
    *("declared", "license", "published", "made_by", "digest"),
)

After = Annotated[int, Query(ge=0, le=_MOST_SKIPPED)]


@routes.get("/family")
def family(
    context: ReadingContext,
    fingerprints: Service[FingerprintService],
    families: Service[FamilyService],
    request: Request,
    of: Of,
) -> HTMLResponse:
    """The bases and derivatives of a model; each of them leads to its own."""
    with context.reading() as session:
        record = _stored(session, context, fingerprints, of)
        found = families.family(session, context.tenant, record)
    return render(
        request,
        "family.html",
        record=record,
        family=found,
        tree=family_tree(found),
        branches=family_branches(found),
        programs=programs.of_anatomy(request, record.name),
        **WORDS,
    )


@routes.get("/relatives")
def relatives(
    context: ReadingContext,
    fingerprints: Service[FingerprintService],
    families: Service[FamilyService],
    request: Request,
    of: Of,
    found: Verdict | None = None,
    after: After = 0,
) -> HTMLResponse:
    """All models with lines in common with one, the nearest first."""
    with context.reading() as session:
        record = _stored(session, context, fingerprints, of)
        counts = families.count_kin(session, context.tenant, record)
        kin = families.kin(
            session,
            context.tenant,
            record,
            limit=_LISTED,
            offset=after,
            verdicts=[found] if found else [],
        )
    total = _total(counts, found)
    return render(
        request,
        "relatives.html",
        record=record,
        kin=kin,
        counts=counts,
        found=found,
        after=after,
        total=total,
        next=after + _LISTED if after + _LISTED < total else None,
        programs=programs.of_anatomy(request, record.name),
        **WORDS,
    )


@data.get("/relatives.csv")
def relatives_file(
    context: ReadingContext,
    fingerprints: Service[FingerprintService],
    families: Service[FamilyService],
    of: Of,
    found: Verdict | None = None,
) -> Response:
    """All of them as CSV."""
    with context.reading() as session:
        record = _stored(session, context, fingerprints, of)
        total = _total(families.count_kin(session, context.tenant, record), found)

    def rows() -> Iterator[Row]:
        for offset in range(0, total, _AT_ONCE):
            with context.reading() as session:
                kin = families.kin(
                    session,
                    context.tenant,
                    record,
                    limit=_AT_ONCE,
                    offset=offset,
                    verdicts=[found] if found else [],
                )
            yield from (_row(record, other, each) for other, each in kin)

    return csv_file(f"{record.name}-relatives", _COLUMNS, rows())


@routes.get("/duplicates")
def duplicates(
    context: ReadingContext,
    overviews: Service[AnatomyOverviews],
    inbox: Service[InboxService],
    request: Request,
    after: After = 0,
) -> HTMLResponse:
    """The models that are copies of each other, the largest groups first."""
    with context.reading() as session:
        groups = overviews.copies(session, context.tenant, limit=_LISTED + 1, offset=after)
        same = [] if after else inbox.same_weights(session, context.tenant, limit=_LISTED)
    return render(
        request,
        "duplicates.html",
        groups=groups[:_LISTED],
        same=same,
        most=_LISTED,
        after=after,
        next=after + _LISTED if len(groups) > _LISTED else None,
        **WORDS,
    )


def _stored(
    session: Reader, context: CallerContext, fingerprints: FingerprintService, of: str
) -> FingerprintRecord:
    return fingerprints.get(session, context.tenant, check_model_name(of, field="of"))


def _total(counts: Mapping[Verdict, int], found: Verdict | None) -> int:
    """How many relatives there are of a verdict, or of any."""
    return counts.get(found, 0) if found else sum(counts.values())


def _row(record: FingerprintRecord, other: FingerprintRecord, kin: Kin) -> Row:
    published = other.facts.published_at
    return {
        "model": other.name,
        "found": VERDICTS[kin.verdict],
        "sentence": kin.sentence,
        "share_of_lines": kin.share,
        "share_of_the_others": kin.share_of_other,
        "log10_p": kin.log10_p,
        "declared": other.name in record.facts.base_models,
        "license": other.facts.license,
        "published": published.isoformat() if published else None,
        "made_by": other.stated_by,
        "digest": other.digest,
    }
