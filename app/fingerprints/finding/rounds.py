"""Rounds: the nearest fingerprints, then what else a fingerprint has, without the nearest's family.

A popular base has more kin than any list holds, and a second parent comes behind all of them. So
each further round is asked without the keys of the first candidate of the round before, and without
those of all its kin, unless strangers to it have them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from app.fingerprints.finding.common import common_keys
from app.fingerprints.finding.listing import Listing, Query
from app.fingerprints.finding.pairs import are_kin, expected_keys
from app.fingerprints.finding.ranking import log10_bounds
from app.fingerprints.finding.records import Candidate, Damaged, Examined, Feed, Found
from app.infra.deadlines import Deadline
from modelkin.core.fingerprints.chance import log10_tail
from modelkin.core.fingerprints.comparison import MODEL_LIMIT

__all__ = ["MOST_HOLDERS", "candidates"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

MOST_HOLDERS: Final = 64
"""The holders of a key that are listed."""
MOST_ROUNDS: Final = 4
_EXAMINED: Final = 40
"""Candidates whose keys are read at a time, to tell who is whose kin."""
_FIRST: Final = 24
"""How many of them are the first ones."""
_MOST_READINGS: Final = 6
"""How often in a round."""
_MOST_NAMES: Final = 8
"""Names of declared bases that are looked up in a round."""


def candidates(
    query: Query,
    listing: Listing,
    feed: Feed,
    *,
    leave_out: Iterable[int],
    limit: int,
    deadline: Deadline,
) -> Found:
    """The candidates of all rounds for which there is time; of the first in any case.

    Args:
        leave_out: ids of fingerprints that are none.
        limit: the candidates of a round.
    """
    search = _Search(query, listing, feed, np.array([*leave_out], np.int64))
    found: list[Candidate] = []
    truncated = bool(listing.more.any())
    for number in range(1, MOST_ROUNDS + 1):
        if number > 1 and deadline.passed():  # the first takes few milliseconds
            truncated = True
            break
        some = search.round(number, limit)
        if not some:
            break
        found += some
        if number < MOST_ROUNDS:
            search.leave_family(some[0].id, deadline)
    return Found(
        tuple(found),
        truncated,
        int(search.common.sum()),
        feed.fingerprints,
        common_keys=query.keys[search.common],
        sharing=search.sharing,
    )


class _Search:
    """The keys that are still asked, and those who hold them."""

    def __init__(self, query: Query, listing: Listing, feed: Feed, leave_out: Ints) -> None:
        self._query = query
        self._feed = feed
        self._at, self._who, self._ids = listing.at, listing.who, listing.ids
        self._versions = listing.versions
        self._part = float(listing.answered.mean()) if listing.answered.size else 1.0
        self._expected = listing.expected * self._part
        self._left_out = np.isin(self._ids, leave_out)
        self._more = listing.more
        self._asked = listing.answered.copy()
        self.common = np.zeros(query.keys.size, np.bool_)
        self.sharing = dict[int, int]()
        self._examined: dict[int, Examined] = {}
        self._gone: set[int] = set()
        self._found: set[int] = set()
        self._looked_up: set[str] = set()

    def round(self, number: int, limit: int) -> list[Candidate]:
        """The candidates of a round, the least probable first."""
        some = self._some()
        if not some.size:
            return []
        self._examine(some)
        if self._add_declared(some):
            some = self._some()
            self._examine(some)
        self._leave_common(some)
        found = [
            Candidate(int(self._ids[who]), int(count), log10_p, number)
            for who, count, log10_p in self._exact(self._existing(limit))
        ]
        found.sort(key=lambda each: (each.log10_p, -each.keys, each.id))
        self._found.update(each.id for each in found)
        return found

    def leave_family(self, first_id: int, deadline: Deadline) -> None:
        """Ask no more for the keys of a fingerprint and of its kin.

        Where strangers to it have a key as well, it is asked on: kin that merged it with a second
        parent, or forge that, take no key of that parent away.
        """
        self._examine_ids([first_id])
        self._leave(first_id)
        first = self._examined.get(first_id)
        if first is None:
            return
        asked, tried, theirs = self._asked.copy(), set[int](), [first.keys[:0]]
        for _ in range(_MOST_READINGS):
            ranked = self._ranked(MOST_HOLDERS, again=True)  # kin with a key are fewer than that
            ids = [each for each in self._ids[ranked].tolist() if each not in tried]
            if not ids or deadline.passed():
                break
            self._examine_ids(ids)
            tried.update(ids)
            known = [self._examined[each] for each in ids if each in self._examined]
            kin = {each.id for each in known if self._is_kin(first, each)}
            theirs += [each.keys for each in known if each.id not in kin]
            if not kin:
                break
            self._found |= kin
            self._asked &= ~np.isin(self._query.keys, np.concatenate([each.keys for each in known]))
        self._asked |= asked & np.isin(self._query.keys, np.concatenate(theirs))

    # --- parts --------------------------------------------------------------------------------

    def _ranked(self, most: int, *, again: bool = False) -> Ints:
        """The fingerprints beyond chance by the keys that are asked, the least probable first.

        Args:
            again: whether those that earlier rounds found may be among them.
        """
        counts = np.bincount(self._who[self._asked[self._at]], minlength=self._ids.size)
        bounds = log10_bounds(counts, self._expected)
        bounds[self._left_out] = 0
        passing = np.flatnonzero(bounds < MODEL_LIMIT)
        if not again:
            passing = passing[~np.isin(self._ids[passing], [*self._found])]
        order = np.lexsort((self._ids[passing], -counts[passing], bounds[passing]))
        best: Ints = passing[order[:most]]
        return best

    def _some(self) -> Ints:
        """The first, and some of all that follow: the first may all be of one family."""
        ranked = self._ranked(self._ids.size)
        rest = np.linspace(_FIRST, ranked.size - 1, _EXAMINED - _FIRST).astype(np.int64)
        return ranked[:_FIRST] if ranked.size <= _FIRST else ranked[[*range(_FIRST), *set(rest)]]

    def _existing(self, most: int) -> Ints:
        """As :meth:`_ranked`, of those that this transaction sees: the index may be ahead of it."""
        while True:
            ranked = self._ranked(most)
            unread = [each for each in self._ids[ranked].tolist() if each not in self._examined]
            if not unread:
                return ranked
            self._examine_ids(unread)

    def _exact(self, ranked: Ints) -> Iterator[tuple[int, int, float]]:
        counts = np.bincount(self._who[self._asked[self._at]], minlength=self._ids.size)
        for who in ranked.tolist():
            yield who, counts[who], log10_tail(int(counts[who]), float(self._expected[who]))

    def _examine(self, ranked: Ints) -> None:
        self._examine_ids(self._ids[ranked].tolist())

    def _examine_ids(self, ids: list[int]) -> None:
        unread = [each for each in ids if each not in self._examined and each not in self._gone]
        if not unread:
            return
        found = self._feed.examine(unread)
        self._require_same(unread, found)
        self._examined.update(found)
        gone = [each for each in unread if each not in found]
        if gone:  # removed, or of a version that this transaction does not see yet
            self._gone.update(gone)
            self._left_out |= np.isin(self._ids, gone)

    def _require_same(self, ids: list[int], found: Mapping[int, Examined]) -> None:
        """Compare the index with the rows, where both are of one version of the feed.

        Raises:
            Damaged: they differ, so the index followed another database, such as a later copy.
        """
        if self._versions is None:
            return
        known = np.flatnonzero(np.isin(self._ids[: self._versions.size], ids))
        for place in known.tolist():
            each = found.get(int(self._ids[place]))
            if each is None or each.version != self._versions[place]:
                raise Damaged("an entry is of a fingerprint that is not stored so")

    def _leave(self, fingerprint_id: int) -> None:
        """Ask no more for the keys of a fingerprint, listed or not."""
        self._asked[self._at[self._ids[self._who] == fingerprint_id]] = False
        known = self._examined.get(fingerprint_id)
        if known is not None:
            self._asked &= ~np.isin(self._query.keys, known.keys)

    def _is_kin(self, first: Examined, other: Examined) -> bool:
        common = self._query.keys[self.common]
        return are_kin(first, other, without=common, limit=MODEL_LIMIT)

    def _add_declared(self, ranked: Ints) -> bool:
        """Count the declared bases of candidates, which their keys may have no room to list."""
        if not self._more.any():
            return False
        known = [self._examined[each] for each in self._ids[ranked] if each in self._examined]
        names = dict.fromkeys(name for each in known for name in each.base_models)
        asked = [name for name in names if name not in self._looked_up][:_MOST_NAMES]
        self._looked_up.update(asked)
        ids = [each for each in self._feed.named(asked) if each not in self._gone] if asked else []
        bases = [each for each in ids if not self._left_out[self._ids == each].any()]
        self._examine_ids(bases)
        added = [self._examined[each] for each in bases if each in self._examined]
        for each in added:
            self._count_again(each)
        return bool(added)

    def _count_again(self, each: Examined) -> None:
        """Count all keys of a fingerprint, also those by which it is not listed."""
        held = np.flatnonzero(np.isin(self._query.keys, each.keys))
        who = np.flatnonzero(self._ids == each.id)
        if who.size:
            kept = self._who != who[0]
            self._at, self._who, number = self._at[kept], self._who[kept], int(who[0])
        else:
            number = self._ids.size
            self._ids = np.append(self._ids, each.id)
            self._left_out = np.append(self._left_out, False)
            expected = expected_keys(self._query, each) * self._part
            self._expected = np.append(self._expected, expected)
        self._at = np.concatenate([self._at, held])
        self._who = np.concatenate([self._who, np.full(held.size, number)])

    def _leave_common(self, ranked: Ints) -> None:
        """Ask no more for keys that unrelated fingerprints have."""
        known = [self._examined[each] for each in self._ids[ranked] if each in self._examined]
        # Keys that are left still tell who is kin of whom.
        common = common_keys(self._query, known, ~self.common) & self._asked
        self.common |= common
        self._asked &= ~common
        if not common.any():
            return
        for each in known:
            count = int(np.isin(self._query.keys[common], each.keys, assume_unique=True).sum())
            if count:
                self.sharing[each.id] = self.sharing.get(each.id, 0) + count
