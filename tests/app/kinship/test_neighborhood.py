"""The neighborhood of a model: nearest models, background, and a reproducible sample."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pytest

from app.kinship.neighborhood import Neighborhood
from app.models.index.space_index import ChangedModels, SpaceIndex
from modelkin import SignatureSpec
from modelkin.core.similarity.background import similarities_of_matches

N, H = 300, 64
VALUES = np.random.default_rng(4).integers(0, 40, (N, H)).astype(np.uint32)
Ids = npt.NDArray[np.int64]


class Feed:
    """Models with these ids, in a given order; the last ten sent only signatures."""

    compacted_version = models = 0

    def __init__(self, ids: Ids, order: Ids) -> None:
        self._ids, self._order = ids, order

    def changed_since(self, since: int) -> Iterable[ChangedModels]:
        for some in np.array_split(self._order, 3):
            contents = np.where(some < N - 10, some + 1, 0)
            yield ChangedModels(self._ids[some], contents, VALUES[some].tobytes())

    def removed_since(self, since: int) -> Iterable[int]:
        return [int(self._ids[5])]


def seen_by(ids: Ids, order: Ids, own: int | None = None) -> Neighborhood:
    """The neighborhood of model 0, or of an unstored subject with its signature."""
    snapshot = SpaceIndex(SignatureSpec(num_perm=H)).snapshot_at(1, Feed(ids, order))
    return Neighborhood(snapshot, VALUES[0], None if own is None else int(ids[own]))


PLAIN = np.arange(N, dtype=np.int64) + 1
OTHERS_BETWEEN = np.cumsum(np.random.default_rng(5).integers(1, 50, N)) + 1000
SHUFFLED = np.random.default_rng(6).permutation(N)


@pytest.mark.parametrize("count", [1, 40, 1000])
@pytest.mark.parametrize("order", [np.arange(N), SHUFFLED], ids=["as stored", "as followed"])
def test_a_sample_depends_on_the_space_alone(count: int, order: Ids) -> None:
    """A sample holds distinct models with a support, and never the subject.

    Neither gaps between ids nor the order of reading change it.
    """
    expected = seen_by(PLAIN, np.arange(N), own=7).sample(count) - 1
    found = np.searchsorted(OTHERS_BETWEEN, seen_by(OTHERS_BETWEEN, order, own=7).sample(count))
    assert expected.tolist() == found.tolist()
    assert min(count, N - 12) == len(set(found.tolist()))  # without itself, ten and the removed one
    assert not {5, 7, *range(N - 10, N)} & set(found.tolist())


def test_the_background_is_that_of_all_other_models() -> None:
    """Mean and deviation leave out the subject, removed models and excluded ones."""
    equal = (VALUES.astype(np.uint8) == VALUES[0].astype(np.uint8)).sum(axis=1)
    similarities, errors = similarities_of_matches(equal, H)
    counted = np.ones(N, np.bool_)
    counted[[0, 5, 9]] = False
    seen = seen_by(PLAIN, SHUFFLED, own=0).background(without=[10])
    assert N - 3 == seen.models
    assert similarities[counted].mean() == pytest.approx(seen.mean)
    noise = np.mean(errors[counted] ** 2)
    variance = similarities[counted].var()
    assert max(variance - noise, variance / 4) == pytest.approx(seen.deviation**2)
    robust = seen_by(PLAIN, SHUFFLED, own=0).background(unrelated=True, without=[10])
    assert np.median(similarities[counted]) == pytest.approx(robust.mean)


def test_the_nearest_come_in_order() -> None:
    """By equal bytes, ties by the lower id, without the subject, and among some if given."""
    equal = (VALUES == VALUES[0]).sum(axis=1)
    order = sorted((i for i in range(1, N) if i != 5), key=lambda i: (-equal[i], i))
    ids, similarity = seen_by(PLAIN, SHUFFLED, own=0).nearest(20)
    assert [i + 1 for i in order[:20]] == ids.tolist()
    assert (np.diff(similarity) <= 0).all()
    among = np.arange(1, N + 1, 3)
    ids, _ = seen_by(PLAIN, SHUFFLED, own=0).nearest(20, among)
    assert [i + 1 for i in order if i % 3 == 0][:20] == ids.tolist()
    stranger, _ = seen_by(PLAIN, SHUFFLED).nearest(1)
    assert [1] == stranger.tolist()


def test_an_empty_space_has_an_empty_neighborhood() -> None:
    """There are no nearest models, no background and no sample."""
    index = SpaceIndex(SignatureSpec(num_perm=H))
    empty = Neighborhood(index.snapshot_at(0, _Nothing()), VALUES[0], None)
    assert [] == empty.nearest(5)[0].tolist() == empty.sample(5).tolist()
    assert (0, None) == (empty.background().models, empty.background().z_score(0.5))


class _Nothing:
    compacted_version = models = 0

    def changed_since(self, since: int) -> Iterable[ChangedModels]:
        return []

    def removed_since(self, since: int) -> Iterable[int]:
        return []
