"""The request for donors and its checks, and the ranking that a method returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from app.infra.db.database import Reader
from app.infra.deadlines import NEVER, Deadline
from app.kinship.neighborhood import Neighborhood
from app.models.catalog.reader import Subject
from app.models.spaces.records import SpaceRecord
from app.search.request import MAX_K
from modelkin.errors import InvalidParameter
from modelkin.types.kinship import DonorExplanation
from modelkin.types.search import Neighbor
from modelkin.types.vocabulary import Compare

__all__ = [
    "HEAVY_METHODS",
    "METHODS",
    "WEIGHTS",
    "DonorRequest",
    "RankedDonor",
    "DonorRanking",
    "Target",
    "check_request",
]

HEAVY_METHODS = ("idf", "cover", "knn_shapley")
"""Methods that read hundreds of supports, or the attributes of most models."""
METHODS = ("similarity", *HEAVY_METHODS)
WEIGHTS = ("zscore", "similarity", "score")

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DonorRequest:
    """A request for donors; the API documents the fields.

    Attributes:
        weights: one of :data:`WEIGHTS`; None for the method's default.
        neighbors: the number of nearest models that count in the game of ``knn_shapley``.
        include_unrelated: whether donors that are near by chance alone count like all others.
        compare: the blocks of data subspaces that meet; None for the space's default.
    """

    method: str = "similarity"
    k: int = 10
    tags: tuple[str, ...] = ()
    min_similarity: float = 0.0
    exclude: frozenset[str] = frozenset()
    weights: str | None = None
    label: str | None = None
    target_label: str | None = None
    metric: str | None = None
    neighbors: int | None = None
    include_unrelated: bool = False
    compare: Compare | None = None

    @property
    def weighting(self) -> str:
        """The basis of the weights: for a cover each donor's share, else the z-score of its S."""
        if self.weights is not None:
            return self.weights
        return "score" if self.method == "cover" else "zscore"


@dataclass(frozen=True, slots=True)
class Target:
    """The model that is to learn, and the models it may learn from.

    Attributes:
        among: the ids of the models that carry the requested tags, ascending; None for all.
        deadline: beyond it no more models are compared.
    """

    session: Reader
    space: SpaceRecord
    subject: Subject
    neighborhood: Neighborhood
    among: Ids | None
    deadline: Deadline = NEVER


@dataclass(frozen=True, slots=True)
class RankedDonor:
    """A donor, the score by which its method ranks it, and the reasons.

    Attributes:
        score: the score, not negative.
        reason: the reason, without its sentence and the figures that all methods share.
        unrelated: whether it is only as near as chance makes two models.
        floor: the S below which it is unrelated, where kappa is unknown.
        log10_p: the decimal logarithm of its P, where kappa is known.
    """

    neighbor: Neighbor
    score: float
    reason: DonorExplanation
    unrelated: bool = False
    floor: float | None = None
    log10_p: float | None = None

    @property
    def rank(self) -> tuple[float, float, str]:
        """A sort key, best first: by score, then by S, then by name."""
        return -self.score, -self.neighbor.similarity, self.neighbor.model


@dataclass(frozen=True, slots=True)
class DonorRanking:
    """The result of a method.

    Attributes:
        choices: the donors, best first; there may be more than requested.
        considered: the number of models considered.
        left_out: the number of further models that could not be considered.
        whole: whether every support that was needed could be read.
        truncated: whether the deadline passed before all models were compared.
    """

    choices: Sequence[RankedDonor]
    considered: int
    left_out: int = 0
    whole: bool = True
    truncated: bool = False


def check_request(request: DonorRequest) -> None:
    """Raise :class:`InvalidParameter` for values out of range, or that do not go together."""
    for name, value, known in (
        ("method", request.method, METHODS),
        ("weights", request.weighting, WEIGHTS),
    ):
        if value not in known:
            raise InvalidParameter(
                f"{name} must be one of {', '.join(known)}, not {value!r}", field=name
            )
    if not 1 <= request.k <= MAX_K:
        raise InvalidParameter(f"k must be 1 to {MAX_K}, not {request.k}", field="k")
    if request.k + len(request.exclude) > MAX_K:
        raise InvalidParameter(
            f"k and exclude are {request.k} and {len(request.exclude)}, and "
            f"together {MAX_K} at most",
            field="exclude",
        )
    if not 0 <= request.min_similarity <= 1:
        raise InvalidParameter(
            f"min_similarity must be 0 to 1, not {request.min_similarity}", field="min_similarity"
        )
    _check_game(request)


def _check_game(request: DonorRequest) -> None:
    """Labels and metrics are for ``knn_shapley``, which needs exactly one of the two."""
    if request.method != "knn_shapley":
        for name in ("label", "target_label", "metric", "neighbors"):
            if getattr(request, name) is not None:
                raise InvalidParameter(
                    f"{name} is for method=knn_shapley; leave it out with {request.method}",
                    field=name,
                )
        return
    if (request.label is None) == (request.metric is None):
        raise InvalidParameter(
            "method=knn_shapley values donors by an attribute: name it by label= where it should "
            "be the target's, or by metric= where it should be large",
            field="label",
        )
    if request.metric is not None and request.target_label is not None:
        raise InvalidParameter(
            "target_label goes with label=, not with metric=", field="target_label"
        )
    if request.neighbors is not None and not 1 <= request.neighbors <= MAX_K:
        raise InvalidParameter(
            f"neighbors must be 1 to {MAX_K}, not {request.neighbors}", field="neighbors"
        )
