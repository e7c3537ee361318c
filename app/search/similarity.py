"""Similarity between stored models: one pair in full, or the matrix of many."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from app.infra.db.database import Reader
from app.infra.deadlines import NEVER, Deadline
from app.infra.storage.guarded_maps import intact_maps
from app.models.catalog.reader import ModelReader, Subject
from app.models.catalog.records import ModelRecord
from app.models.catalog.repositories import models, tensor_counts
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories.layouts import find_layout, tensor_sizes
from app.models.subspaces.service import SubspaceService, check_compare
from app.search.comparer import require_layout
from app.search.constants import Constants, SpaceConstants
from app.search.orders import ordered_matrix, require_ordered
from modelkin.core import estimators
from modelkin.core.packed import PackedSupport
from modelkin.core.similarity import chance, overlap
from modelkin.core.similarity.matrix import growth, matrix
from modelkin.core.similarity.ordered import ordered_similarity_to
from modelkin.core.similarity.outside import covered_share, least_covered, overlap_outside
from modelkin.core.sketching.signature import jaccard_estimates
from modelkin.errors import InvalidParameter
from modelkin.types.search import Overlap, SimilarityMatrix
from modelkin.types.vocabulary import Compare, Measure

__all__ = ["MAX_MODELS", "SimilarityService"]

MAX_MODELS = 1000
_ROWS_AT_A_TIME = 50

Floats = npt.NDArray[np.float64]
_NO_VALUES: npt.NDArray[np.unsignedinteger] = np.empty(0, np.uint32)
_Compared: TypeAlias = tuple[Floats, list[int], Sequence[PackedSupport | None]]
"""The values of all pairs, the rows without a support, and the supports of all."""
P = TypeVar("P", PackedSupport, PackedSupport | None)


class SimilarityService:
    """The use cases that compare models with each other."""

    def __init__(
        self, reader: ModelReader, subspaces: SubspaceService, constants: SpaceConstants
    ) -> None:
        self._reader = reader
        self._subspaces = subspaces
        self._constants = constants

    def overlap(
        self,
        session: Reader,
        space: SpaceRecord,
        a: str,
        b: str,
        compare: Compare | None = None,
    ) -> Overlap:
        """Compare two models exactly: tensor by tensor if the space has a layout.

        For data subspaces, return the principal angles of their blocks instead.

        Raises:
            ModelNotFound: there is no such model.
            SupportMissing: one of the models has only a signature.
            InvalidParameter: ``compare`` does not fit the space, or one of the models.
        """
        check_compare(space, compare)
        if space.kind == "subspaces":
            return self._subspaces.overlap(session, space, a, b, compare)
        records = models.get_models(session, space, [a, b])
        layout = find_layout(session, space)
        if layout is None:
            packed = [self._reader.require_packed(space, record) for record in records]
        else:
            packed = [PackedSupport.pack(self._reader.support(space, each)) for each in records]
        subjects = map(Subject, records, [_NO_VALUES] * 2, packed)
        constants = self._constants.of(session, space, *subjects)
        one, other = packed
        found = overlap_outside(one, other, constants.gaps, layout)
        tensors, by_octaves = None, None
        if layout is not None:
            tensors = overlap.by_tensor(one.unpack(), other.unpack(), layout)
        if space.ordered:
            compare_ordered = ordered_similarity_to(one.unpack(), constants.gaps)
            by_octaves = compare_ordered(other.unpack())
        return Overlap(
            a,
            b,
            found.shared,
            found.similarity,
            estimators.jaccard_of(found.similarity),
            tensors,
            found.expected,
            found.kappa,
            note=constants.note(space, estimated=False),
            ordered_similarity=by_octaves,
            constant_tensors=constants.names,
            covered=covered_share(one, other),
        )

    def matrix(
        self,
        session: Reader,
        space: SpaceRecord,
        names: Sequence[str],
        measure: Measure = "similarity",
        compare: Compare | None = None,
        deadline: Deadline = NEVER,
    ) -> SimilarityMatrix:
        """Return S, kappa or the ordered similarity of all pairs, in the order of ``names``.

        The view of the database ends before supports are compared. S is estimated if one of a pair
        has no support; its kappa is NaN then.

        Raises:
            InvalidParameter: no name, more than 1,000 or a repeated name; kappa of a space without
                a layout; or ranks of a space that is not ordered.
            ModelNotFound: one of the models does not exist.
            TooMuch, ClientLeft: the deadline is over, or the client has gone; a matrix has no
                useful part.
        """
        if measure == "kappa":
            require_layout(space, "measure")
        if measure == "ordered":
            require_ordered(space)
        _require_distinct(names)
        check_compare(space, compare)
        if space.kind == "subspaces":
            found = self._subspaces.matrix(session, space, names, compare, deadline)
            return SimilarityMatrix(tuple(names), found, (), measure)
        records = models.get_models(session, space, names)
        require = _Requirement(deadline, len(names))
        constants = self._constants.of(session, space)
        self._reader.fetch(records, deadline.left())
        compute = {
            "similarity": self._similarities,
            "kappa": self._kappas,
            "ordered": self._ordered_similarity,
        }[measure]
        with intact_maps():
            values, estimated, packed = compute(session, space, records, require, constants)
        without = tuple(names[row] for row in estimated)
        caveat = partial_note(constants.note(space, estimated=bool(estimated)), packed)
        note = _note(caveat, len(without) if measure == "kappa" else 0)
        left_out = constants.names
        return SimilarityMatrix(
            tuple(names), values, without, measure, note=note, constant_tensors=left_out
        )

    def _similarities(
        self,
        session: Reader,
        space: SpaceRecord,
        records: Sequence[ModelRecord],
        require: _Requirement,
        constants: Constants,
    ) -> _Compared:
        """S of all pairs; it is estimated for models without a support."""
        packed = _read_supports(
            records, require, partial(self._reader.find_packed, space, mapped=True)
        )
        full = [row for row, support in enumerate(packed) if support is not None]
        estimated = [row for row, support in enumerate(packed) if support is None]
        signatures = self._signatures(session, space, records) if estimated else None
        session.release()
        values = np.eye(len(records))
        if signatures is not None:
            _estimate_rows(signatures, estimated, values, require)
        if full:
            supports = [support for support in packed if support is not None]
            values[np.ix_(full, full)] = matrix(supports, require, constants.gaps)
        return values, estimated, packed

    def _kappas(
        self,
        session: Reader,
        space: SpaceRecord,
        records: Sequence[ModelRecord],
        require: _Requirement,
        constants: Constants,
    ) -> _Compared:
        """Kappa of all pairs; it is NaN for models without a support."""
        sizes = tensor_sizes(session, space)
        assert sizes is not None  # the space has a layout
        counts = _counts(session, space, records, sizes.size)
        values, estimated, packed = self._similarities(session, space, records, require, constants)
        expected = chance.expected_matrix(
            constants.without(counts), sizes.astype(np.float64), require
        )
        full = [row for row, support in enumerate(packed) if support is not None]
        supports = [support for support in packed if support is not None]
        expected[np.ix_(full, full)] *= growth(supports, constants.gaps, require)
        return chance.kappas(values, expected), estimated, packed

    def _ordered_similarity(
        self,
        session: Reader,
        space: SpaceRecord,
        records: Sequence[ModelRecord],
        require: _Requirement,
        constants: Constants,
    ) -> _Compared:
        """The ordered similarity of all pairs; every model has a support."""
        session.release()
        opened = _read_supports(
            records, require, partial(self._reader.require_packed, space, mapped=True)
        )
        return ordered_matrix(opened, require, constants.gaps), [], opened

    def _signatures(
        self, session: Reader, space: SpaceRecord, records: Sequence[ModelRecord]
    ) -> npt.NDArray[np.unsignedinteger]:
        """The values of the models' signatures, shape ``(n, num_perm)``."""
        values = self._reader.values(session, space, [record.id for record in records])
        return np.stack([values[record.id] for record in records])


