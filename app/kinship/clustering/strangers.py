"""Clusters without strangers: what holds a cluster together is beyond chance.

A clustering has the best of many cuts, and where nothing stands out it is one cluster of all.
Neither says that members are kin. So the members of a cluster have to be connected by pairs that
are nearer than unrelated models (:mod:`modelkin.core.similarity.strangers`), with all pairs of the
clustering as comparisons; else it comes apart into what is connected.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from app.kinship.clustering.distances import ModelDistances
from app.kinship.clustering.request import ClusteringPlan
from modelkin.core.clustering.clustering import NOISE, compact
from modelkin.core.kinship.lineage import MIN_KIN_KAPPA
from modelkin.core.similarity.constants import AT_CHANCE
from modelkin.core.similarity.distances import Distances
from modelkin.core.similarity.nearest import Nearest
from modelkin.core.similarity.pair_chance import PairChance
from modelkin.core.similarity.strangers import MAX_P

__all__ = ["NO_JUDGE", "ClusterJudge", "ConnectedPart", "Connections", "Judged"]

Rows = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_AT_A_TIME: Final = 256
"""Members that are compared with all others of their cluster at a time."""
_UNKNOWN: Final = -1
_MOST_COMPARED: Final = 50
"""The members of a cluster whose mean kappa is measured."""
_OBEYED: Final = ("n_clusters", "distance_threshold")
"""Parameters that ask for clusters as such; others only tune what is sought."""


@dataclass(frozen=True, slots=True)
class ConnectedPart:
    """Members of a cluster that are connected beyond chance.

    Attributes:
        members: rows, ascending.
        log10_p: the decimal logarithm of the P of the weakest link that was needed; None of a
            single model, and where chance is not known.
    """

    members: Rows
    log10_p: float | None


class Connections:
    """The links between models that are beyond chance.

    Args:
        chance: the chance of all pairs.
        distances: 1 - S of all pairs.
        near: the nearest models of each, where there are too many to compare all pairs with chance;
            None to do so.
    """

    def __init__(self, chance: PairChance, distances: Distances, near: Nearest | None) -> None:
        self.known = chance.known
        self._chance = chance
        self._distances = distances
        self._near = near

    def parts(self, members: Rows) -> list[ConnectedPart]:
        """The connected parts of a cluster, each once."""
        known = members[self.known[members]]
        if not known.size:
            return [ConnectedPart(members, None)]
        found = [*(self._parts(known) if self._near is None else self._parts_of_near(known))]
        return self._with_unknown(members, found) if known.size < members.size else found

    def mean_kappa(self, members: Rows) -> float | None:
        """The mean S beyond chance of pairs of members, some of them; None where none is known."""
        known = members[self.known[members]]
        if known.size < 2:
            return None
        some = known[:: -(-known.size // _MOST_COMPARED)]
        similarity = 1.0 - self._distances.block(some, some)
        found = self._chance.kappas(some, some, similarity)
        pairs = found[~np.eye(some.size, dtype=np.bool_) & ~np.isnan(found)]
        return float(pairs.mean()) if pairs.size else None

    def _parts(self, left: Rows) -> Iterator[ConnectedPart]:
        """Compare all pairs, except those within what is connected already."""
        while left.size:
            seeds = left[:_AT_A_TIME]
            linked = self._chance.is_beyond(self._between(seeds, left))
            linked[np.arange(seeds.size), np.searchsorted(left, seeds)] = False
            lonely = ~linked.any(axis=1)
            yield from (ConnectedPart(np.array([row]), None) for row in seeds[lonely])
            left = np.setdiff1d(left, seeds[lonely], assume_unique=True)
            for seed in seeds[~lonely]:
                at = int(np.searchsorted(left, seed))
                if at < left.size and left[at] == seed:
                    part, left = self._spread(seed, np.delete(left, at))
                    yield part

    def _spread(self, seed: int, left: Rows) -> tuple[ConnectedPart, Rows]:
        """All that is connected with a model among others, and those that are left."""
        found, frontier = np.array([seed]), np.array([seed])
        weakest = -np.inf
        while frontier.size and left.size:
            some, frontier = frontier[:_AT_A_TIME], frontier[_AT_A_TIME:]
            best = self._between(some, left).min(axis=0)
            joined = self._chance.is_beyond(best)
            weakest = max(weakest, best[joined].max(initial=-np.inf))
            frontier = np.concatenate([frontier, left[joined]])
            found, left = np.concatenate([found, left[joined]]), left[~joined]
        return ConnectedPart(np.sort(found), float(weakest)), left

    def _parts_of_near(self, members: Rows) -> Iterator[ConnectedPart]:
        """Connect near pairs first, and then one model of each part with one of each other."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        a, b, log10_p = self._near_links(members)
        graph = coo_array((np.ones(a.size), (a, b)), shape=(members.size, members.size))
        count, part_of = connected_components(graph, directed=False)
        order = np.argsort(part_of, kind="stable")
        groups = np.split(members[order], np.cumsum(np.bincount(part_of, minlength=count))[:-1])
        weakest = np.full(count, -np.inf)
        np.maximum.at(weakest, part_of[a], log10_p)
        by_first = {int(group[0]): at for at, group in enumerate(groups) if group.size > 1}
        yield from (ConnectedPart(group, None) for group in groups if group.size == 1)
        for joined in self._parts(np.array(sorted(by_first), np.int64)):
            own = [by_first[first] for first in joined.members.tolist()]
            links = [float(weakest[at]) for at in own]
            links += [] if joined.log10_p is None else [joined.log10_p]
            yield ConnectedPart(np.sort(np.concatenate([groups[at] for at in own])), max(links))

    def _near_links(self, members: Rows) -> tuple[Rows, Rows, Floats]:
        """The pairs of near members beyond chance, by their places among these, and their P."""
        assert self._near is not None
        place = np.full(len(self._distances), _UNKNOWN, np.int64)
        place[members] = np.arange(members.size)
        ends: list[tuple[Rows, Rows, Floats]] = []
        for begin in range(0, members.size, _AT_A_TIME):
            some = members[begin : begin + _AT_A_TIME]
            others = self._near.rows[some]
            log10_p = self._chance.log10_ps_of_rows(some, others, 1.0 - self._near.distances[some])
            kept = self._chance.is_beyond(log10_p) & (place[others] != _UNKNOWN)
            row, column = np.nonzero(kept)
            ends.append((begin + row, place[others[row, column]], log10_p[row, column]))
        a, b, log10_ps = zip(*ends, strict=True)
        return np.concatenate(a), np.concatenate(b), np.concatenate(log10_ps)

    def _with_unknown(self, members: Rows, parts: list[ConnectedPart]) -> list[ConnectedPart]:
        """Each model of unknown chance in the part of its nearest, if that is beyond the floor."""
        part_of = {int(row): at for at, part in enumerate(parts) for row in part.members}
        unknown = members[~self.known[members]].tolist()
        nearest = {row: self._nearest(row, members) for row in unknown}
        joining: dict[int, list[int]] = {}
        for row in unknown:
            way, at = set[int](), row
            while at is not None and at not in part_of and at not in way:
                way.add(at)
                at = nearest[at]
            if at is None or at not in part_of:
                end = len(parts)
                parts.append(ConnectedPart(np.array([], np.int64), None))
            else:
                end = part_of[at]
            part_of.update(dict.fromkeys(way, end))
            joining.setdefault(end, []).extend(way)
        return [
            ConnectedPart(
                np.unique(np.concatenate([part.members, joining.get(at, [])])).astype(np.int64),
                part.log10_p,
            )
            for at, part in enumerate(parts)
        ]

    def _nearest(self, row: int, members: Rows) -> int | None:
        """The nearest other member of a model of unknown chance; None if it is at the floor."""
        if self._near is None:
            others, far = members, self._distances.block(np.array([row]), members)[0]
        else:
            others, far = self._near.rows[row], self._near.distances[row]
        far = np.where((others == row) | ~np.isin(others, members), np.inf, far)
        at = int(far.argmin())
        other, similarity = int(others[at]), 1.0 - float(far[at])
        return other if self._chance.is_beyond_floor(row, other, similarity) else None

    def _between(self, rows: Rows, columns: Rows) -> Floats:
        similarity = 1.0 - self._distances.block(rows, columns)
        return self._chance.log10_ps(rows, columns, similarity)


