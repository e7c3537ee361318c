"""The request for a map: its parameters, and for how many models they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.kinship.clustering.request import ClusteringRequest, Similarity
from app.models.spaces.records import SpaceRecord
from modelkin.errors import InvalidParameter
from modelkin.types.vocabulary import Compare

__all__ = ["MAX_MODELS", "MapRequest"]

MAX_MODELS: Final = 100_000
"""The most models of one map: comparing all pairs of their signatures takes minutes."""
_MIN_MODELS: Final = 2


@dataclass(frozen=True, slots=True)
class MapRequest:
    """A request for a map of all models of a space.

    Attributes:
        neighbors: the number of nearest neighbours of each model in the graph.
        seed: the seed of all random draws.
        similarity: the compared data: supports, signatures, or supports if affordable.
        compare: the blocks of data subspaces that meet; None for the space's default.
    """

    neighbors: int = 15
    seed: int = 0
    similarity: Similarity = "auto"
    compare: Compare | None = None

    def of_models(self) -> ClusteringRequest:
        """The request for a snapshot of the models, and for the nearest of each."""
        return ClusteringRequest(
            "leiden",
            {"neighbors": self.neighbors},
            seed=self.seed,
            similarity=self.similarity,
            compare=self.compare,
        )

    def check(self, space: SpaceRecord, count: int) -> None:
        """Raise :class:`InvalidParameter` if it is not for this space, or for ``count`` models."""
        if count < _MIN_MODELS:
            holds = "one model" if count else "no model"
            raise InvalidParameter(
                f"a map takes {_MIN_MODELS} models or more, and space {space.name!r} has {holds}: "
                f"store some first"
            )
        if count > MAX_MODELS:
            raise InvalidParameter(
                f"a map takes {MAX_MODELS} models at most, and space {space.name!r} has {count}"
            )
        request = self.of_models()
        request.check_kind(space)
        request.check_for(count)

    def to_json(self) -> dict[str, Any]:
        """The parameters, in the form of the API."""
        given = {"neighbors": self.neighbors, "seed": self.seed, "similarity": self.similarity}
        return given if self.compare is None else {**given, "compare": self.compare}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> MapRequest:
        """The request that :meth:`to_json` wrote."""
        return cls(**given)