class _Requirement:
    """Requires time for the rest of a matrix; the error says how many models would fit.

    Args:
        models: the number of models of the matrix.
    """

    def __init__(self, deadline: Deadline, models: int) -> None:
        self._deadline = deadline
        self._models = models

    def __call__(self, done: int, total: int) -> None:
        """Raise :class:`TooMuch` or :class:`ClientLeft` if the computation is to end here."""
        # Pairs grow as the square of models; half as many are a quarter of the work.
        fewer = max(2, int(0.9 * self._models * math.sqrt(done / max(1, total))))
        self._deadline.require(
            f"the matrix of these {self._models} models",
            f"ask for some {min(fewer, self._models // 2 or 1)} models at a time, or for the "
            f"neighbors of each",
        )


def _require_distinct(names: Sequence[str]) -> None:
    """Raise :class:`InvalidParameter` unless there are 1 to ``MAX_MODELS`` distinct names."""
    if not 1 <= len(names) <= MAX_MODELS:
        raise InvalidParameter(
            f"a matrix takes 1 to {MAX_MODELS} models, not {len(names)}", field="models"
        )
    if len(set(names)) != len(names):
        [(twice, _)] = Counter(names).most_common(1)
        raise InvalidParameter(f"models names {twice!r} twice", field="models")


