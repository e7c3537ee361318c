"""``MergeTerms``: the terms on which a member takes part in a merge.

The service is not trusted with the terms: it could ask for fewer members, or give one member nearly
all of the weight, and so see that member's values.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from modelkin.errors import InvalidParameter
from modelkin.federation.shards.plan import Plan
from modelkin.types.merges import Merge

__all__ = ["MergeTerms"]


@dataclass(frozen=True, slots=True)
class MergeTerms:
    """The terms of one member.

    Attributes:
        merge: the merge's name.
        model: the member's model.
        examples: the number of examples that the model was trained on, if stated.
        conceal: whether a merge is refused whose aggregators see more than sums.
        min_members: the least number of members that the member accepts.
    """

    merge: str
    model: str
    examples: int | None
    conceal: bool
    min_members: int

    def check_plan(self, plan: Plan) -> None:
        """Check that the plan shows no more of this member than the caller accepts.

        Raises:
            InvalidParameter: the merge shows more.
        """
        if self.conceal and not plan.conceal:
            raise InvalidParameter(
                f"the aggregators of merge {self.merge!r} see the shards of each member, and not "
                f"sums alone: to take part all the same, give conceal=False (--plain)",
                field="conceal",
            )
        if plan.min_members < self.min_members:
            raise InvalidParameter(
                f"merge {self.merge!r} may average {plan.min_members} members, which show each "
                f"other more: to take part all the same, give min_members={plan.min_members} "
                f"(--min-members {plan.min_members})",
                field="min_members",
            )

    def check_base(self, shown: Merge, parts: Iterable[object]) -> None:
        """Check that values are differences to a base if the merge is of these, as far as known.

        Args:
            shown: the merge.
            parts: the source of the member's values, and the sink of the average.

        Raises:
            InvalidParameter: a base is missing, or must not be given.
        """
        wanted = shown.request.get("of") == "delta"
        for part in parts:
            given = getattr(part, "has_base", wanted)
            if wanted and not given:
                raise InvalidParameter(
                    f"merge {self.merge!r} is of differences: give the base that all members have "
                    f"(--base)",
                    field="base",
                )
            if given and not wanted:
                raise InvalidParameter(
                    f"merge {self.merge!r} is of weights, and not of differences: give no base",
                    field="base",
                )

    def check_weight(self, shown: Merge, weight: float | None) -> None:
        """Check that this party's weight is the number of examples that it stated.

        A service that chose weights could make one member nearly the whole average.

        Raises:
            InvalidParameter: the weights differ.
        """
        by_examples = shown.request.get("weights") == "examples" or (
            shown.request.get("weights") is None and shown.request.get("donors_of") is None
        )
        if by_examples and weight is not None and weight != self.examples:
            raise InvalidParameter(
                f"the weight of {self.model!r} is {weight}, and its examples are {self.examples}",
                field="weights",
            )
