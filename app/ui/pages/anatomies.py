"""``/anatomies``, ``/tensors``, ``/check``: where the tensors of models of any layout come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Final

from fastapi import Query, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import BeforeValidator

from app.anatomy.families import FamilyService
from app.anatomy.overviews import AnatomyOverviews, Model
from app.anatomy.records import TensorPairs
from app.anatomy.service import AnatomyService
from app.fingerprints.records import StatedBy
from app.fingerprints.service import FingerprintService
from app.infra.http.dependencies import Cursor
from app.infra.http.routes import Routes
from app.infra.http.routing import MODEL
from app.infra.http.services import Service
from app.infra.spreadsheets import Row
from app.models.catalog.dependencies import ModelName
from app.tenancy.auth.dependencies import CallerContext, ReadingContext
from app.ui import programs
from app.ui.anatomy_charts import anatomy_picture
from app.ui.files import csv_file
from app.ui.pages.families import VERDICTS, WORDS, Of
from app.ui.rendering import PageRoutes, render
from modelkin._validation import check_model_name
from modelkin.checkpoints.gguf import forms
from modelkin.core.fingerprints.anatomy import AnatomyVerdict
from modelkin.core.fingerprints.sources import TensorAnatomy
from modelkin.core.matching.network_order import NetworkOrder
from modelkin.plots.anatomies import colors_of_parents

__all__ = ["data", "routes"]

routes = PageRoutes()
data = Routes(include_in_schema=False)
"""The tables as files."""

_LISTED: Final = 100
_MOST_KIN: Final = 50
_MOST_TENSORS: Final = 500
"""Tensors that a page lists, by name."""
_AT_ONCE: Final = 1000
"""Models of a file that are read at a time."""
_COLUMNS: Final = (
    *("model", "found", "sentence", "share_of_lines", "declares", "license", "parameters"),
    *("tensors", "made_by", "stored", "digest"),
)
_TENSOR_COLUMNS: Final = (
    *("tensor", "shape", "there", "shape_there", "share_of_lines", "log10_p", "kappa"),
    "not_compared",
)

Text = Annotated[str, Query(max_length=200)]
_ANY: Final = BeforeValidator(lambda chosen: chosen or None)
"""Reads an empty value, which a form sends where nothing is chosen, as any."""
By = Annotated[StatedBy | None, _ANY]
Verdict = Annotated[AnatomyVerdict | None, _ANY]


@routes.get("/check")
def check(
    context: ReadingContext, fingerprints: Service[FingerprintService], request: Request
) -> HTMLResponse:
    """The page to drop checkpoints on: scripts read them, and ask the API what they are kin to."""
    with context.reading() as session:
        stored = fingerprints.feed(session, context.tenant.id).fingerprints
    return render(request, "check.html", workers=True, stored=stored, forms=forms())


@routes.get("/anatomies")
def anatomies(
    context: ReadingContext,
    fingerprints: Service[FingerprintService],
    overviews: Service[AnatomyOverviews],
    request: Request,
    q: Text = "",
    stated_by: By = None,
    found: Verdict = None,
    cursor: Cursor = None,
) -> HTMLResponse:
    """The models that have a fingerprint, by name."""
    with context.reading() as session:
        page = overviews.models(
            session,
            context.tenant,
            limit=_LISTED,
            cursor=cursor,
            text=q or None,
            stated_by=stated_by,
            verdict=found,
        )
        stored = fingerprints.feed(session, context.tenant.id).fingerprints
    return render(
        request,
        "anatomies.html",
        page=page,
        stored=stored,
        q=q,
        stated_by=stated_by,
        found=found,
        cursor=cursor,
        **WORDS,
    )


@data.get("/anatomies.csv")
def anatomies_file(
    context: ReadingContext,
    overviews: Service[AnatomyOverviews],
    q: Text = "",
    stated_by: By = None,
    found: Verdict = None,
) -> Response:
    """All of them as CSV."""

    def rows() -> Iterator[Row]:
        cursor, more = None, True
        while more:
            with context.reading() as session:
                page = overviews.models(
                    session,
                    context.tenant,
                    limit=_AT_ONCE,
                    cursor=cursor,
                    text=q or None,
                    stated_by=stated_by,
                    verdict=found,
                )
            yield from map(_row, page.items)
            cursor = page.next_cursor
            more = cursor is not None

    return csv_file("anatomies", _COLUMNS, rows())


def _row(model: Model) -> Row:
    record, summary = model.record, model.summary
    sentences = [each.sentence for each in summary.relations] if summary else []
    return {
        "model": record.name,
        "found": VERDICTS[summary.verdict] if summary else "",
        "sentence": "; ".join(sentences),
        "share_of_lines": summary.covered if summary else None,
        "declares": ", ".join(record.facts.base_models),
        "license": record.facts.license,
        "parameters": record.parameters,
        "tensors": record.tensors,
        "made_by": record.stated_by,
        "stored": record.changed_at.isoformat(),
        "digest": record.digest,
    }


@routes.get("/anatomies" + MODEL, turn="heavy")
def anatomy(
    context: ReadingContext,
    fingerprints: Service[FingerprintService],
    anatomies: Service[AnatomyService],
    families: Service[FamilyService],
    overviews: Service[AnatomyOverviews],
    request: Request,
    name: ModelName,
) -> HTMLResponse:
    """Where the tensors of a model come from, its kin and its copies."""
    with context.reading() as session:
        record = fingerprints.get(session, context.tenant, name)
        kin = families.kin(session, context.tenant, record, limit=_MOST_KIN)
        all_kin = sum(families.count_kin(session, context.tenant, record).values())
        model = overviews.model(session, context.tenant, record)
        found = anatomies.anatomy(session, context.tenant, record, deadline=context.deadline)
    return render(
        request,
        "anatomy.html",
        record=record,
        model=model,
        found=found,
        anatomy=found.anatomy,
        picture=anatomy_picture(found.anatomy, name),
        colors=colors_of_parents(found.anatomy),
        all_kin=all_kin,
        kin={other.name: each for other, each in kin},
        copies=[each for each in found.anatomy.parents if each.verdict == "copy"],
        programs=programs.of_anatomy(request, name),
        **WORDS,
    )


@routes.get("/tensors", turn="heavy")
def tensors(
    context: ReadingContext,
    fingerprints: Service[FingerprintService],
    anatomies: Service[AnatomyService],
    request: Request,
    a: Of,
    b: Of,
) -> HTMLResponse:
    """Two models of any layouts, tensor by tensor."""
    found = _pair(context, fingerprints, anatomies, a, b)
    listed = _read(found.anatomy.tensors)[:_MOST_TENSORS]
    return render(
        request,
        "tensors.html",
        a=found.record,
        b=found.other,
        anatomy=found.anatomy,
        comparison=found.comparison,
        picture=anatomy_picture(found.anatomy, a),
        tensors=listed,
        all_tensors=len(found.anatomy.tensors),
        programs=programs.of_tensors(request, a, b),
        **WORDS,
    )


@data.get("/tensors.csv", turn="heavy")
def tensors_file(
    context: ReadingContext,
    fingerprints: Service[FingerprintService],
    anatomies: Service[AnatomyService],
    a: Of,
    b: Of,
) -> Response:
    """All of their tensors as CSV."""
    found = _pair(context, fingerprints, anatomies, a, b)
    return csv_file(f"{a}-{b}", _TENSOR_COLUMNS, map(_tensor_row, _read(found.anatomy.tensors)))


def _read(tensors: Sequence[TensorAnatomy]) -> Sequence[TensorAnatomy]:
    """The tensors in the order in which people read them."""
    return NetworkOrder.of([each.tensor.name for each in tensors]).arrange(tensors)


def _pair(
    context: CallerContext,
    fingerprints: FingerprintService,
    anatomies: AnatomyService,
    a: str,
    b: str,
) -> TensorPairs:
    with context.reading() as session:
        one, other = (
            fingerprints.get(session, context.tenant, check_model_name(name, field=field))
            for field, name in (("a", a), ("b", b))
        )
        return anatomies.tensors(session, one, other)


def _tensor_row(tensor: TensorAnatomy) -> Row:
    source = tensor.sources[0] if tensor.sources else None
    reason = tensor.tensor.reason
    row: Row = {
        "tensor": tensor.tensor.name,
        "shape": _shape(tensor.tensor.shape),
        "not_compared": reason.value if reason else None,
    }
    if source is None:
        return row
    return {
        **row,
        "there": source.tensor.name,
        "shape_there": _shape(source.tensor.shape),
        "share_of_lines": source.share,
        "log10_p": source.log10_p,
        "kappa": source.kappa,
    }


def _shape(sides: Sequence[int]) -> str:
    return " × ".join(map(str, sides))
