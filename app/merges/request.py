"""The request for a merge, and the plan that follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from modelkin._validation import check_model_name
from modelkin.errors import InvalidParameter
from modelkin.federation.shards.plan import MIN_MEMBERS, Plan, default_shards

__all__ = ["MAX_DEADLINE_S", "MAX_MEMBERS", "MIN_DEADLINE_S", "MergeRequest"]

MAX_MEMBERS: Final = 1000
MIN_DEADLINE_S: Final = 1
MAX_DEADLINE_S: Final = 30 * 24 * 3600
_PIECE_VALUES: Final = 2**20
"""Values of a shard in one cell: a party holds A pieces of 4 MiB at a time, not its model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRequest:
    """A request for a merge; the API documents the fields.

    Attributes:
        members: the names of members; or
        donors_of: the model whose ``k`` best donors they are; or
        clustering: the clustering that has them as ``cluster``.
        aggregators: A; None for 4, or fewer where one absent member would leave too few of them.
        weights: ``"donors"``, ``"examples"``, ``"equal"``, or a weight by name; None for the
            default of these members.
        of: ``"weights"``, the models' weights, or ``"delta"``, their difference from a base that
            all have.
        deadline: seconds that each state lasts at most.
    """

    members: tuple[str, ...] | None = None
    donors_of: str | None = None
    k: int = 10
    clustering: str | None = None
    cluster: int | None = None
    aggregators: int | None = None
    weights: str | Mapping[str, float] | None = None
    of: str = "weights"
    conceal: bool = True
    one_in: int = 1
    min_members: int = MIN_MEMBERS
    deadline: int = 3600

    def checked(self) -> MergeRequest:
        """The request with names in the form that is stored; what depends on the space is open.

        Raises:
            InvalidParameter: fields contradict each other.
            InvalidName: a name cannot be one.
        """
        selections = [self.members, self.donors_of, self.clustering]
        if sum(selection is not None for selection in selections) != 1:
            raise InvalidParameter(
                "name the members, or donors_of, or a clustering: exactly one of them",
                field="members",
            )
        if (self.clustering is None) != (self.cluster is None):
            raise InvalidParameter("clustering and cluster go together", field="cluster")
        if self.one_in > 1 and self.of == "weights":
            raise InvalidParameter(
                'one_in > 1 leaves values out, which only of="delta" can do without',
                field="one_in",
            )
        if self.weights == "donors" and self.donors_of is None:
            raise InvalidParameter("weights='donors' needs donors_of", field="weights")
        members, weights, donors_of = self.members, self.weights, self.donors_of
        if members is not None:
            members = tuple(
                check_model_name(name, field=f"members[{place}]")
                for place, name in enumerate(members)
            )
        if donors_of is not None:
            donors_of = check_model_name(donors_of, field="donors_of")
        if isinstance(weights, Mapping):
            weights = {check_model_name(name, field="weights"): w for name, w in weights.items()}
        return replace(self, members=members, weights=weights, donors_of=donors_of)

    @property
    def weighting(self) -> str | Mapping[str, float]:
        """The kind of the weights: by default the donors' for donors, else by examples."""
        if self.weights is not None:
            return self.weights
        return "examples" if self.donors_of is None else "donors"

    def plan(self, num_parameters: int, members: int) -> Plan:
        """Return the plan for this number of members.

        Raises:
            InvalidParameter: the members are too few or too many, or a field is out of its range.
        """
        if not self.min_members <= members <= MAX_MEMBERS:
            raise InvalidParameter(
                f"{members} members are found, and a merge is of {self.min_members} "
                f"(min_members) to {MAX_MEMBERS}",
                field="members",
            )
        shards = self.aggregators
        if shards is None:
            shards = default_shards(members, self.min_members, num_parameters)
        return Plan(
            num_parameters=num_parameters,
            shards=shards,
            conceal=self.conceal,
            one_in=self.one_in,
            min_members=self.min_members,
            piece_values=_PIECE_VALUES,
        )

    def to_json(self) -> dict[str, Any]:
        """Return all fields, by name."""
        fields = asdict(self)
        fields["members"] = None if self.members is None else sorted(self.members)
        return fields