def _read_supports(
    records: Sequence[ModelRecord], require: _Requirement, read: Callable[[ModelRecord], P]
) -> list[P]:
    """The supports of the models; their bytes are checked, so this reads them all."""
    found = []
    for record in records:
        require(0, 1)
        found.append(read(record))
    return found


def _estimate_rows(
    signatures: npt.NDArray[np.unsignedinteger],
    rows: Sequence[int],
    values: Floats,
    require: _Requirement,
) -> None:
    """Fill ``rows``, and the columns of the same models, with estimates from signatures."""
    for done, row in enumerate(rows):
        require(done, len(rows))
        jaccard = jaccard_estimates(signatures, signatures[row])
        values[row, :] = values[:, row] = 2 * jaccard / (1 + jaccard)


def _counts(
    session: Reader, space: SpaceRecord, records: Sequence[ModelRecord], tensors: int
) -> tensor_counts.Counts:
    """The counts by tensor in the models' order, a row of zeros for one without a support.

    The table has the stored dtype and is filled from a few models at a time.
    """
    table = np.zeros((len(records), tensors), tensor_counts.dtype_of(space))
    for begin in range(0, len(records), _ROWS_AT_A_TIME):
        some = records[begin : begin + _ROWS_AT_A_TIME]
        found = tensor_counts.counts_by_id(session, space, [record.id for record in some])
        for row, record in enumerate(some, begin):
            if record.id in found:
                table[row] = found[record.id]
    return table


def partial_note(caveat: str | None, supports: Sequence[PackedSupport | None]) -> str | None:
    """A caveat, and that some models do not have all parameters of their space."""
    share = least_covered(supports)
    if share is None:
        return caveat
    partial = sum(support is not None and bool(support.gaps) for support in supports)
    who = "1 model covers" if partial == 1 else f"{partial} models cover"
    own = (
        f"{who} a part of the space: S and chance of a pair are over what both cover, {share:.1%} "
        f"of the parameters or more"
    )
    return own if caveat is None else f"{caveat}; {own}"


def _note(caveat: str | None, unknown: int) -> str | None:
    """The caveat of the space, and that some models of a matrix of kappa have none."""
    if not unknown:
        return caveat
    without = (
        f"kappa of {unknown} of the models is not known: each sent a signature alone, without the "
        f"indices in each tensor"
    )
    return without if caveat is None else f"{caveat}; {without}"
