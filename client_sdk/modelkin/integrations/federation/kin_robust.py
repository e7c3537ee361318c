"""``KinRobust``: clients that agree too little with their cluster count less, or not at all.

Each client is compared with the majority of its cluster by the signs of its largest changes
(``modelkin.federation.agreement``). It is left out where the mean of its agreement over the rounds,
each as a share of the median member's, is below a limit. That is a limit and no test of a
hypothesis: values of a network depend on each other, so no level of error is known.

Where signs were tosses of a coin, each for itself, agreement would be 0 with a deviation of
1 / sqrt(K). A round counts only where the median agreement is five such deviations or more.
Nothing here recognises a majority of attackers, nor small changes within those of others.

For n clients of d values, it takes ``9 * share * n * d`` bytes for the signed supports, up to
``40 * d`` bytes for one client's update at a time, and some 2 MB: never ``d * d``.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from statistics import median
from typing import Any, Final, Generic, TypeAlias, TypeVar

from modelkin.errors import InvalidParameter
from modelkin.federation.agreement import SignedSupport, agreements, twins
from modelkin.federation.learngenes.aggregate import real_number
from modelkin.integrations.federation.cluster_means import Model
from modelkin.integrations.federation.node_weights import NodeWeights, RoundMembers, Weights

__all__ = ["KinJudge", "KinRobust", "Learned", "Verdicts"]

log = logging.getLogger("modelkin.integrations")

Id = TypeVar("Id", int, str)

_FEWEST: Final = 3
"""The least ``min_members``: two cannot outvote one."""

_DOUBT: Final = 5.0
"""How many deviations of tossed signs the median agreement needs before anyone is judged:
with the default ``least`` the limit is then more than three of them below it."""

_VOTES: Final = 5
"""The most votes of a round."""


_OTHER_LAYOUT: Final = (
    "its arrays are of another layout than those that it was sent: it is left out"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KinRobust:
    """When a client's update does not count, or counts less.

    Args:
        share: the share of an update's values whose signs are compared, the largest ones.
        least: the least agreement with the cluster, as a share of the median member's. A client
            below it is left out.
        agreed: the median agreement, 0 to 1, below which a round says nothing, since the members
            do not agree with each other; verdicts of earlier rounds then stand.
        memory: the weight of a round beside that of the next one, 0 to 1 without 1.
        min_members: fewer clients of one start are not judged: 3 or more.
        longest: the length of an update, as a multiple of the cluster's median. A longer one is
            weighted as if it were as long as that.
        heaviest: the weight of a client, as a multiple of the median of those that count with it.
            A larger one, such as by claimed examples, counts as that.

    Raises:
        InvalidParameter: an argument is out of its range.
    """

    share: float = 0.1
    least: float = 0.3
    agreed: float = 0.25
    memory: float = 0.9
    min_members: int = 5
    longest: float = 2.0
    heaviest: float = 5.0

    def __post_init__(self) -> None:
        limits = {
            "share": (0 < real_number(self.share) <= 1, "above 0 and at most 1"),
            "least": (0 <= real_number(self.least) < 1, "0 to 1, without 1"),
            "agreed": (0 < real_number(self.agreed) <= 1, "above 0 and at most 1"),
            "memory": (0 <= real_number(self.memory) < 1, "0 to 1, without 1"),
            "min_members": (
                type(self.min_members) is int and self.min_members >= _FEWEST,
                "a whole number, 3 or more: two cannot outvote one",
            ),
            "longest": (1 <= real_number(self.longest) < math.inf, "1 or more"),
            "heaviest": (1 <= real_number(self.heaviest) < math.inf, "1 or more"),
        }
        for each in fields(self):
            right, what = limits[each.name]
            if not right:
                raise InvalidParameter(
                    f"{each.name} must be {what}, not {getattr(self, each.name)!r}", field=each.name
                )

    @classmethod
    def of(cls, robust: Any) -> KinRobust | None:
        """The limits of an option: ``True`` for the usual ones, ``False`` for none.

        Raises:
            InvalidParameter: it is no such option.
        """
        if isinstance(robust, cls):
            return robust
        if type(robust) is not bool:
            raise InvalidParameter(
                f"robust must be True, False or a KinRobust, not {robust!r}", field="robust"
            )
        return cls() if robust else None


@dataclass(frozen=True, slots=True, eq=False)
class Verdicts(Generic[Id]):
    """How much clients count in a round.

    Attributes:
        own: what the weight of a client is multiplied by in its cluster's mean, 0 to 1, of those
            that count less than others.
        common: the same in the mean of all clients.
        reasons: why, by client.
        limits: those of weights; None for none.
    """

    own: Mapping[Id, float] = field(default_factory=dict)
    common: Mapping[Id, float] = field(default_factory=dict)
    reasons: Mapping[Id, str] = field(default_factory=dict)
    limits: KinRobust | None = None

    def rule(self, weigh: NodeWeights, *, common: bool) -> NodeWeights:
        """A rule of weights with these verdicts: of the mean of all, or of the mean of clusters."""
        factors = self.common if common else self.own
        whose = "all clients" if common else "its cluster"

        def weighed(members: Sequence[Any], known: RoundMembers[Any], /) -> Weights[Any]:
            found = weigh(members, known)
            most, usual = self._most({m: w for m, w in found.values.items() if factors.get(m, 1.0)})
            values, down = dict[Any, float](), dict[Any, str]()
            for member, weight in found.values.items():
                values[member] = min(weight, most) * factors.get(member, 1.0)
                whys = [self.reasons[member]] if member in factors else []
                if weight > most and values[member]:
                    whys.append(
                        f"its weight is {weight / usual:.3g} times the median of {whose}, more "
                        f"than {most / usual:g}: it counts as that"
                    )
                if whys:
                    down[member] = "; ".join(whys)
            return Weights(values, {**down, **found.down})

        return weighed

    def _most(self, weights: Mapping[Any, float]) -> tuple[float, float]:
        """The largest weight that counts whole, and the median; few clients have no limit."""
        counted = [weight for weight in weights.values() if weight > 0]
        if self.limits is None or len(counted) < self.limits.min_members:
            return math.inf, 1.0
        usual = median(counted)
        return self.limits.heaviest * usual, usual


@dataclass(slots=True)
class _Evidence:
    """The agreement of a client in all rounds that said something, as a share of the median's."""

    total: float = 0.0
    weight: float = 0.0
    rounds: int = 0

    @property
    def mean(self) -> float:
        return self.total / self.weight if self.weight else 1.0

    def after(self, ratio: float, memory: float) -> _Evidence:
        return _Evidence(self.total * memory + ratio, self.weight * memory + 1, self.rounds + 1)


