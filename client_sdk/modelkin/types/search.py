"""Answers of searches: neighbours, overlaps and similarity matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, overload

import numpy as np
import numpy.typing as npt

from modelkin._printing import Printed, Table, matrix_table
from modelkin.core.similarity.overlap import TensorOverlap
from modelkin.types.paging import data_frame, table
from modelkin.types.vocabulary import Estimate, Measure, NeighborMeasure, UsedSearchMethod

if TYPE_CHECKING:
    import pandas

__all__ = ["Neighbor", "Neighbors", "Overlap", "Ranking", "SimilarityMatrix"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Neighbor:
    """A model similar to the one in the query.

    Attributes:
        similarity: S = 2|A n B| / (|A| + |B|), 0 to 1.
        jaccard: J = |A n B| / |A u B|, 0 to 1.
        estimate: ``"exact"``, or what it was estimated from: ``"sketch"``, ``"signature"``.
        standard_error: the standard error of ``similarity``; 0 where it is exact.
        shared_indices: |A n B|; None where it is an estimate.
        expected: S0, the mean S of two supports drawn at random with as many indices in each
            tensor. None where a side sent only a signature, or the space has no layout; also until
            a service counts the indices of supports that an older version has stored.
        kappa: (S - S0) / (1 - S0), the similarity beyond chance: 0 at chance, 1 for equal supports.
            None likewise, and where chance alone gives S = 1.
        ordered_similarity: the cosine of the indices, weighted by the octaves of their ranks, 0 to
            1; None unless ``measure="ordered"`` was asked.
        covered: the share of the space's parameters that both models have, over which all figures
            are; None where that is all, and where an estimate cannot know it.
        unrelated: whether it is as near as chance makes the nearest of the space's models; where
            chance in each tensor is not known, whether kappa would be below .1 if the space were
            one tensor. None of data subspaces, or from an older service.
        log10_p: the decimal logarithm of the P of so much between unrelated models, which have a
            kappa of .1 at the most; None where chance in each tensor is not known.
        identical: whether its support is the very same as that of the query: a copy, or a model
            that was changed too little to tell. None of data subspaces, or from an older service.
    """

    model: str
    similarity: float
    jaccard: float
    estimate: Estimate
    standard_error: float
    shared_indices: int | None = None
    expected: float | None = None
    kappa: float | None = None
    ordered_similarity: float | None = None
    covered: float | None = None
    unrelated: bool | None = None
    log10_p: float | None = None
    identical: bool | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Ranking(Printed, Sequence[T], Generic[T]):
    """A sequence of rows, best first, with a table of them."""

    _row: ClassVar[type[Any]]
    items: tuple[T, ...]

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        return self.items[index]

    def to_pandas(self) -> pandas.DataFrame:
        """A ``pandas.DataFrame`` with one row an item and its fields as columns, in the same order.

        Raises:
            MissingExtra: pandas is not installed.
        """
        return table(self.items, self._row)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Neighbors(Ranking[Neighbor]):
    """The neighbours of a model, best first, ties by name, the model itself left out.

    Attributes:
        items: the neighbours; the object itself is a sequence of them too.
        model: the model of the query; None for a support or signature that is not stored.
        method: how they were found.
        measure: what ranks them: S, or the ``ordered_similarity`` where it is ``"ordered"``. By the
            latter, all methods but ``"exact"`` rank those that share the most indices.
        candidates: how many models were compared beyond the first, coarse pass.
        degraded: whether a scan answered because the buckets could not be used, or a signature
            stood in for a stored support that could not be read.
        recall: for ``"lsh"``, the share of the models at ``min_similarity`` that it finds. It finds
            more of those beyond. None for the other methods, and where it is not known.
        truncated: others may be as near: ``"lsh"`` left out buckets that hold too many models, or
            the time for the answer was over before all candidates were compared.
        note: a caveat in words: the space does not state the importance of its supports, or the
            model's difference from its base is mostly rounding; else None.
        ties_left_out: how many models may belong to the k nearest, too, and were not compared:
            more than the budget allows are too near to each other for estimates to order them. 0
            where the k nearest are those of ``"exact"``, but for what a scan misses by chance.
        similarity_slack: how far S at rank k may be below that of ``"exact"`` for that reason.
        constant_tensors: the tensors that no training changed, which S and chance leave out.
    """

    _row: ClassVar[type[Any]] = Neighbor
    _first_columns: ClassVar[tuple[str, ...]] = ("model", "ordered_similarity")
    items: tuple[Neighbor, ...]
    model: str | None = None
    method: UsedSearchMethod
    measure: NeighborMeasure = "similarity"
    candidates: int
    degraded: bool
    recall: float | None = None
    truncated: bool = False
    note: str | None = None
    ties_left_out: int = 0
    similarity_slack: float = 0.0
    constant_tensors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BlockAngles:
    """The principal angles between the samples of two clients, of one class or of all.

    Attributes:
        label: the label of the class; None for all samples.
        degrees: ascending, 0 to 90; as many as the smaller block has columns.
    """

    label: int | None
    degrees: tuple[float, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Overlap(Printed):
    """The exact comparison of two models' supports.

    Attributes:
        a, b: the models.
        shared_indices: |A n B|; None of data subspaces.
        similarity: S, 0 to 1.
        jaccard: J, 0 to 1.
        tensors: tensor by tensor, in the layout's order; None where the space has no layout.
        expected: S0, the mean S of two supports drawn at random with as many indices in each
            tensor; None where the space has no layout.
        kappa: (S - S0) / (1 - S0), the similarity beyond chance; None likewise, and where chance
            alone gives S = 1.
        note: a caveat in words: the space does not state the importance of its supports; else None.
        angles: for data subspaces, the principal angles of each block that both have; else None.
        ordered_similarity: the cosine of the indices, weighted by the octaves of their ranks; None
            where the space is not ordered.
        constant_tensors: the tensors that no training changed, which all figures but those of
            ``tensors`` leave out.
        covered: the share of the space's parameters that both models have, over which all figures
            are; None where that is all.
    """

    a: str
    b: str
    shared_indices: int | None
    similarity: float
    jaccard: float
    tensors: tuple[TensorOverlap, ...] | None = None
    expected: float | None = None
    kappa: float | None = None
    note: str | None = None
    angles: tuple[BlockAngles, ...] | None = None
    ordered_similarity: float | None = None
    constant_tensors: tuple[str, ...] = ()
    covered: float | None = None

    def to_pandas(self) -> pandas.DataFrame:
        """The tensors as a ``pandas.DataFrame``, one row each; empty without a layout.

        Raises:
            MissingExtra: pandas is not installed.
        """
        return table(self.tensors or (), TensorOverlap)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SimilarityMatrix(Printed):
    """All pairs of some models.

    Attributes:
        models: n names, in the order of the request.
        values: as ``measure`` says, shape ``(n, n)``, float64, symmetric, read-only, 1 on the
            diagonal. A kappa is NaN where a side sent only a signature, and where chance alone
            gives S = 1.
        estimated: models that sent a signature alone: their rows and columns are estimates.
        measure: what ``values`` are: S for ``"similarity"``, ``"kappa"``, or ``"ordered"`` for the
            cosine of the indices, weighted by the octaves of their ranks.
        note: a caveat in words: the space does not state the importance of its supports; else None.
        constant_tensors: the tensors that no training changed, which S and chance leave out. Of
            some hundred the first are listed, and ``note`` counts them all.
    """

    models: tuple[str, ...]
    values: npt.NDArray[np.float64]
    estimated: tuple[str, ...]
    measure: Measure = "similarity"
    note: str | None = None
    constant_tensors: tuple[str, ...] = ()

    def _table(self) -> Table:
        title = f"{type(self).__name__} of {len(self.models):,} models"
        facts = (("measure", self.measure), ("estimated", self.estimated))
        return matrix_table(title, self.models, self.values, facts, self.note)

    def to_numpy(self) -> npt.NDArray[np.float64]:
        """A copy of the matrix that may be written to; shape ``(n, n)``, float64."""
        return self.values.copy()

    def to_pandas(self) -> pandas.DataFrame:
        """A ``pandas.DataFrame`` with the names as index and columns.

        Raises:
            MissingExtra: pandas is not installed.
        """
        names = list(self.models)
        return data_frame()(self.to_numpy(), index=names, columns=names)
