"""``MergeTerms``: on which terms a member takes part in a merge that the service shows.

The service is not trusted with them: it could ask for fewer members, or give one nearly all of the
weight, and so see the values of one.
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
        merge: its name.
        model: of the member.
        examples: that the model was trained on, if that is stated.
        conceal: whether a merge is refused whose aggregators see more than sums.
        min_members: a merge is refused that may average fewer.
    """

    merge: str
    model: str
    examples: int | None
    conceal: bool
    min_members: int

    def check_plan(self, plan: Plan) -> None:
        """Compare what others may see of this member with what the caller accepts.

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
        """Check that values are differences to a base if the merge is of these, as far as is known.

        Args:
            shown: the merge.
            parts: what reads the member's values, and what takes the average.

        Raises:
            InvalidParameter: a base is missing, or is one too many.
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
        """Compare the own weight by examples with what this party said when it joined.

        A service that chose weights could make one member nearly the whole average.

        Raises:
            InvalidParameter: it is another one.
        """
        by_examples = shown.request.get("weights") == "examples" or (
            shown.request.get("weights") is None and shown.request.get("donors_of") is None
        )
        if by_examples and weight is not None and weight != self.examples:
            raise InvalidParameter(
                f"the weight of {self.model!r} is {weight}, and its examples are {self.examples}",
                field="weights",
            )