Learned: TypeAlias = tuple[float, float, int]
"""The weighted sum of a client's agreements, the sum of the weights, and the rounds."""

_Found: TypeAlias = dict[Id, tuple[float, str]]
"""What the weights of members are multiplied by, and why, of those that count less than others."""


class KinJudge(Generic[Id]):
    """The judge of a federation's clients, round by round.

    Args:
        limits: when a client does not count.
        name_of: a client's name, by which clients are ordered.
    """

    def __init__(self, limits: KinRobust, name_of: Callable[[Id], str] = str) -> None:
        self._limits = limits
        self._name_of: Callable[[Id], str] = name_of
        self._evidence: dict[Id, _Evidence] = {}
        self._learned: frozenset[Id] = frozenset()
        self._told_small = False

    @property
    def evidence(self) -> dict[Id, Learned]:
        """What all rounds so far say of each client, for another judge to go on from."""
        return {m: (each.total, each.weight, each.rounds) for m, each in self._evidence.items()}

    def restore(self, evidence: Mapping[Id, Learned]) -> None:
        """Go on from what another judge has learned, with the same limits."""
        self._evidence = {member: _Evidence(*learned) for member, learned in evidence.items()}

    def judge(
        self,
        models: Mapping[Id, Model],
        starts: Mapping[Id, Model],
        clusters: Mapping[int, Sequence[Id]],
    ) -> Verdicts[Id]:
        """Judge the clients of a round, each among its cluster's that began with the same model.

        Clients of smaller clusters, of clusters that do not agree, or of none, are judged among all
        that began with most clients' model. That is for the mean of all alone: nobody leaves the
        mean of a small cluster, whose kin the others need not be. A client that began with another
        model is not judged in this round; earlier verdicts stand.

        Args:
            models: the models that clients sent, of one layout.
            starts: the model that each began with: one object where clients began alike.
            clusters: the clients of each cluster.
        """
        order = sorted(models, key=lambda member: (self._name_of(member), member))
        other = {m: (0.0, _OTHER_LAYOUT) for m in order if not _are_alike(models[m], starts[m])}
        order = [member for member in order if member not in other]
        supports = {m: SignedSupport.of(models[m], starts[m], self._limits.share) for m in order}
        least, own = self._limits.min_members, dict(other)
        self._tell_small(clusters)
        groups = [(c, {m: supports[m] for m in of}) for c, of in _groups(order, starts, clusters)]
        large = [kin for cluster, kin in groups if cluster is not None and len(kin) >= least]
        everyone = {member: supports[member] for member in _begun_alike(order, starts)}
        self._learn_all(large, everyone)
        for kin in large:
            own |= self._judge(kin, kin, "its cluster")
        others = set(order) - {member for kin in large for member in kin}
        common = {m: (0.0, self._why(m, "its kin")) for m in others if self._is_out(m)}
        known = {m for members in clusters.values() if len(members) >= least for m in members}
        own |= {member: found for member, found in common.items() if member in known}
        if len(everyone) >= least:
            common |= self._judge(everyone, others & everyone.keys(), "all clients")
        common |= own
        return Verdicts(
            {member: factor for member, (factor, _) in own.items()},
            {member: factor for member, (factor, _) in common.items()},
            {member: why for member, (_, why) in common.items()},
            self._limits,
        )

    def _tell_small(self, clusters: Mapping[int, Sequence[Id]]) -> None:
        """Log once that nobody leaves the mean of a cluster, where all clusters are small."""
        largest, least = max(map(len, clusters.values()), default=0), self._limits.min_members
        if self._told_small or not 0 < largest < least:
            return
        self._told_small = True
        helps = f"KinRobust(min_members={_FEWEST}) judges clusters of {_FEWEST} or more"
        log.warning(
            "robust leaves nobody out of a cluster's mean: the largest cluster has %d clients, "
            "fewer than min_members=%d%s",
            largest,
            least,
            f"; {helps}" if largest >= _FEWEST else "",
        )

    def _learn_all(
        self,
        large: Sequence[Mapping[Id, SignedSupport]],
        everyone: Mapping[Id, SignedSupport],
    ) -> None:
        """Learn of members among their kin, and of all whose kin say nothing among everyone."""
        learned = {member for kin in large if self._learn(kin, kin) for member in kin}
        if len(everyone) >= self._limits.min_members:
            others = [member for member in everyone if member not in learned]
            learned |= set(others) if self._learn(everyone, others) else set()
        self._learned = frozenset(learned)

    def _judge(
        self, supports: Mapping[Id, SignedSupport], judged: Collection[Id], whose: str
    ) -> _Found[Id]:
        """The factors below 1 of some of a group's members, with reasons."""
        counted = [each.length for m, each in supports.items() if not self._is_out(m)]
        usual = median(counted) if counted else 0.0
        found = _Found[Id]()
        for member in judged:
            length = supports[member].length
            if self._is_out(member):
                found[member] = 0.0, self._why(member, whose)
            elif 0 < self._limits.longest * usual < length:
                factor = self._limits.longest * usual / length
                found[member] = (
                    factor,
                    f"its update is {length / usual:.1f} times as long as the median of {whose}, "
                    f"more than {self._limits.longest:g}: its weight is multiplied by {factor:.3f}",
                )
        return found

    def _learn(self, supports: Mapping[Id, SignedSupport], judged: Collection[Id]) -> bool:
        """Note how far members agree with the majority; whether the round says anything of it."""
        found = self._agreements(supports)
        usual = median(agreement for agreement, _ in found.values())
        size = median(count for _, count in found.values())
        if usual < max(self._limits.agreed, _DOUBT / math.sqrt(max(size, 1))):
            return False
        for member in judged:
            ratio = min(max(found[member][0] / usual, -1.0), 1.0)
            known = self._evidence.get(member, _Evidence())
            self._evidence[member] = known.after(ratio, self._limits.memory)
        return True

    def _agreements(self, supports: Mapping[Id, SignedSupport]) -> dict[Id, tuple[float, int]]:
        """The agreement of each member with the majority of those that are not below the limit.

        Attackers weaken a majority of whom they are a part. So those below the limit lose their
        votes, until no more do.
        """
        voters = {member for member in supports if not self._is_out(member)}
        copies = twins(supports)
        for _ in range(_VOTES):
            found = agreements(supports, voters, copies)
            usual = median(agreement for agreement, _ in found.values())
            limit = self._limits.least * usual if usual > 0 else usual
            kept = {member for member, (agreement, _) in found.items() if agreement >= limit}
            if kept == voters:
                break
            voters = kept
        return found

    def _is_out(self, member: Id) -> bool:
        found = self._evidence.get(member)
        return found is not None and found.mean < self._limits.least

    def _why(self, member: Id, whose: str) -> str:
        found = self._evidence[member]
        rounds = "1 round" if found.rounds == 1 else f"{found.rounds} rounds"
        if member not in self._learned:
            rounds += " before this one, which says nothing of it"
        return (
            f"the signs of its largest changes agree with those of {whose} by {found.mean:.2f} of "
            f"what the median member's do, over {rounds}: less than "
            f"{self._limits.least:g}; tossed signs give 0: it is left out"
        )


def _groups(
    order: Sequence[Id], starts: Mapping[Id, Model], clusters: Mapping[int, Sequence[Id]]
) -> Iterator[tuple[int | None, list[Id]]]:
    """The members of each cluster, and of none, that began with one model."""
    cluster_of = {member: c for c, members in clusters.items() for member in members}
    groups: dict[tuple[int | None, int], list[Id]] = {}
    for member in order:
        groups.setdefault((cluster_of.get(member), id(starts[member])), []).append(member)
    for (cluster, _), members in groups.items():
        yield cluster, members


def _begun_alike(order: Sequence[Id], starts: Mapping[Id, Model]) -> list[Id]:
    """The members that began with the model that most began with."""
    counted = Counter(id(starts[member]) for member in order).most_common(1)
    return [member for member in order for usual, _ in counted if id(starts[member]) == usual]


def _are_alike(model: Model, start: Model) -> bool:
    """Whether two models have the same arrays by name and shape."""
    return {name: each.shape for name, each in model.items()} == {
        name: each.shape for name, each in start.items()
    }
