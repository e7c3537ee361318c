"""Requests for neighbours: the subject, the checks of the request, and the proposed models."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from app.infra.deadlines import Deadline
from app.models.index import cascade
from app.models.spaces.records import SpaceRecord
from app.search.comparer import require_layout
from app.search.contenders import Scanned
from app.search.prepared_query import PreparedQuery
from modelkin.errors import InvalidParameter
from modelkin.types.search import Neighbor
from modelkin.types.vocabulary import NeighborMeasure

__all__ = ["MAX_K", "METHODS", "Proposal", "SearchRequest", "check_kappa", "check_request"]

METHODS = ("auto", "exact", "scan", "lsh")
MAX_K = 1000

_MORE_CANDIDATES = 4
"""Times as many models that signatures propose where a space has constants."""

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A query, with how many neighbours are sought and how near."""

    query: PreparedQuery
    k: int
    min_similarity: float
    deadline: Deadline

    @property
    def measure(self) -> NeighborMeasure:
        """The measure that ranks the neighbours."""
        return "similarity" if self.query.by_ranks is None else "ordered"

    @property
    def own_id(self) -> int | None:
        """The id of the subject, which is not its own neighbour."""
        model = self.query.subject.model
        return None if model is None else model.id

    @property
    def exactly(self) -> bool:
        """Whether candidates are compared by their supports."""
        return self.query.subject.packed is not None

    @property
    def comparison_size(self) -> int:
        """The least number of candidates that are compared; with constants, which blur, twice."""
        size = cascade.comparison_size(
            self.k, exactly=self.exactly, sketched=self.query.sketch is not None
        )
        return 2 * size if self.query.constants else size

    def scan_size(self, models: int) -> int:
        """The number of models that signatures propose; more where constants blur what they say."""
        size = cascade.scan_size(models, self.k)
        return _MORE_CANDIDATES * size if self.query.constants else size

    @property
    def least_of_all(self) -> float:
        """The least S of a neighbour with the constants, which signatures do not leave out."""
        share = self.query.constant_share
        return share + (1 - share) * self.min_similarity

    @property
    def bytes_each(self) -> int:
        """The bytes that one more comparison reads, about."""
        packed = self.query.subject.packed
        return self.query.subject.values.nbytes if packed is None else packed.nbytes

    def similarity_at_k(self, found: Sequence[Neighbor]) -> float:
        """The S at rank k; with fewer than k models, the least S that is asked for."""
        if len(found) < self.k:
            return self.min_similarity
        kth = heapq.nlargest(self.k, (item.similarity for item in found))[-1]
        return max(self.min_similarity, kth)


@dataclass(frozen=True, slots=True)
class Proposal:
    """Candidates: their ids, ascending, the ids of their contents, and S by their signatures.

    Attributes:
        scanned: the scan that proposed them; None if there are no other models.
    """

    ids: Ids
    contents: Ids
    similarity: npt.NDArray[np.float64]
    scanned: Scanned | None = None

    def without(self, model_id: int | None) -> Proposal:
        """The proposal without this model."""
        kept = self.ids != (-1 if model_id is None else model_id)
        return replace(
            self, ids=self.ids[kept], contents=self.contents[kept], similarity=self.similarity[kept]
        )


def check_kappa(space: SpaceRecord, min_kappa: float | None) -> None:
    if min_kappa is None:
        return
    if not -1 <= min_kappa <= 1:
        raise InvalidParameter(f"min_kappa must be -1 to 1, not {min_kappa}", field="min_kappa")
    require_layout(space, "min_kappa")


def check_request(k: int, min_similarity: float, method: str) -> None:
    if not 1 <= k <= MAX_K:
        raise InvalidParameter(f"k must be 1 to {MAX_K}, not {k}", field="k")
    if not 0 <= min_similarity <= 1:
        raise InvalidParameter(
            f"min_similarity must be 0 to 1, not {min_similarity}", field="min_similarity"
        )
    if method not in METHODS:
        raise InvalidParameter(
            f"method must be one of {', '.join(METHODS)}, not {method!r}", field="method"
        )
