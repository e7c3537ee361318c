"""What a clustering is asked for: the algorithm, its parameters, and the models.

Decides which parameters make sense together and for how many models; it clusters nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from modelkin.errors import InvalidParameter

__all__ = ["ALGORITHMS", "MOST_MODELS", "WHOLE_MATRIX", "ClusteringRequest"]

Similarity = Literal["auto", "exact", "signature"]

ALGORITHMS = ("affinity_propagation", "leiden", "agglomerative", "hdbscan")
MOST_MODELS = 100_000
"""Models of one clustering: all pairs of so many signatures take minutes."""
WHOLE_MATRIX = 5_000
"""Models that an algorithm over the matrix of all pairs takes: 200 MB, several times over."""
_NEIGHBORS = 15
"""Nearest neighbours of each model in the graph of Leiden."""
_MAPPED = 20_000
"""Models whose supports are held at a time: each mapping counts towards a limit of the system."""
_MAPPED_FROM = 1 << 16
"""Bytes of a stored support from which it is mapped, and not read."""
_READ = 1 << 30
"""Bytes of supports that are read at most."""
_MATRIX_WORK = 4e12
"""Bytes of bitmaps that a matrix reads at most before signatures stand in: some four minutes."""
_NEAREST_WORK = 64e9
"""Bytes that comparing the nearest exactly reads at most: some seconds."""
_LIST = 16
"""How many times as long a byte of a list of indices takes as one of a bitmap."""
_SMALL = 2_000
"""Models up to which affinity propagation is the one that is taken where none is named."""
_FREE = {
    "affinity_propagation": ("preference",),
    "agglomerative": ("n_clusters", "distance_threshold"),
    "leiden": ("resolution",),
    "hdbscan": ("min_cluster_size",),
}
"""The parameters that decide how many clusters there are; without them each algorithm does."""
_OWN = {
    "affinity_propagation": ("preference", "damping"),
    "agglomerative": ("n_clusters", "distance_threshold", "linkage"),
    "leiden": ("resolution", "neighbors"),
    "hdbscan": ("min_cluster_size", "min_samples"),
}


@dataclass(frozen=True, slots=True)
class ClusteringRequest:
    """One request for a clustering, as it was made.

    Attributes:
        algorithm: one of :data:`ALGORITHMS`; None for the one that suits the number of models.
        options: the algorithm's own parameters, those that were given.
        seed: of whatever is drawn.
        similarity: what is compared: supports, signatures, or whichever is affordable.
        tags: only models that carry all of them.
        models: only these, by name; None for all.
    """

    algorithm: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    similarity: Similarity = "auto"
    tags: tuple[str, ...] = ()
    models: tuple[str, ...] | None = None

    def algorithm_for(self, count: int) -> str:
        """The algorithm for so many models."""
        if self.algorithm is not None:
            return self.algorithm
        return "affinity_propagation" if count <= _SMALL else "leiden"

    def is_free(self, algorithm: str) -> bool:
        """Whether the algorithm chooses the number of clusters by itself."""
        return not set(_FREE[algorithm]) & set(self.options)

    def needs_matrix(self, count: int) -> bool:
        """Whether all pairs of so many models are compared, and kept."""
        return count <= _SMALL or self.algorithm_for(count) != "leiden"

    def affords_supports(
        self, count: int, num_parameters: int, sizes: Sequence[int], most: int = _MAPPED
    ) -> bool:
        """Whether supports are compared, as far as there are any, and not signatures alone.

        Args:
            count: how many models there are.
            num_parameters: M.
            sizes: K of each model that has a support.
            most: supports that may be mapped at a time.

        Raises:
            InvalidParameter: they have to be, and are too many.
        """
        if self.similarity == "signature" or len(sizes) < 2:
            return False
        if self.similarity == "exact":
            if len(sizes) > most and num_parameters / 8 >= _MAPPED_FROM:
                raise InvalidParameter(
                    f"{len(sizes)} supports are more than the {most} that can be open at a time "
                    f"here: leave similarity at auto, or choose some by tags",
                    field="similarity",
                )
            return True
        mean = sum(sizes) / len(sizes)
        stored = min(num_parameters / 8, 4 * mean)
        if len(sizes) > most if stored >= _MAPPED_FROM else len(sizes) * stored > _READ:
            return False
        each = min(num_parameters / 8, _LIST * 4 * mean)
        if self.needs_matrix(count):
            return len(sizes) ** 2 / 2 * each <= _MATRIX_WORK
        pairs = 2 * self.neighbors_of(count) * count
        return count <= _MAPPED and pairs * each <= _NEAREST_WORK

    def neighbors_of(self, count: int) -> int:
        """Nearest neighbours of each of so many models in the graph of Leiden."""
        neighbors: int = self.options.get("neighbors", _NEIGHBORS)
        return min(neighbors, count - 1)

    @property
    def scope(self) -> str:
        """Which models it is of: "" for all; clusterings of the same others have the same."""
        if not self.tags and self.models is None:
            return ""
        models = None if self.models is None else sorted(self.models)
        text = json.dumps([sorted(self.tags), models], ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def check(self) -> None:
        """:class:`InvalidParameter` for what makes no sense, however many models there are."""
        if self.algorithm is not None and self.algorithm not in ALGORITHMS:
            raise InvalidParameter(
                f"algorithm must be one of {', '.join(ALGORITHMS)}, not {self.algorithm!r}",
                field="algorithm",
            )
        for name in self.options:
            owner = next(a for a, names in _OWN.items() if name in names)
            if self.algorithm is None:
                raise InvalidParameter(
                    f"{name} is a parameter of {owner}: name the algorithm", field=name
                )
            if owner != self.algorithm:
                raise InvalidParameter(
                    f"{name} is a parameter of {owner}, and this asks for {self.algorithm}, "
                    f"which has {', '.join(_OWN[self.algorithm])}",
                    field=name,
                )
        if {"n_clusters", "distance_threshold"} <= set(self.options):
            raise InvalidParameter(
                "n_clusters and distance_threshold both say where to cut: give one of them",
                field="distance_threshold",
            )

    def check_for(self, count: int) -> None:
        """:class:`InvalidParameter` for what cannot be of so many models."""
        if count == 0:
            what = "no model is as tags and models ask" if self.scope else "the space has no model"
            raise InvalidParameter(f"there is nothing to cluster: {what}", field=self._filter)
        if count > MOST_MODELS:
            raise InvalidParameter(
                f"a clustering takes {MOST_MODELS} models at most, and these are {count}: "
                f"choose some by tags",
                field=self._filter or "tags",
            )
        algorithm = self.algorithm_for(count)
        if algorithm != "leiden" and count > WHOLE_MATRIX:
            raise InvalidParameter(
                f"{algorithm} compares all pairs and takes {WHOLE_MATRIX} models at most, these "
                f"are {count}: use leiden, or choose some by tags",
                field="algorithm",
            )
        if self.similarity == "exact" and count > _MAPPED:
            raise InvalidParameter(
                f"at most {_MAPPED} models are compared by their supports, and these are {count}: "
                f"leave similarity at auto, or choose some by tags",
                field="similarity",
            )
        for name in ("n_clusters", "min_cluster_size", "min_samples"):
            if self.options.get(name, 0) > count:
                models = "is one model" if count == 1 else f"are {count} models"
                raise InvalidParameter(
                    f"{name} is {self.options[name]}, and there {models}", field=name
                )

    def to_json(self) -> dict[str, Any]:
        """What was given, flat, as the API takes it."""
        given: dict[str, Any] = {}
        if self.algorithm is not None:
            given["algorithm"] = self.algorithm
        given |= {**self.options, "seed": self.seed, "similarity": self.similarity}
        if self.tags:
            given["tags"] = list(self.tags)
        if self.models is not None:
            given["models"] = list(self.models)
        return given

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> ClusteringRequest:
        """What :meth:`to_json` told."""
        own = {name for names in _OWN.values() for name in names}
        models: Sequence[str] | None = given.get("models")
        return cls(
            algorithm=given.get("algorithm"),
            options={name: value for name, value in given.items() if name in own},
            seed=given.get("seed", 0),
            similarity=given.get("similarity", "auto"),
            tags=tuple(given.get("tags", ())),
            models=None if models is None else tuple(models),
        )

    @property
    def _filter(self) -> str | None:
        return "models" if self.models is not None else "tags" if self.tags else None
