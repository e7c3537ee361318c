"""A state machine that compares a bucket store with a dict over any history of a space."""

from __future__ import annotations

import itertools

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from app.models.index.buckets.protocol import Buckets
from tests.app.models.index.buckets.oracle import expected, keys, plain, state

MODELS = st.integers(1, 8)
KEYS = st.lists(st.sampled_from([0, 1, 2, 3, 1 << 63, (1 << 64) - 1]), max_size=5)
UPSERTS = st.dictionaries(MODELS, KEYS, max_size=4)

_spaces = itertools.count(1_000_000)


class BucketsMachine(RuleBasedStateMachine):
    """Subclass it with ``buckets``, a store whose cap is ``cap``."""

    buckets: Buckets
    cap: int

    def __init__(self) -> None:
        super().__init__()
        self.space = next(_spaces)
        self.epoch = 1
        self.version = 0
        self.known = False
        self.models: dict[int, list[int]] = {}

    @rule(upserts=UPSERTS, removals=st.sets(MODELS, max_size=3), times=st.integers(1, 2))
    def follow(self, upserts: dict[int, list[int]], removals: set[int], times: int) -> None:
        """A step, perhaps repeated as after a crash."""
        since, until = self.version, self.version + 1 + len(upserts)
        feed = [(model_id, keys(*own)) for model_id, own in upserts.items()]
        won = [self.buckets.apply(self.space, self.epoch, since, until, feed, removals)]
        won += [
            self.buckets.apply(self.space, self.epoch, since, until, feed, removals)
            for _ in range(times - 1)
        ]
        assert [True, False][:times] == won
        self.models.update(upserts)
        self.models = {m: own for m, own in self.models.items() if m not in removals}
        self.version, self.known = until, True

    @rule(upserts=UPSERTS, behind=st.integers(1, 3))
    def arrive_late(self, upserts: dict[int, list[int]], behind: int) -> None:
        """A step from a version that the space has not reached."""
        feed = [(model_id, keys(*own)) for model_id, own in upserts.items()]
        since = self.version + behind
        assert not self.buckets.apply(self.space, self.epoch, since, since + 1, feed, [])

    @rule(swept=st.booleans())
    def lose(self, swept: bool) -> None:
        """The space is dropped, and starts again."""
        self.buckets.drop(self.space)
        if swept:
            while self.buckets.sweep():
                pass
        self.epoch, self.version, self.known, self.models = self.epoch + 1, 0, False, {}

    @rule(query=KEYS, limit=st.integers(0, 12))
    def query(self, query: list[int], limit: int) -> None:
        """Candidates are the dict's, truncation included."""
        found = self.buckets.candidates(self.space, keys(*query), limit)
        assert expected(self.models, query, cap=self.cap, limit=limit) == plain(found)

    @invariant()
    def is_where_it_should_be(self) -> None:
        """The state is that of the last step applied."""
        wanted = state(self.version, epoch=self.epoch) if self.known else None
        assert wanted == self.buckets.state(self.space)
