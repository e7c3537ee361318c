"""The request for a clustering: the algorithm, its parameters, and the models.

This module decides which parameters go together and for how many models. It resolves once what a
request leaves open, and clusters nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from app.models.spaces.records import SpaceRecord
from app.models.subspaces.service import check_compare
from modelkin.errors import InvalidParameter
from modelkin.types.vocabulary import Compare

__all__ = ["ALGORITHMS", "MAX_MODELS", "MAX_MATRIX_MODELS", "ClusteringPlan", "ClusteringRequest"]

Similarity = Literal["auto", "exact", "signature"]

ALGORITHMS = ("affinity_propagation", "leiden", "agglomerative", "hdbscan")
MAX_MODELS = 100_000
"""The most models of one clustering: comparing all pairs of their signatures takes minutes."""
MAX_MATRIX_MODELS = 5_000
"""Models for an algorithm over the matrix of all pairs: 200 MB, several times over."""
_DEFAULT_NEIGHBORS = 15
"""Nearest neighbours of each model in the graph of Leiden."""
_MAX_MAPPED_SUPPORTS = 20_000
"""Supports that are mapped at a time: each mapping counts towards a limit of the system."""
_MIN_MAPPED_BYTES = 1 << 16
"""Size of a stored support from which on it is mapped, and not read."""
_MAX_READ_BYTES = 1 << 30
"""Bytes of supports that are read into memory."""
_MAX_MATRIX_BYTES = 4e12
"""Bytes of bitmaps that a matrix reads before signatures are used instead: some four minutes."""
_MAX_NEAREST_BYTES = 64e9
"""Bytes that comparing the nearest exactly reads: some seconds."""
_LIST_COST_FACTOR = 16
"""The cost of a byte of an index list, in bytes of a bitmap."""
_MAX_AFFINITY_MODELS = 2_000
"""Models up to which affinity propagation is the default algorithm."""
_CLUSTER_COUNT_OPTIONS = {
    "affinity_propagation": ("preference",),
    "agglomerative": ("n_clusters", "distance_threshold"),
    "leiden": ("resolution",),
    "hdbscan": ("min_cluster_size",),
}
"""The parameters that decide the number of clusters; without them the algorithm does."""
_OPTIONS = {
    "affinity_propagation": ("preference", "damping"),
    "agglomerative": ("n_clusters", "distance_threshold", "linkage"),
    "leiden": ("resolution", "neighbors"),
    "hdbscan": ("min_cluster_size", "min_samples"),
}


@dataclass(frozen=True, slots=True)
class ClusteringPlan:
    """A request for n models, with nothing left open.

    Attributes:
        count: the number of models, n.
        algorithm: the algorithm, one of :data:`ALGORITHMS`.
        options: the given parameters of the algorithm.
        seed: the seed of all random draws.
        similarity: the compared data: supports, signatures, or supports if affordable.
        matrix: whether all pairs are compared and kept; else the nearest models of each model.
        neighbors: the number of neighbours of each model in the graph of Leiden, below n.
        free: whether the algorithm chooses the number of clusters by itself.
    """

    count: int
    algorithm: str
    options: Mapping[str, Any]
    seed: int
    similarity: Similarity
    matrix: bool
    neighbors: int
    free: bool

    def compares_supports(
        self, num_parameters: int, sizes: Sequence[int], max_mapped: int = _MAX_MAPPED_SUPPORTS
    ) -> bool:
        """Whether supports are compared, as far as there are any, and not only signatures.

        Args:
            num_parameters: M.
            sizes: K of each model that has a support.
            max_mapped: supports that may be mapped at a time.

        Raises:
            InvalidParameter: the request demands supports, and they are too many.
        """
        if self.similarity == "signature" or len(sizes) < 2:
            return False
        if self.similarity == "exact":
            if len(sizes) > max_mapped and num_parameters / 8 >= _MIN_MAPPED_BYTES:
                raise InvalidParameter(
                    f"{len(sizes)} supports are more than the {max_mapped} that can be open at a "
                    f"time here: leave similarity at auto, or choose some by tags",
                    field="similarity",
                )
            return True
        mean = sum(sizes) / len(sizes)
        stored = min(num_parameters / 8, 4 * mean)
        if (
            len(sizes) > max_mapped
            if stored >= _MIN_MAPPED_BYTES
            else len(sizes) * stored > _MAX_READ_BYTES
        ):
            return False
        each = min(num_parameters / 8, _LIST_COST_FACTOR * 4 * mean)
        if self.matrix:
            return len(sizes) ** 2 / 2 * each <= _MAX_MATRIX_BYTES
        pairs = 2 * self.neighbors * self.count
        return self.count <= _MAX_MAPPED_SUPPORTS and pairs * each <= _MAX_NEAREST_BYTES


@dataclass(frozen=True, slots=True)
class ClusteringRequest:
    """A request for a clustering.

    Attributes:
        algorithm: one of :data:`ALGORITHMS`; None for the default for the number of models.
        options: the algorithm's own parameters that were given.
        seed: the seed of all random draws.
        similarity: the compared data: supports, signatures, or supports if affordable.
        tags: tags that all of the models carry.
        models: the names of the models; None for all.
        compare: the blocks of data subspaces that meet; None for the space's default.
    """

    algorithm: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    similarity: Similarity = "auto"
    tags: tuple[str, ...] = ()
    models: tuple[str, ...] | None = None
    compare: Compare | None = None

    def resolve(self, count: int) -> ClusteringPlan:
        """Fill in what the request leaves open, for ``count`` models.

        Raises:
            InvalidParameter: the request is invalid, see :meth:`check_for`.
        """
        self.check_for(count)
        algorithm = self._algorithm_for(count)
        return ClusteringPlan(
            count=count,
            algorithm=algorithm,
            options=self.options,
            seed=self.seed,
            similarity=self.similarity,
            matrix=count <= _MAX_AFFINITY_MODELS or algorithm != "leiden",
            neighbors=min(self.options.get("neighbors", _DEFAULT_NEIGHBORS), count - 1),
            free=not set(_CLUSTER_COUNT_OPTIONS[algorithm]) & set(self.options),
        )

    @property
    def scope(self) -> str:
        """A key for the selected models: "" for all, else equal for equal selections."""
        if not self.tags and self.models is None:
            return ""
        models = None if self.models is None else sorted(self.models)
        text = json.dumps([sorted(self.tags), models], ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def check(self) -> None:
        """Raise :class:`InvalidParameter` if the request is invalid for any number of models."""
        if self.algorithm is not None and self.algorithm not in ALGORITHMS:
            raise InvalidParameter(
                f"algorithm must be one of {', '.join(ALGORITHMS)}, not {self.algorithm!r}",
                field="algorithm",
            )
        for name in self.options:
            owner = next(a for a, names in _OPTIONS.items() if name in names)
            if self.algorithm is None:
                raise InvalidParameter(
                    f"{name} is a parameter of {owner}: name the algorithm", field=name
                )
            if owner != self.algorithm:
                raise InvalidParameter(
                    f"{name} is a parameter of {owner}, and this asks for {self.algorithm}, "
                    f"which has {', '.join(_OPTIONS[self.algorithm])}",
                    field=name,
                )
        if {"n_clusters", "distance_threshold"} <= set(self.options):
            raise InvalidParameter(
                "n_clusters and distance_threshold both say where to cut: give one of them",
                field="distance_threshold",
            )

    def check_kind(self, space: SpaceRecord) -> None:
        """Raise :class:`InvalidParameter` for parameters of another kind of space."""
        check_compare(space, self.compare)
        if space.kind == "subspaces" and self.similarity == "signature":
            raise InvalidParameter(
                "data subspaces have no signatures: leave similarity at auto", field="similarity"
            )

    def check_for(self, count: int) -> None:
        """Raise :class:`InvalidParameter` for a request that is invalid for ``count`` models."""
        if count == 0:
            why = "no model matches tags and models" if self.scope else "the space has no model"
            raise InvalidParameter(f"there is nothing to cluster: {why}", field=self._filter)
        if count > MAX_MODELS:
            raise InvalidParameter(
                f"a clustering takes {MAX_MODELS} models at most, and these are {count}: "
                f"choose some by tags",
                field=self._filter or "tags",
            )
        algorithm = self._algorithm_for(count)
        if algorithm != "leiden" and count > MAX_MATRIX_MODELS:
            raise InvalidParameter(
                f"{algorithm} compares all pairs and takes {MAX_MATRIX_MODELS} models at most, "
                f"these are {count}: use leiden, or choose some by tags",
                field="algorithm",
            )
        if self.similarity == "exact" and count > _MAX_MAPPED_SUPPORTS:
            raise InvalidParameter(
                f"at most {_MAX_MAPPED_SUPPORTS} models are compared by their supports, and these "
                f"are {count}: leave similarity at auto, or choose some by tags",
                field="similarity",
            )
        for name in ("n_clusters", "min_cluster_size", "min_samples"):
            if self.options.get(name, 0) > count:
                models = "is one model" if count == 1 else f"are {count} models"
                raise InvalidParameter(
                    f"{name} is {self.options[name]}, and there {models}", field=name
                )

    def to_json(self) -> dict[str, Any]:
        """The given parameters, flat, in the form of the API."""
        given: dict[str, Any] = {}
        if self.algorithm is not None:
            given["algorithm"] = self.algorithm
        given |= {**self.options, "seed": self.seed, "similarity": self.similarity}
        if self.tags:
            given["tags"] = list(self.tags)
        if self.models is not None:
            given["models"] = list(self.models)
        if self.compare is not None:
            given["compare"] = self.compare
        return given

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> ClusteringRequest:
        """The request that :meth:`to_json` wrote."""
        own = {name for names in _OPTIONS.values() for name in names}
        models: Sequence[str] | None = given.get("models")
        return cls(
            algorithm=given.get("algorithm"),
            options={name: value for name, value in given.items() if name in own},
            seed=given.get("seed", 0),
            similarity=given.get("similarity", "auto"),
            tags=tuple(given.get("tags", ())),
            models=None if models is None else tuple(models),
            compare=given.get("compare"),
        )

    def _algorithm_for(self, count: int) -> str:
        if self.algorithm is not None:
            return self.algorithm
        return "affinity_propagation" if count <= _MAX_AFFINITY_MODELS else "leiden"

    @property
    def _filter(self) -> str | None:
        return "models" if self.models is not None else "tags" if self.tags else None
