"""What donors are asked for, held to what goes together, and what a method answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from app.catalog.reader import Subject
from app.infra.db.database import Reader
from app.kinship.neighborhood import Neighborhood
from app.search.service import MAX_K
from app.spaces.records import SpaceRecord
from modelkin.errors import InvalidParameter
from modelkin.types.kinship import DonorExplanation
from modelkin.types.search import Neighbor

__all__ = ["METHODS", "WEIGHTS", "DonorRequest", "Choice", "Found", "Target", "check"]

METHODS = ("similarity", "idf", "cover", "knn_shapley")
WEIGHTS = ("zscore", "similarity", "score")

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DonorRequest:
    """What donors are asked for; the API describes it.

    Attributes:
        weights: one of :data:`WEIGHTS`; None for what suits the method.
        neighbors: how many nearest count in the game of ``knn_shapley``.
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

    @property
    def weighing(self) -> str:
        """What weights are made of: of a cover what each donor adds, else how its S stands out."""
        if self.weights is not None:
            return self.weights
        return "score" if self.method == "cover" else "zscore"


@dataclass(frozen=True, slots=True)
class Target:
    """Who is to learn, and from among whom.

    Attributes:
        among: the ids of those that carry the tags asked for, ascending; None where all do.
    """

    session: Reader
    space: SpaceRecord
    subject: Subject
    around: Neighborhood
    among: Ids | None


@dataclass(frozen=True, slots=True)
class Choice:
    """A donor, the figure that its method chose it by, and what that rests on.

    Attributes:
        score: not negative.
        reason: without its sentence, and without what is the same for all methods.
    """

    neighbor: Neighbor
    score: float
    reason: DonorExplanation

    @property
    def rank(self) -> tuple[float, float, str]:
        """Sorts the best first: by score, then by S, then by name."""
        return -self.score, -self.neighbor.similarity, self.neighbor.model


@dataclass(frozen=True, slots=True)
class Found:
    """What a method found.

    Attributes:
        choices: best first.
        considered: how many models.
        left_out: how many more could not be.
        whole: every support that was needed could be read.
    """

    choices: Sequence[Choice]
    considered: int
    left_out: int = 0
    whole: bool = True


def check(ask: DonorRequest) -> None:
    """:class:`InvalidParameter` for what is out of range or does not go together."""
    for name, value, known in (
        ("method", ask.method, METHODS),
        ("weights", ask.weighing, WEIGHTS),
    ):
        if value not in known:
            raise InvalidParameter(
                f"{name} must be one of {', '.join(known)}, not {value!r}", field=name
            )
    if not 1 <= ask.k <= MAX_K:
        raise InvalidParameter(f"k must be 1 to {MAX_K}, not {ask.k}", field="k")
    if ask.k + len(ask.exclude) > MAX_K:
        raise InvalidParameter(
            f"k and exclude are {ask.k} and {len(ask.exclude)}, and together {MAX_K} at most",
            field="exclude",
        )
    if not 0 <= ask.min_similarity <= 1:
        raise InvalidParameter(
            f"min_similarity must be 0 to 1, not {ask.min_similarity}", field="min_similarity"
        )
    _check_game(ask)


def _check_game(ask: DonorRequest) -> None:
    """Labels and metrics are for ``knn_shapley``, which needs exactly one of the two."""
    if ask.method != "knn_shapley":
        for name in ("label", "target_label", "metric", "neighbors"):
            if getattr(ask, name) is not None:
                raise InvalidParameter(
                    f"{name} is for method=knn_shapley; leave it out with {ask.method}", field=name
                )
        return
    if (ask.label is None) == (ask.metric is None):
        raise InvalidParameter(
            "method=knn_shapley values donors by an attribute: name it by label= where it should "
            "be the target's, or by metric= where it should be large",
            field="label",
        )
    if ask.metric is not None and ask.target_label is not None:
        raise InvalidParameter(
            "target_label goes with label=, not with metric=", field="target_label"
        )
    if ask.neighbors is not None and not 1 <= ask.neighbors <= MAX_K:
        raise InvalidParameter(
            f"neighbors must be 1 to {MAX_K}, not {ask.neighbors}", field="neighbors"
        )
