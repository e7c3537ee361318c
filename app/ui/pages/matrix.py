"""``/spaces/{space}/matrix``: S of all pairs of some models, beside their tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final

import numpy as np
import numpy.typing as npt
from fastapi import Query, Request
from fastapi.responses import HTMLResponse

from app.infra.db.database import Reader
from app.infra.deadlines import Deadline
from app.infra.http.services import Service
from app.models.catalog.reader import ModelReader
from app.models.catalog.repositories.candidates import candidates_by_name
from app.models.spaces.dependencies import SpaceName
from app.models.spaces.records import SpaceRecord
from app.models.spaces.service import SpaceService
from app.search.similarity import SimilarityService
from app.tenancy.auth.dependencies import ReadingContext
from app.ui.queries import filter_of, terms_of
from app.ui.rendering import PageRoutes, render
from app.ui.tree_cuts import PairChances, held_by_chance, suggest_cut
from modelkin._validation import check_model_name
from modelkin.core.clustering.dendrogram import dendrogram
from modelkin.errors import InvalidParameter
from modelkin.types.search import SimilarityMatrix

__all__ = ["routes"]

routes = PageRoutes()

_MAX_MODELS: Final = 300
"""The most models: with more, a cell is too small to point at."""
_DIGITS: Final = 4

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Choice:
    """The models of a matrix.

    Attributes:
        left_out: whether there are more that were asked for.
    """

    names: list[str]
    left_out: bool


@dataclass(frozen=True, slots=True)
class Row:
    """A model in the order of the tree.

    Attributes:
        nearest: the most similar other model, and S to it.
        at_chance: whether unrelated models may be as near as these two.
    """

    name: str
    group: int
    nearest: str
    similarity: float
    at_chance: bool


@routes.get(
    "/spaces/{space}/matrix",
    turn="heavy",
)
def matrix(
    context: ReadingContext,
    spaces: Service[SpaceService],
    reader: Service[ModelReader],
    similarities: Service[SimilarityService],
    space_name: SpaceName,
    request: Request,
    q: Annotated[str, Query(max_length=400)] = "",
    models: Annotated[str, Query(max_length=60000)] = "",
    cut: Annotated[float | None, Query(ge=0, le=1, allow_inf_nan=False)] = None,
    most: Annotated[int, Query(ge=2, le=_MAX_MODELS)] = _MAX_MODELS,
) -> HTMLResponse:
    """The models that a query finds, ``most`` at most, or those that are named one a line."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        chosen = _named_models(reader, session, space, models) or _found_models(
            reader, session, space, q, most
        )
        names = chosen.names
        found, chances = None, None
        if len(names) > 1:
            found = similarities.matrix(session, space, names, deadline=context.deadline)
            if space.kind == "supports":
                chances = _chances(session, space, similarities, found, context.deadline)
    return render(
        request,
        "matrix.html",
        space=space,
        q=q,
        given=models,
        chosen=chosen,
        matrix=None if found is None else _draw(space, found, cut, chances),
    )


def _named_models(
    reader: ModelReader, session: Reader, space: SpaceRecord, models: str
) -> _Choice | None:
    """The models that are named, one a line; None without a name."""
    lines = filter(None, map(str.strip, models.splitlines()))
    names = [check_model_name(name, field="models") for name in dict.fromkeys(lines)]
    if len(names) > _MAX_MODELS:
        raise InvalidParameter(
            f"a matrix here has {_MAX_MODELS} models at most, not {len(names)}: name fewer, "
            f"or ask POST /v1/spaces/{space.name}/similarity for up to 1,000",
            field="models",
        )
    if len(names) == 1:  # the comparison refuses unknown ones, but takes two or more
        reader.model(session, space, names[0])
    return _Choice(names, left_out=False) if names else None


def _found_models(
    reader: ModelReader, session: Reader, space: SpaceRecord, q: str, most: int
) -> _Choice:
    """The first models that a query finds."""
    page = reader.models(session, space, limit=most, cursor=None, wanted=filter_of(terms_of(q)))
    return _Choice([model.name for model in page.items], page.next_cursor is not None)


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix in the order of its tree.

    Attributes:
        groups: the number of groups at the cut.
        estimated: the number of models with only a signature.
        cut: the S at which the tree is cut.
        chance: the mean S that chance gives two of the models; None where it is not known.
        data: the data that the script draws.
    """

    rows: list[Row]
    groups: int
    estimated: int
    note: str | None
    cut: float
    chance: float | None
    data: dict[str, Any]


def _chances(
    session: Reader,
    space: SpaceRecord,
    similarities: SimilarityService,
    matrix: SimilarityMatrix,
    deadline: Deadline,
) -> PairChances:
    """What chance gives each two models: in each tensor, or over all parameters where no more is
    known.
    """
    kappa = None
    if space.layout_digest is not None:
        kappa = similarities.matrix(
            session, space, matrix.models, measure="kappa", deadline=deadline
        ).values
    found = candidates_by_name(session, space, matrix.models)
    size_of = {candidate.name: float(candidate.support_size) for candidate in found}
    sizes = np.array([size_of.get(name, 0.0) for name in matrix.models])
    unsure = set(matrix.estimated)
    exact = np.array([name not in unsure for name in matrix.models])
    return PairChances.of(
        matrix.values, kappa, sizes, exact, space.num_parameters, space.signature.num_perm
    )


def _draw(
    space: SpaceRecord, matrix: SimilarityMatrix, cut: float | None, chances: PairChances | None
) -> Matrix:
    distances = 1.0 - matrix.values
    tree = dendrogram(distances)
    order = list(tree.order)
    by_chance = [False] * len(tree.joins) if chances is None else held_by_chance(tree, chances)
    num_perm = space.signature.num_perm if matrix.estimated else None
    suggested = suggest_cut(matrix.values, num_perm, tree, by_chance)
    at = min(max(suggested if cut is None else cut, 0.0), 1.0)
    values = matrix.values[np.ix_(order, order)]
    names = [matrix.models[row] for row in order]
    groups = tree.groups(1.0 - at)
    unsure = set(matrix.estimated)
    data = {
        "models": names,
        "values": [row[: place + 1].round(_DIGITS).tolist() for place, row in enumerate(values)],
        "joins": [
            [j.begin, j.middle, j.end, round(j.height, 6), int(by_chance[at])]
            for at, j in enumerate(tree.joins)
        ],
        "estimated": [place for place, name in enumerate(names) if name in unsure],
        "suggested": suggested,
        "chance": None if chances is None else round(chances.mean, _DIGITS),
    }
    at_chance = None if chances is None else ~chances.beyond[np.ix_(order, order)]
    rows = _rows(names, values, groups, at_chance)
    mean = None if chances is None else chances.mean
    return Matrix(rows, len(groups), len(unsure), matrix.note, round(at, 3), mean, data)


def _rows(
    names: list[str], values: Floats, groups: list[range], at_chance: Bools | None
) -> list[Row]:
    others = values.copy()
    np.fill_diagonal(others, -np.inf)
    nearest = others.argmax(axis=1).tolist()
    return [
        Row(
            names[at],
            number,
            names[nearest[at]],
            float(others[at, nearest[at]]),
            at_chance is not None and bool(at_chance[at, nearest[at]]),
        )
        for number, places in enumerate(groups, 1)
        for at in places
    ]
