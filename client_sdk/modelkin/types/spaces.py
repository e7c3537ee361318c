"""What the client returns: frozen values, named and shaped as the service's JSON.

They never read JSON themselves (``client._answers`` does) and never talk to a service; supports and
signatures live in ``core``. What is a table or a matrix has ``to_pandas()`` or ``to_numpy()``.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, ClassVar, Final, Generic, TypeVar, overload

import numpy as np
import numpy.typing as npt

from modelkin.core.layout import Layout
from modelkin.core.similarity.overlap import TensorOverlap
from modelkin.core.sketching.banding import Banding
from modelkin.core.sketching.signature import Signature
from modelkin.core.sketching.sketch import Sketch
from modelkin.core.support import Support
from modelkin.errors import MissingExtra

__all__ = [
    "FREE",
    "UNCHANGED",
    "BulkItem",
    "BulkResult",
    "BulkSummary",
    "ModelInfo",
    "Neighbor",
    "Neighbors",
    "Overlap",
    "Page",
    "Ranking",
    "SignatureSpec",
    "SimilarityMatrix",
    "SpaceInfo",
    "StopList",
    "SupportSize",
    "SupportSizePolicy",
    "TensorOverlap",
    "Unchanged",
    "table",
]

T = TypeVar("T")


class Unchanged(Enum):
    """The type of :data:`UNCHANGED`, apart from ``None`` because ``None`` clears a field."""

    UNCHANGED = "unchanged"

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = Unchanged.UNCHANGED
"""Leave the field as it is: the default of ``update_model``'s ``source`` and ``base_model``."""


@dataclass(frozen=True, slots=True)
class SignatureSpec:
    """How the signatures of a space are made, so that all of them compare.

    Attributes:
        scheme: ``"affine32"`` or ``"fss32"`` for M up to 2^32, ``"affine64"`` beyond.
        num_perm: h, the number of minhashes.
        seed: 0 to 2^32 - 1.
    """

    scheme: str = "affine32"
    num_perm: int = 256
    seed: int = 1


@dataclass(frozen=True, slots=True)
class SupportSizePolicy:
    """What a space was made to ask of the sizes of its supports.

    Attributes:
        policy: ``"free"``; ``"fixed"``, where no support may have more than ``k`` indices; or
            ``"agreed"``, where the median of what the clients reported is told to all of them.
        k: K, where it is fixed; else None.
    """

    policy: str = "free"
    k: int | None = None


FREE: Final = SupportSizePolicy()
"""Every client chooses its own: the policy of spaces that were made without another one."""


@dataclass(frozen=True, slots=True)
class SupportSize:
    """How many indices a support of a space should have.

    Attributes:
        policy: as in :class:`SupportSizePolicy`.
        k: K. None where nobody has reported one yet, and where it is free; to whoever reports a K*
            to a free space, that K*.
        reports: how many clients' K* it is the median of; 0 unless it is agreed.
    """

    policy: str
    k: int | None
    reports: int = 0


@dataclass(frozen=True, slots=True)
class StopList:
    """The indices that are everybody's in a space, which ``method="lsh"`` leaves out.

    Attributes:
        version: 1 for the first; grows with every one that is begun.
        size: how many indices it holds.
        share: of the supports that were counted, how many hold each of them at least.
        models: how many supports were counted: all, up to 1,000.
        computed_at: when.
    """

    version: int
    size: int
    share: float
    models: int
    computed_at: datetime


