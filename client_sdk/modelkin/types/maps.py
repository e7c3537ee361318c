"""Maps of spaces: the places of models in the plane."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from modelkin._moments import Moment
from modelkin._printing import Printed, Table, table_of_rows
from modelkin.types.paging import data_frame
from modelkin.types.vocabulary import SimilaritySource

if TYPE_CHECKING:
    import pandas

__all__ = ["ModelMap"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ModelMap(Printed):
    """The newest map of a space: near models are near each other, and distances say nothing else.

    Attributes:
        id: that of the job that drew it.
        space: whose models were drawn.
        version: that of the space when it was drawn.
        changed_models: how many models were stored or changed since.
        parameters: what was asked for, by name.
        similarity: whether similarities were exact, estimated from signatures, or mixed.
        edges: how many edges the graph of nearest neighbours has, which was laid out.
        parts: how many parts of the graph no edge joins.
        seconds: how many seconds the job took.
        models: the names of the models, in order.
        x, y: the place of each model, which takes about one unit of area.
        constant_tensors: the tensors that no training changed, which similarities leave out.
        covered: the least share of the parameters over which two models were compared; None where
            that is all.
    """

    id: str
    space: str
    version: int
    changed_models: int
    parameters: Mapping[str, Any] = field(hash=False)
    similarity: SimilaritySource
    edges: int
    parts: int
    seconds: float
    created_at: Moment
    models: tuple[str, ...]
    x: tuple[float, ...]
    y: tuple[float, ...]
    constant_tensors: tuple[str, ...] = ()
    covered: float | None = None

    def _table(self) -> Table:
        names = ("space", "parts", "changed_models", "similarity", "created_at")
        title = f"{type(self).__name__} of {len(self.models):,} models"
        return table_of_rows(title, (), 0, ((name, getattr(self, name)) for name in names))

    def to_numpy(self) -> npt.NDArray[np.float64]:
        """The places; shape ``(n, 2)``, float64."""
        return np.stack([self.x, self.y], axis=1).astype(np.float64)

    def to_pandas(self) -> pandas.DataFrame:
        """A ``pandas.DataFrame`` with the columns ``x`` and ``y``, and the names as index.

        Raises:
            MissingExtra: pandas is not installed.
        """
        return data_frame()(self.to_numpy(), index=list(self.models), columns=["x", "y"])
