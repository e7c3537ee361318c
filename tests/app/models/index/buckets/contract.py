"""What every bucket store promises: a class of tests that each store's own tests inherit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from app.models.index.buckets.protocol import Buckets
from tests.app.models.index.buckets.oracle import (
    EPOCH,
    EVERYTHING,
    Keys,
    expected,
    ids_in,
    keys,
    plain,
    spread,
    state,
)

CAP = 40
"""The cap of the stores under test."""

_spaces = itertools.count(1)


class BucketsContract:
    """Inherit it beside a fixture ``buckets``: a store whose cap is :data:`CAP`."""

    @pytest.fixture
    def space(self) -> int:
        """A space of which nothing is stored."""
        return next(_spaces)

    def test_nothing_is_known_of_a_new_space(self, buckets: Buckets, space: int) -> None:
        """A space without any applied step has no state and no candidates."""
        found = buckets.candidates(space, keys(1), 10)
        assert (None, None, ([], False)) == (buckets.state(space), found.state, plain(found))

    def test_models_are_found_in_their_buckets(self, buckets: Buckets, space: int) -> None:
        """A query gets each model that shares any bucket with it, once, and no other."""
        upserts = [(7, keys(1, 2)), (8, keys(2, 3)), (9, keys(4))]
        assert buckets.apply(space, EPOCH, 0, 3, upserts, [])
        assert [7, 8] == ids_in(buckets, space, 1, 2, 3)
        assert [] == ids_in(buckets, space, 5)

    def test_the_state_is_where_the_step_led(self, buckets: Buckets, space: int) -> None:
        """State and candidates both have epoch, version and banding of the last step."""
        assert buckets.apply(space, EPOCH, 0, 3, [(7, keys(1))], [])
        assert state(3) == buckets.state(space)
        assert buckets.state(space) == buckets.candidates(space, keys(1), 10).state

    def test_every_64_bit_key_is_its_own(self, buckets: Buckets, space: int) -> None:
        """The smallest key, the largest and those around the sign bit are distinct."""
        extremes = [0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
        buckets.apply(space, EPOCH, 0, 1, [(i, keys(k)) for i, k in enumerate(extremes, 1)], [])
        assert [[1], [2], [3], [4], [5]] == [ids_in(buckets, space, k) for k in extremes]

    def test_large_ids_come_back(self, buckets: Buckets, space: int) -> None:
        """Ids beyond 32 bits are kept exactly."""
        buckets.apply(space, EPOCH, 0, 1, [((1 << 53) - 1, keys(1)), (1 << 32, keys(1))], [])
        assert [1 << 32, (1 << 53) - 1] == ids_in(buckets, space, 1)

    def test_a_replaced_model_leaves_its_old_buckets(self, buckets: Buckets, space: int) -> None:
        """New keys replace all old ones, also where some stay the same."""
        buckets.apply(space, EPOCH, 0, 1, [(7, keys(1, 2))], [])
        buckets.apply(space, EPOCH, 1, 2, [(7, keys(2, 3))], [])
        assert [[], [7], [7]] == [ids_in(buckets, space, k) for k in (1, 2, 3)]

    def test_a_removed_model_is_nowhere(self, buckets: Buckets, space: int) -> None:
        """A removal takes the model out of its buckets and touches no other model."""
        buckets.apply(space, EPOCH, 0, 2, [(7, keys(1, 2)), (8, keys(2))], [])
        assert buckets.apply(space, EPOCH, 2, 3, [], [7])
        assert [[], [8]] == [ids_in(buckets, space, k) for k in (1, 2)]

    def test_removing_an_unknown_model_is_no_error(self, buckets: Buckets, space: int) -> None:
        """A model may be added and removed between two steps: its removal changes nothing."""
        assert buckets.apply(space, EPOCH, 0, 4, [(7, keys(1))], [99])
        assert [7] == ids_in(buckets, space, 1)

    def test_a_model_both_changed_and_removed_is_gone(self, buckets: Buckets, space: int) -> None:
        """Ids are never used again, so a removal is final."""
        buckets.apply(space, EPOCH, 0, 2, [(7, keys(1))], [7])
        assert [] == ids_in(buckets, space, 1)

    def test_the_last_keys_of_a_model_count(self, buckets: Buckets, space: int) -> None:
        """A model twice in one step ends with its later keys."""
        buckets.apply(space, EPOCH, 0, 2, [(7, keys(1)), (7, keys(2))], [])
        assert [[], [7]] == [ids_in(buckets, space, k) for k in (1, 2)]

    def test_repeated_keys_are_one(self, buckets: Buckets, space: int) -> None:
        """A key that a model or a query names twice counts once."""
        buckets.apply(space, EPOCH, 0, 1, [(7, keys(1, 1, 2))], [])
        assert ([7], False) == plain(buckets.candidates(space, keys(1, 1, 1), 1))

    def test_a_model_without_keys_is_in_no_bucket(self, buckets: Buckets, space: int) -> None:
        """A support of common indices alone may have no keys; nothing breaks."""
        assert buckets.apply(space, EPOCH, 0, 1, [(7, keys())], [])
        assert buckets.apply(space, EPOCH, 1, 2, [(7, keys(1))], [])
        assert ([7], []) == (ids_in(buckets, space, 1), ids_in(buckets, space))

    def test_an_empty_step_moves_the_version(self, buckets: Buckets, space: int) -> None:
        """A step without changes to any bucket still moves the version."""
        assert buckets.apply(space, EPOCH, 0, 5, [], [])
        assert state(5) == buckets.state(space)

    def test_a_step_applied_again_is_refused(self, buckets: Buckets, space: int) -> None:
        """Repeating a step after a crash changes nothing and returns False."""
        won = [buckets.apply(space, EPOCH, 0, 2, [(7, keys(1))], []) for _ in range(2)]
        assert [True, False] == won
        assert ([7], state(2)) == (ids_in(buckets, space, 1), buckets.state(space))

    @pytest.mark.parametrize(
        ("epoch", "since"), [(EPOCH, 1), (EPOCH, 3), (EPOCH, 0), (EPOCH + 1, 2)]
    )
    def test_a_step_of_another_build_changes_nothing(
        self, buckets: Buckets, space: int, epoch: int, since: int
    ) -> None:
        """Another version or epoch than the space's is refused whole."""
        buckets.apply(space, EPOCH, 0, 2, [(7, keys(1))], [])
        upserts = [(8, keys(1))]
        assert not buckets.apply(space, epoch, since, 9, upserts, [7])
        assert ([7], state(2)) == (ids_in(buckets, space, 1), buckets.state(space))

    def test_an_unknown_space_begins_at_version_0(self, buckets: Buckets, space: int) -> None:
        """Later steps do not apply to a lost space; the first step does, in any epoch."""
        assert not buckets.apply(space, EPOCH, 4, 5, [(7, keys(1))], [])
        assert buckets.state(space) is None
        assert buckets.apply(space, EPOCH + 9, 0, 5, [(7, keys(1))], [])

    def test_a_feed_that_fails_changes_nothing(self, buckets: Buckets, space: int) -> None:
        """An error half-way through the upserts leaves the space unchanged at its old version."""
        buckets.apply(space, EPOCH, 0, 1, [(7, keys(1))], [])

        def broken() -> Iterator[tuple[int, Keys]]:
            yield 7, keys(2)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            buckets.apply(space, EPOCH, 1, 2, broken(), [])
        assert ([7], [], state(1)) == (
            ids_in(buckets, space, 1),
            ids_in(buckets, space, 2),
            buckets.state(space),
        )

    def test_spaces_never_meet(self, buckets: Buckets, space: int) -> None:
        """The same keys in another space, changed, capped or dropped there, change nothing here."""
        other = next(_spaces)
        buckets.apply(space, EPOCH, 0, 1, [(7, keys(1))], [])
        buckets.apply(other, EPOCH, 0, 1, [(i, keys(1)) for i in range(1, CAP + 2)], [])
        assert ([7], False) == plain(buckets.candidates(space, keys(1), 10))
        assert ([], True) == plain(buckets.candidates(other, keys(1), EVERYTHING))
        buckets.drop(other)
        assert ([7], None) == (ids_in(buckets, space, 1), buckets.state(other))

    def test_a_bucket_over_the_cap_is_left_out(self, buckets: Buckets, space: int) -> None:
        """A bucket is read up to the cap; with one model more, it is skipped and reported."""
        crowd = [(i, keys(1)) for i in range(1, CAP + 1)]
        buckets.apply(space, EPOCH, 0, 1, [*crowd, (500, keys(2))], [])
        assert not buckets.candidates(space, keys(1, 2), EVERYTHING).truncated
        buckets.apply(space, EPOCH, 1, 2, [(501, keys(1))], [])
        assert ([500], True) == plain(buckets.candidates(space, keys(1, 2), EVERYTHING))

    def test_the_limit_takes_the_smallest_buckets(self, buckets: Buckets, space: int) -> None:
        """The smallest buckets are read first and whole; ``truncated`` reports the rest."""
        models = {1: [10, 20, 30], 2: [20, 30], 3: [30], 4: [40]}
        upserts = [(model_id, keys(*own)) for model_id, own in models.items()]
        buckets.apply(space, EPOCH, 0, 4, upserts, [])
        asked = keys(10, 20, 30, 40)
        found = [plain(buckets.candidates(space, asked, n)) for n in (0, 1, 2, 4, 7)]
        assert [
            ([], True),
            ([1], True),
            ([1, 4], True),
            ([1, 2, 4], True),
            ([1, 2, 3, 4], False),
        ] == found

    def test_what_was_dropped_is_gone_at_once(self, buckets: Buckets, space: int) -> None:
        """A dropped space has no state, and a new build does not see the old, swept or not."""
        buckets.apply(space, EPOCH, 0, 2, [(7, keys(1)), (8, keys(2))], [])
        buckets.drop(space)
        assert (None, []) == (buckets.state(space), ids_in(buckets, space, 1))
        assert buckets.apply(space, EPOCH + 1, 0, 2, [(7, keys(3))], [])
        while buckets.sweep(1):
            pass
        assert [[], [], [7]] == [ids_in(buckets, space, k) for k in (1, 2, 3)]
        assert state(2, epoch=EPOCH + 1) == buckets.state(space)

    def test_dropping_the_unknown_is_no_error(self, buckets: Buckets, space: int) -> None:
        """A space may be dropped twice, or before it was ever built."""
        buckets.drop(space)
        buckets.drop(space)
        assert buckets.state(space) is None

    def test_a_step_too_large_is_refused(self, buckets: Buckets, space: int) -> None:
        """More models than a step may hold are the caller's mistake."""
        upserts = [(i, keys(i)) for i in range(buckets.max_step_size + 1)]
        with pytest.raises(ValueError, match="split_into_steps"):
            buckets.apply(space, EPOCH, 0, 1, upserts, [])
        assert buckets.state(space) is None

    @pytest.mark.parametrize(
        "wrong", [np.zeros(2, np.int64), np.zeros((2, 2), np.uint64), np.zeros(2)]
    )
    def test_keys_of_another_kind_are_refused(
        self, buckets: Buckets, space: int, wrong: Keys
    ) -> None:
        """Keys are one-dimensional uint64; other arrays would be stored as other keys."""
        with pytest.raises(ValueError, match="uint64"):
            buckets.apply(space, EPOCH, 0, 1, [(1, wrong)], [])

    def test_of_concurrent_writers_of_a_step_one_wins(self, buckets: Buckets, space: int) -> None:
        """Eight threads apply the same history: each step is applied once, with the right end."""
        models = {i: spread(i) for i in range(1, 41)}

        def follow(_worker: int) -> int:
            return sum(
                buckets.apply(
                    space, EPOCH, v, v + 10, [(i, models[i]) for i in range(v + 1, v + 11)], []
                )
                for v in (0, 10, 20, 30)
            )

        with ThreadPoolExecutor(8) as pool:
            won = sum(pool.map(follow, range(8)))
        assert (4, state(40)) == (won, buckets.state(space))
        plain_models = {i: own.tolist() for i, own in models.items()}
        for own in plain_models.values():
            answer = plain(buckets.candidates(space, keys(*own), EVERYTHING))
            assert expected(plain_models, own, cap=CAP, limit=EVERYTHING) == answer

    def test_a_step_of_the_largest_size_is_stored(self, buckets: Buckets, space: int) -> None:
        """A full step of 64 bands a model is applied within the time limits of its store."""
        upserts = [(i, spread(i, 64)) for i in range(1, buckets.max_step_size + 1)]
        assert buckets.apply(space, EPOCH, 0, 1, upserts, [])
        assert [5, 6, 7, 8, 9] == ids_in(buckets, space, *spread(7, 64).tolist())

    def test_it_answers(self, buckets: Buckets) -> None:
        """A healthy store does not raise."""
        buckets.ping()
