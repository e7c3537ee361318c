"""A service of the studies' own: supports go up to it, and all that is judged comes back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Final, Self

import numpy as np

from modelkin import Banding, Blinding, Client, Signature, Subspace, Support
from modelkin.types.clusterings import Assignment
from modelkin.types.parameters import ClusteringParameters
from modelkin.types.spaces import SignatureSpec
from modelkin.types.vocabulary import (
    ClusteringAlgorithm,
    DonorMethod,
    DonorWeights,
    Measure,
    NeighborMeasure,
)
from studies.federations import Floats
from studies.measures import Order

__all__ = ["Hub", "HubSpace"]

_TIMEOUT_S: Final = 600.0
"""A busy machine takes its time, and a cell is more than one answer."""


class Hub:
    """A service; by default in a process of its own, whose data go with it.

    It is started by the first study that asks it: some ask nothing.

    Args:
        url: of one that is running.
    """

    def __init__(self, url: str = ":memory:") -> None:
        self._url = url

    @cached_property
    def client(self) -> Client:
        """The client of the service."""
        return Client(self._url, timeout=_TIMEOUT_S, idle_timeout=_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if "client" in self.__dict__:
            self.client.close()

    @contextmanager
    def space(
        self,
        name: str,
        models: Mapping[str, Support | Signature],
        num_parameters: int,
        blinding: Blinding | None = None,
        *,
        banding: Banding | None = None,
        num_perm: int | None = None,
        ordered: bool = False,
    ) -> Iterator[HubSpace]:
        """An index space that has these models, deleted at the end of the block."""
        self.client.ensure_space(
            name,
            num_parameters=num_parameters,
            blinding=blinding,
            banding=banding,
            signature=None if num_perm is None else SignatureSpec(num_perm=num_perm),
            ordered=ordered,
        )
        try:
            self.client.put_many(name, list(models.items()))
            yield HubSpace(self.client, name, list(models))
        finally:
            self.client.spaces.delete(name)

    @contextmanager
    def data_space(
        self, name: str, clients: Mapping[str, Subspace], features: int
    ) -> Iterator[HubSpace]:
        """A space of what clients' data span, deleted at the end of the block."""
        self.client.ensure_space(name, num_parameters=features, kind="subspaces")
        try:
            self.client.put_many(name, list(clients.items()))
            yield HubSpace(self.client, name, list(clients))
        finally:
            self.client.spaces.delete(name)


class HubSpace:
    """The answers of the service about the models of a space, in the order they were put.

    Args:
        client: of the service.
        name: of the space.
        models: their names.
    """

    def __init__(self, client: Client, name: str, models: Sequence[str]) -> None:
        self._client, self._name, self._models = client, name, list(models)
        self._number = {model: number for number, model in enumerate(models)}

    def order(self, measure: NeighborMeasure = "similarity") -> Order:
        """The others of each model, the nearest first, as :func:`studies.measures.ranking`."""
        count = len(self._models)
        rows = np.empty((count, count - 1), np.intp)
        for row, model in enumerate(self._models):
            found = self._client.neighbors(
                self._name, model, k=count - 1, method="exact", measure=measure
            )
            near = [self._number[each.model] for each in found]
            rest = sorted({*range(count)} - {*near, row})  # those that share no index
            rows[row] = [other - (other > row) for other in (*near, *rest)]
        return rows

    def candidates(self, k: int) -> Floats:
        """How many models the service compares to find the k nearest of each by LSH, ``(N,)``."""
        found = (
            self._client.neighbors(self._name, model, k=k, method="lsh") for model in self._models
        )
        return np.array([each.candidates for each in found], np.float64)

    def matrix(self, measure: Measure = "similarity") -> Floats:
        """The similarity of all pairs, ``(N, N)``; estimates where signatures were put."""
        return self._client.similarity(self._name, self._models, measure=measure).to_numpy()

    def donors(self, method: DonorMethod, weights: DonorWeights, k: int) -> Floats:
        """The weights of each model's donors, ``(N, N)``."""
        mixed = np.zeros((len(self._models), len(self._models)))
        for row, model in enumerate(self._models):
            found = self._client.donors(self._name, model, method=method, weights=weights, k=k)
            for donor in found:
                mixed[row, self._number[donor.model]] = donor.weight
        return mixed

    def labels(
        self, algorithm: ClusteringAlgorithm | None = None, clusters: int | None = None
    ) -> Order:
        """The cluster of each model, ``(N,)``, by an algorithm of the service or its default."""
        wanted: ClusteringParameters = {} if clusters is None else {"n_clusters": clusters}
        made = self._client.clusterings.create(self._name, algorithm, **wanted)
        return np.array([made.labels[model] for model in self._models])

    def assigned(self, newcomer: Support | Signature) -> Assignment:
        """The cluster of the newest clustering that a newcomer is in."""
        return self._client.clusterings.assign(self._name, newcomer)
