"""``FederationState``: what a federation knows of its clients, to be continued by another run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from modelkin.core.subspaces.subspace import Subspace
from modelkin.errors import InvalidParameter
from modelkin.integrations.federation.cluster_means import Model
from modelkin.integrations.federation.clustered_rounds import ClusteredRounds
from modelkin.integrations.federation.kin_robust import Learned
from modelkin.integrations.federation.messages import SupportMessage

__all__ = ["FederationState"]


@dataclass(frozen=True, slots=True, eq=False)
class FederationState:
    """What another run needs to continue a federation, and to place newcomers in its clusters.

    Attributes:
        server_round: the last round.
        names: the name of each client, by node.
        clusters: the cluster of each client that is in one.
        arrays: the mean of all.
        cluster_arrays: the model of each cluster.
        num_values: the values of the whole model, of which clients may share a part.
        first: the weights at which supports were taken; None with clusters by data.
        messages: the kept support of each client, at those weights.
        subspaces: the subspace of each client, with clusters by data.
        evidence: what the judge of updates has learned of each client, with ``robust``.
        options: the rules of the run; empty of a run that did not keep them.
    """

    server_round: int
    names: Mapping[int, str]
    clusters: Mapping[int, int]
    arrays: Model
    cluster_arrays: Mapping[int, Model]
    num_values: int
    first: Model | None = None
    messages: Mapping[int, SupportMessage] = field(default_factory=dict)
    subspaces: Mapping[int, Subspace] = field(default_factory=dict)
    evidence: Mapping[int, Learned] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, rounds: ClusteredRounds, server_round: int) -> FederationState:
        """The state after a round."""
        nodes = {node: rounds.history.cluster_of(node) for node in rounds.names.names}
        return cls(
            server_round,
            dict(rounds.names.names),
            {node: cluster for node, cluster in nodes.items() if cluster is not None},
            rounds.arrays,
            dict(rounds.cluster_arrays),
            rounds.num_values,
            rounds.supports.first.weights,
            dict(rounds.supports.first.messages),
            {} if rounds.data is None else dict(rounds.data.subspaces),
            {} if rounds.judge is None else rounds.judge.evidence,
            rounds.rules.options,
        )

    def restore(self, rounds: ClusteredRounds) -> None:
        """Let rounds that have not begun continue after this state.

        Raises:
            InvalidParameter: the state is of clients that were clustered in the other way, or
                another rule was another one; names the first.
        """
        if (self.first is None) is (rounds.data is None):
            raise InvalidParameter(
                "the federation before was clustered in the other way: give the same by",
                field="by",
            )
        for name, value in rounds.rules.options.items():
            if name in self.options and self.options[name] != value:
                raise InvalidParameter(
                    f"the federation before had {name}={self.options[name]!r}, and this one has "
                    f"{name}={value!r}: give the same, or begin anew without the one before",
                    field=name,
                )
        rounds.names.names.update(self.names)
        for node, cluster in self.clusters.items():
            rounds.history.join(node, cluster)
        rounds.arrays = self.arrays
        rounds.cluster_arrays.update(self.cluster_arrays)
        if rounds.judge is not None:
            rounds.judge.restore(self.evidence)
        if rounds.data is not None:
            rounds.data.subspaces.update(self.subspaces)
        elif self.first is not None:
            rounds.supports.first.restore(self.first, self.messages, self.server_round)