@dataclass(frozen=True, slots=True)
class SpaceInfo:
    """An index space: the parameters that the supports of its models index.

    Attributes:
        num_parameters: M.
        layout: the tensors, where the space was made with them.
        models: how many models it holds, ``supports + signatures``.
        supports: models with a support.
        signatures: models that sent a signature alone.
        version: grows by one or more with every write to the space.
        banding: how its signatures are cut for ``method="lsh"``; None from a service without.
        support_size: what it asks of the sizes of its supports.
        stop_list: the indices that ``method="lsh"`` leaves out; None where that is nothing.
    """

    name: str
    num_parameters: int
    layout: Layout | None
    signature: SignatureSpec
    models: int
    supports: int
    signatures: int
    version: int
    created_at: datetime
    banding: Banding | None = None
    support_size: SupportSizePolicy = FREE
    stop_list: StopList | None = None


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model as the service knows it: everything about it but its indices.

    Attributes:
        kind: ``"support"``, or ``"signature"`` where the model sent a signature alone.
        support_size: K.
        digest: of the support, ``"sha256:..."``; None for a signature alone.
        revision: 1 for the first content of this name, one more for each other content since.
        version: the version of the space when the model last changed.
        attributes: the caller's own JSON values.
        verified: the signature was computed by the service from the support.
        etag: for ``if_match``, where the answer was of this model alone; a listing carries none.
    """

    space: str
    model: str
    kind: str
    support_size: int
    digest: str | None
    revision: int
    version: int
    tags: tuple[str, ...]
    attributes: Mapping[str, Any] = field(hash=False)
    source: str | None
    base_model: str | None
    verified: bool
    created_at: datetime
    updated_at: datetime
    etag: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class BulkItem:
    """A model for ``put_many``.

    Attributes:
        model: its name.
        content: its support, or a signature alone.
        tags: replace the model's tags; None leaves them as they are.
        attributes: replace the model's attributes; None leaves them as they are.
        sketch: beside a signature; None leaves the one that this signature has.
    """

    model: str
    content: Support | Signature
    tags: Iterable[str] | None = None
    attributes: Mapping[str, Any] | None = field(default=None, hash=False)
    sketch: Sketch | None = None


@dataclass(frozen=True, slots=True)
class BulkResult:
    """What became of one item of ``put_many``.

    Attributes:
        status: ``"created"``; ``"replaced"``, where anything about the model changed;
            ``"unchanged"``; ``"skipped"``, where an earlier run had it acknowledged; ``"failed"``.
        code: why it failed, the service's ``code``: ``"support_exists"`` for one; else None.
        detail: the same for people.
    """

    model: str
    status: str
    code: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class BulkSummary:
    """What became of the items of ``put_many``, counted.

    Attributes:
        failures: the first 1,000 items that failed, in the order in which that was answered.
    """

    created: int
    replaced: int
    unchanged: int
    skipped: int
    failed: int
    failures: tuple[BulkResult, ...]

    @property
    def total(self) -> int:
        """How many items there were."""
        return self.created + self.replaced + self.unchanged + self.skipped + self.failed


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a listing; ``next_cursor`` is None on the last."""

    items: tuple[T, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Neighbor:
    """A model near the one asked for.

    Attributes:
        similarity: S = 2|A n B| / (|A| + |B|), 0 to 1.
        jaccard: J = |A n B| / |A u B|, 0 to 1.
        estimate: ``"exact"``, or what it was estimated from: ``"sketch"``, ``"signature"``.
        standard_error: of ``similarity``; 0 where it is exact.
        shared_indices: |A n B|; None where it is an estimate.
    """

    model: str
    similarity: float
    jaccard: float
    estimate: str
    standard_error: float
    shared_indices: int | None


@dataclass(frozen=True, slots=True)
class Ranking(Sequence[T]):
    """A sequence of rows, best first, which pandas can take as a table."""

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

    def to_pandas(self) -> Any:
        """A ``pandas.DataFrame`` with one row an item and its fields as columns, in the same order.

        Raises:
            MissingExtra: pandas is not installed.
        """
        return table(self.items, self._row)


@dataclass(frozen=True, slots=True)
class Neighbors(Ranking[Neighbor]):
    """The neighbours of a model, best first, ties by name, the model itself left out.

    Attributes:
        items: the neighbours; the object itself is a sequence of them too.
        model: what was asked for; None for a support or signature that is not stored.
        method: how they were found: ``"exact"``, ``"scan"`` or ``"lsh"``.
        candidates: how many models were compared beyond the first, coarse pass.
        degraded: the buckets could not be used and a scan answered, or a stored support could not
            be read and its signature stood in.
        recall: of ``"lsh"``, the share of the models at ``min_similarity`` that it finds, more of
            those beyond; None for the other methods, and where nobody knows.
        truncated: ``"lsh"`` left buckets out that hold too many, so others may be as near.
    """

    _row: ClassVar[type[Any]] = Neighbor
    model: str | None
    method: str
    candidates: int
    degraded: bool
    recall: float | None = None
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Overlap:
    """Two models' supports compared exactly.

    Attributes:
        a, b: the models.
        shared_indices: |A n B|.
        similarity: S, 0 to 1.
        jaccard: J, 0 to 1.
        tensors: tensor by tensor, in the layout's order; None where the space has no layout.
    """

    a: str
    b: str
    shared_indices: int
    similarity: float
    jaccard: float
    tensors: tuple[TensorOverlap, ...] | None

    def to_pandas(self) -> Any:
        """The tensors as a ``pandas.DataFrame``, one row each; empty without a layout.

        Raises:
            MissingExtra: pandas is not installed.
        """
        return table(self.tensors or (), TensorOverlap)


@dataclass(frozen=True, slots=True, eq=False)
class SimilarityMatrix:
    """All pairs of some models.

    Attributes:
        models: n names, in the order asked.
        values: S, shape ``(n, n)``, float64, symmetric, read-only, 1 on the diagonal.
        estimated: models that sent a signature alone: their rows and columns are estimates.
    """

    models: tuple[str, ...]
    values: npt.NDArray[np.float64]
    estimated: tuple[str, ...]

    def to_numpy(self) -> npt.NDArray[np.float64]:
        """A copy of the matrix that may be written to; shape ``(n, n)``, float64."""
        return self.values.copy()

    def to_pandas(self) -> Any:
        """A ``pandas.DataFrame`` with the names as index and columns.

        Raises:
            MissingExtra: pandas is not installed.
        """
        names = list(self.models)
        return _pandas().DataFrame(self.to_numpy(), index=names, columns=names)


def table(rows: Iterable[Any], row_type: type[Any]) -> Any:
    """A ``pandas.DataFrame`` with one row an item and the fields of ``row_type`` as columns.

    Raises:
        MissingExtra: pandas is not installed.
    """
    frame = _pandas().DataFrame
    columns = [f.name for f in dataclasses.fields(row_type)]
    records = [tuple(getattr(row, column) for column in columns) for row in rows]
    return frame.from_records(records, columns=columns)


def _pandas() -> Any:
    try:
        return importlib.import_module("pandas")
    except ImportError as error:
        raise MissingExtra("pandas", "pandas") from error
