"""Revisions of a model, and how similar each is to the one before and to the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, overload

from modelkin._moments import Moment
from modelkin._printing import Printed
from modelkin.types.paging import table
from modelkin.types.vocabulary import Estimate, ModelKind

if TYPE_CHECKING:
    import pandas

__all__ = ["Revision", "Revisions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """A content that a model has or had, and its temporal self-overlap (paper, section 4.3).

    Attributes:
        revision: the number of the revision; 1 is the first content of the model.
        kind: ``"support"``, or ``"signature"`` where a signature alone was sent.
        digest: the digest of the support; None for a signature alone.
        support_size: K.
        kept: whether ``client.supports.get(space, model, revision=...)`` still answers it.
        self_overlap_previous: J with the revision before, 0 to 1; None of the first that is known.
        similarity_previous: the same as S.
        estimate_previous: ``"exact"``; or ``"signature"``, where one of the two had no support.
        standard_error_previous: the standard error of that similarity; 0 where it is exact.
        self_overlap_first: J with the first revision that is known; the others likewise.
    """

    revision: int
    kind: ModelKind
    digest: str | None = None
    support_size: int
    created_at: Moment
    kept: bool
    self_overlap_previous: float | None = None
    similarity_previous: float | None = None
    estimate_previous: Estimate | None = None
    standard_error_previous: float | None = None
    self_overlap_first: float
    similarity_first: float
    estimate_first: Estimate
    standard_error_first: float


@dataclass(frozen=True, slots=True, repr=False)
class Revisions(Printed, Sequence[Revision]):
    """The revisions of a model, the newest first.

    Attributes:
        items: the revisions; the object itself is a sequence of them too.
        model: the name of the model.
        first_revision: the number of the first that is known, which ``self_overlap_first`` is of.
    """

    _first_columns: ClassVar[tuple[str, ...]] = (
        *("revision", "created_at", "similarity_previous", "similarity_first", "support_size"),
    )
    items: tuple[Revision, ...]
    model: str
    first_revision: int

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, index: int) -> Revision: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Revision, ...]: ...
    def __getitem__(self, index: int | slice) -> Revision | tuple[Revision, ...]:
        return self.items[index]

    def to_pandas(self) -> pandas.DataFrame:
        """A ``pandas.DataFrame`` with one row a revision and its fields as columns.

        Raises:
            MissingExtra: pandas is not installed.
        """
        return table(self.items, Revision)
