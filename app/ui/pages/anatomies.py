"""``/anatomies``: models of any layout, where their tensors come from, and their families."""

from __future__ import annotations

from typing import Annotated, Any, Final, get_args

from fastapi import Query, Request
from fastapi.responses import HTMLResponse

from app.anatomy.families import FamilyService
from app.anatomy.service import AnatomyService
from app.fingerprints.records import StatedBy
from app.fingerprints.service import FingerprintService
from app.infra.http.dependencies import Cursor
from app.infra.http.routing import MODEL
from app.infra.http.services import Service
from app.models.catalog.dependencies import ModelName
from app.tenancy.auth.dependencies import ReadingContext
from app.ui import programs
from app.ui.anatomy_charts import anatomy_picture
from app.ui.family_charts import family_tree
from app.ui.rendering import PageRoutes, render
from modelkin._validation import check_model_name
from modelkin.core.fingerprints.chance import power_of_ten
from modelkin.core.fingerprints.sources import Verdict, words_of
from modelkin.plots.anatomies import colors_of_parents

__all__ = ["routes"]

routes = PageRoutes()

_LISTED: Final = 100
_MOST_KIN: Final = 50
_MOST_TENSORS: Final = 500
"""Tensors that a page lists, in the order of the checkpoint."""
_WORDS: Final = {verdict: words_of(verdict) for verdict in get_args(Verdict)} | {
    "average": "an average",
    "assembled": "assembled",
    "unknown": "nothing found",
}

_Of = Annotated[str, Query(max_length=800)]


def _words() -> dict[str, Any]:
    """The values of all templates here."""
    return {"words": _WORDS, "power": power_of_ten}


@routes.get("/anatomies")
def anatomies(
    context: ReadingContext,
    fingerprints: Service[FingerprintService],
    families: Service[FamilyService],
    request: Request,
    q: Annotated[str, Query(max_length=200)] = "",
    stated_by: StatedBy | None = None,
    cursor: Cursor = None,
) -> HTMLResponse:
    """The models that have a fingerprint, by name."""
    with context.reading() as session:
        page = fingerprints.list(
            session,
            context.tenant,
            limit=_LISTED,
            cursor=cursor,
            prefix=q or None,
            stated_by=stated_by,
        )
        summaries = families.summaries(session, context.tenant, page.items)
    return render(
        request,
        "anatomies.html",
        page=page,
        summaries=summaries,
        prefix=q,
        stated_by=stated_by,
        cursor=cursor,
        **_words(),
    )


@routes.get("/anatomies" + MODEL, turn="heavy")
def anatomy(
    context: ReadingContext,
    fingerprints: Service[FingerprintService],
    anatomies: Service[AnatomyService],
    families: Service[FamilyService],
    request: Request,
    name: ModelName,
) -> HTMLResponse:
    """Where the tensors of a model come from, its kin and its copies."""
    with context.reading() as session:
        record = fingerprints.get(session, context.tenant, name)
        kin = families.kin(session, context.tenant, record, limit=_MOST_KIN)
        found = anatomies.anatomy(session, context.tenant, record, deadline=context.deadline)
    return render(
        request,
        "anatomy.html",
        record=record,
        found=found,
        anatomy=found.anatomy,
        picture=anatomy_picture(found.anatomy, name),
        colors=colors_of_parents(found.anatomy),
        kin={other.name: each for other, each in kin},
        copies=[each for each in found.anatomy.parents if each.verdict == "copy"],
        programs=programs.of_anatomy(request, name),
        **_words(),
    )


@routes.get("/family")
def family(
    context: ReadingContext,
    fingerprints: Service[FingerprintService],
    families: Service[FamilyService],
    request: Request,
    of: _Of,
) -> HTMLResponse:
    """The bases and derivatives of a model; each of them leads to its own."""
    with context.reading() as session:
        record = fingerprints.get(session, context.tenant, check_model_name(of, field="of"))
        found = families.family(session, context.tenant, record)
    return render(
        request,
        "family.html",
        record=record,
        family=found,
        tree=family_tree(found),
        programs=programs.of_anatomy(request, record.name),
        **_words(),
    )


@routes.get("/tensors", turn="heavy")
def tensors(
    context: ReadingContext,
    fingerprints: Service[FingerprintService],
    anatomies: Service[AnatomyService],
    request: Request,
    a: _Of,
    b: _Of,
) -> HTMLResponse:
    """Two models of any layouts, tensor by tensor."""
    with context.reading() as session:
        records = [
            fingerprints.get(session, context.tenant, check_model_name(name, field=field))
            for field, name in (("a", a), ("b", b))
        ]
        found = anatomies.tensors(session, *records)
    listed = found.anatomy.tensors[:_MOST_TENSORS]
    return render(
        request,
        "tensors.html",
        a=records[0],
        b=records[1],
        anatomy=found.anatomy,
        comparison=found.comparison,
        picture=anatomy_picture(found.anatomy, a),
        tensors=listed,
        more_tensors=len(found.anatomy.tensors) - len(listed),
        programs=programs.of_tensors(request, a, b),
        **_words(),
    )