@dataclass(frozen=True, slots=True)
class Judged:
    """Clusters after they were held against chance.

    Attributes:
        labels: cluster ids 0 to k - 1, the largest cluster first, -1 for no cluster.
        log10_p: of each cluster, as of :class:`ConnectedPart`; 0 of one that is not connected and
            was asked for.
        kappa: the mean S beyond chance of the pairs of each cluster; None of a single model, and
            where chance is not known.
        note: what is to be said of it; None for nothing.
    """

    labels: Rows
    log10_p: tuple[float | None, ...]
    kappa: tuple[float | None, ...]
    note: str | None


class ClusterJudge:
    """Takes clusters apart that nothing but chance holds together.

    Args:
        chance: the chance of all pairs; None where it is not known.
        untested: why it is not known; None where it is.
        weights: whether supports are of weights, where kappa tells what a base leaves.
    """

    def __init__(
        self,
        chance: PairChance | None,
        untested: str | None = None,
        *,
        weights: bool = False,
    ) -> None:
        self._weights = weights
        self._chance = chance
        self._untested = untested

    def judge(self, labels: Rows, pairwise: ModelDistances, plan: ClusteringPlan) -> Judged:
        """Hold clusters against chance.

        A number of clusters, or a distance between them, is obeyed: then the note says which are
        not kin.
        """
        sizes = np.bincount(labels[labels != NOISE])
        if self._chance is None:
            said = self._untested if sizes.max(initial=0) > 1 else None
            return Judged(labels, *((None,) * sizes.size,) * 2, said)
        near = None if pairwise.matrix is not None else pairwise.near
        connections = Connections(self._chance, pairwise.distances, near)
        parts = [connections.parts(np.flatnonzero(labels == each)) for each in range(sizes.size)]
        asked = next((name for name in _OBEYED if name in plan.options), None)
        if asked is None:
            labels, log10_p, said = self._apart(labels, parts, plan)
        else:
            log10_p = tuple(of[0].log10_p if len(of) == 1 else 0.0 for of in parts)
            said = _obeyed(sum(len(of) > 1 for of in parts), len(parts), asked)
        kappa = tuple(
            connections.mean_kappa(np.flatnonzero(labels == cluster))
            for cluster in range(len(log10_p))
        )
        notes = said, self._faint(kappa, log10_p), self._unknown()
        return Judged(labels, log10_p, kappa, "; ".join(filter(None, notes)) or None)

    def _apart(
        self, labels: Rows, parts: Sequence[Sequence[ConnectedPart]], plan: ClusteringPlan
    ) -> tuple[Rows, tuple[float | None, ...], str | None]:
        """The parts as clusters, and single models alone or, where that occurs, in no cluster."""
        to_none = plan.algorithm == "hdbscan" or bool((labels == NOISE).any())
        found = np.full(labels.size, NOISE, np.int64)
        log10_p, single = dict[int, float | None](), 0
        for part in (each for of in parts for each in of):
            first = int(part.members[0])
            parted = part.members.size == 1 and len(parts[labels[first]]) > 1
            single += parted
            if not (parted and to_none):
                found[part.members] = first
                log10_p[first] = part.log10_p
        after = compact(found)
        firsts = np.unique(found[found != NOISE])
        ordered = sorted(firsts.tolist(), key=lambda first: after[first])
        apart = sum(len(of) > 1 for of in parts)
        said = _said(apart, single, to_none=to_none, limit=self._limit)
        return after if apart else labels, tuple(log10_p[first] for first in ordered), said

    @property
    def _limit(self) -> float:
        assert self._chance is not None
        return MAX_P / self._chance.comparisons

    def _faint(self, kappa: Sequence[float | None], log10_p: Sequence[float | None]) -> str | None:
        """How many clusters of weights are beyond chance, and less alike than a base's models."""
        if not self._weights:
            return None
        pairs = zip(kappa, log10_p, strict=True)
        faint = sum(k is not None and k < MIN_KIN_KAPPA and p != 0.0 for k, p in pairs)
        if not faint:
            return None
        which = "1 cluster has" if faint == 1 else f"{faint:,} clusters have"
        return (
            f"{which} a mean kappa below {MIN_KIN_KAPPA:g}: more than chance gives, less than a "
            f"base and its models mostly have"
        )

    def _unknown(self) -> str | None:
        """How many models were not tested."""
        assert self._chance is not None
        unknown = int((~self._chance.known).sum())
        if not unknown:
            return None
        what = f"the chance of {unknown:,} {'model' if unknown == 1 else 'models'} is not known"
        return f"{what}, which sent a signature alone: S beyond that of random indices was enough"


NO_JUDGE: Final = ClusterJudge(None)
"""Of models whose chance is of no interest."""


def _said(apart: int, single: int, *, to_none: bool, limit: float) -> str | None:
    """The note on clusters that came apart."""
    if not apart:
        return None
    which = "1 cluster" if apart == 1 else f"{apart:,} clusters"
    models = "1 model" if single == 1 else f"{single:,} models"
    where = "in none" if to_none else "alone" if single == 1 else "each alone"
    own = f", and {models} {'is' if single == 1 else 'are'} {where}" if single else ""
    return (
        f"{which} of the algorithm came apart{own}: the members were no nearer than chance makes "
        f"unrelated models (kappa of {AT_CHANCE:g} at most, or P above {limit:.2g})"
    )


def _obeyed(loose: int, clusters: int, asked: str) -> str | None:
    """The note on clusters that would come apart, had they not been asked for."""
    if not loose:
        return None
    which = f"{clusters:,} {'cluster' if clusters == 1 else 'clusters'}"
    return (
        f"{loose:,} of {which} {'holds' if loose == 1 else 'hold'} models that are no nearer than "
        f"chance makes unrelated models: {asked} was obeyed"
    )
