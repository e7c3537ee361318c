"""The signature index of one space, compared with a dict of the same models."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.models.index import parts
from app.models.index.registry import IndexRegistry
from app.models.index.space_index import ChangedModels, Snapshot, SpaceIndex, index_bytes
from modelkin.types.spaces import SignatureSpec

H = 8
BATCH_SIZE = 50
CONTENT = 10**6
SPEC = SignatureSpec("affine32", H, 1)


@dataclass
class History:
    """The feed of a space: what changed at which version."""

    version: int = 0
    values: dict[int, npt.NDArray[np.uint32]] = field(default_factory=dict)
    changed_at: dict[int, int] = field(default_factory=dict)
    removed_at: list[tuple[int, int]] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    compacted_version: int = 0

    @property
    def models(self) -> int:
        return len(self.values)

    def put(self, model: int, values: npt.NDArray[np.uint32]) -> None:
        """Give the model this signature."""
        self.version += 1
        self.values[model], self.changed_at[model] = values, self.version

    def remove(self, model: int) -> None:
        """Remove the model; its id is never used again."""
        self.version += 1
        del self.values[model], self.changed_at[model]
        self.removed_at.append((self.version, model))

    def changed_since(self, since: int) -> Iterable[ChangedModels]:
        self.asked.append(since)
        recent = [m for m, version in self.changed_at.items() if version > since]
        for first in range(0, len(recent), BATCH_SIZE):
            page = recent[first : first + BATCH_SIZE]
            signatures = b"".join(self.values[m].astype("<u4").tobytes() for m in page)
            yield ChangedModels(np.array(page), np.array(page) + CONTENT, signatures)

    def removed_since(self, since: int) -> Iterable[int]:
        return [model for version, model in self.removed_at if version > since]

    def prune(self) -> None:
        """Delete all removals so far from the feed."""
        self.compacted_version = self.version
        self.removed_at.clear()

    def best(self, query: npt.NDArray[np.uint32], count: int) -> dict[int, int]:
        """The best ``count`` models, of equal ones the oldest, and how many bytes match."""
        low = query.astype(np.uint8)
        matches = {m: int((v.astype(np.uint8) == low).sum()) for m, v in self.values.items()}
        return dict(sorted(matches.items(), key=lambda entry: (-entry[1], entry[0]))[:count])


def signature(number: int) -> npt.NDArray[np.uint32]:
    """The values of some model: few distinct bytes, so that they match often."""
    random = np.random.default_rng(number)
    return (random.integers(0, 3, H) + 256 * random.integers(0, 9, H)).astype(np.uint32)


def candidates(
    snapshot: Snapshot, query: npt.NDArray[np.uint32], count: int, **among: npt.NDArray[np.int64]
) -> dict[int, int]:
    """The candidates, which must be distinct and have their own contents, with their matches."""
    found = snapshot.candidates(query, count, **among)
    assert found.ids.tolist() == [content - CONTENT for content in found.contents.tolist()]
    assert sorted(found.ids.tolist()) == found.ids.tolist()
    matches = dict(zip(found.ids.tolist(), found.matches.tolist(), strict=True))
    assert len(matches) == found.ids.size
    return matches


# A positive number puts a model, a negative one removes it. 0 queries the index, and 99 prunes the
# removals, whether the index has read them or not.
WORK = st.lists(st.integers(-12, 12) | st.sampled_from([0, 99]), max_size=150)


@settings(max_examples=60)
@given(work=WORK, counts=st.integers(1, 14), seed=st.integers(0, 2**16))
def test_the_index_follows_its_space(work: list[int], counts: int, seed: int) -> None:
    """After any changes, in batches of any size, the candidates equal those of a dict."""
    index, history, query = SpaceIndex(SPEC), History(), signature(seed)
    ids: dict[int, int] = {}
    for step, number in enumerate([*work, 0]):
        if number == 0:
            found = candidates(index.snapshot_at(history.version, history), query, counts)
            assert history.best(query, counts) == found
            assert len(history.values) == len(index)
        elif number == 99:
            history.prune()
        elif number > 0:
            ids.setdefault(number, 1000 * number + step)
            history.put(ids[number], signature(step))
        elif -number in ids:
            history.remove(ids.pop(-number))


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 5000])
def test_a_space_of_any_size_is_read_whole(n: int) -> None:
    """Around every size at which arrays grow or batches end, each model is indexed once."""
    index, history = SpaceIndex(SPEC), History()
    for model in range(n):
        history.put(model, signature(model))
    snapshot = index.snapshot_at(history.version, history)
    assert set(range(n)) == set(candidates(snapshot, signature(1), n + 1))


def test_a_snapshot_stays_what_it_was() -> None:
    """A snapshot does not change while the index grows, removes and compacts."""
    index, history = SpaceIndex(SPEC), History()
    for model in range(100):
        history.put(model, signature(model))
    taken = [(index.snapshot_at(history.version, history), dict(history.values))]
    for model in range(100, 400):
        history.put(model, signature(model))
        history.remove(model - 100)
        if model % 7 == 0:
            taken.append((index.snapshot_at(history.version, history), dict(history.values)))
    for snapshot, values in taken:
        assert set(values) == set(candidates(snapshot, signature(0), 1000))
        rows = dict(zip(snapshot.ids[snapshot.alive], snapshot.rows[snapshot.alive], strict=True))
        assert all((rows[m] == v.astype(np.uint8)).all() for m, v in values.items())


def test_dead_rows_are_dropped() -> None:
    """A space whose models are replaced again and again does not grow without end."""
    index, history = SpaceIndex(SPEC), History()
    for _ in range(60):
        for model in range(50):
            history.put(model, signature(history.version))
        snapshot = index.snapshot_at(history.version, history)
    assert 50 == len(index)
    assert snapshot.ids.size <= 200
    assert index.nbytes < 10_000


def test_an_index_reads_only_new_changes() -> None:
    """An index that is up to date reads nothing; one that is behind reads only what is new."""
    index, history = SpaceIndex(SPEC), History()
    history.put(1, signature(1))
    index.snapshot_at(1, history)
    history.put(2, signature(2))
    index.snapshot_at(2, history)
    index.snapshot_at(2, history)
    index.snapshot_at(1, history)
    assert [0, 1] == history.asked


def test_an_index_behind_the_horizon_starts_again() -> None:
    """An index older than the deleted removals cannot know which of its models are gone."""
    index, history = SpaceIndex(SPEC), History()
    for model in range(200):
        history.put(model, signature(model))
    before = index.snapshot_at(history.version, history)
    for model in range(100):
        history.remove(model)
    history.prune()
    after = index.snapshot_at(history.version, history)
    assert set(range(100, 200)) == set(candidates(after, signature(0), 1000))
    assert set(range(200)) == set(candidates(before, signature(0), 1000))
    history.remove(150)
    index.snapshot_at(history.version, history)
    assert [0, 0, history.version - 1] == history.asked


def test_among_leaves_the_others_out() -> None:
    """Candidates come from the given ids alone, as many as requested."""
    index, history = SpaceIndex(SPEC), History()
    for model in range(50):
        history.put(model, signature(model))
    snapshot = index.snapshot_at(history.version, history)
    among = np.array([3, 7, 49, 1000], np.int64)
    assert {3, 7, 49} == set(candidates(snapshot, signature(0), 5, among=among))
    none = np.array([], np.int64)
    assert {} == candidates(snapshot, signature(0), 5, among=none)
    for model in range(3000):
        history.put(model, signature(model))
    assert {3, 7, 49} == set(candidates(snapshot, signature(0), 5, among=among))
    later = index.snapshot_at(history.version, history)
    assert {3, 7, 49, 1000} == set(candidates(later, signature(0), 5, among=among))
    history.put(7, signature(70))
    index.snapshot_at(history.version, history)
    assert {3, 7, 49, 1000} == set(candidates(later, signature(0), 5, among=among))
    most = np.arange(1, 49)
    assert set(range(1, 49)) == set(candidates(snapshot, signature(0), 60, among=most))


def test_64_bit_signatures_are_cut_to_their_lowest_byte() -> None:
    """The values of affine64 are read eight bytes at a time."""
    index = SpaceIndex(SignatureSpec("affine64", H, 1))
    values = np.arange(H, dtype=np.uint64) + (1 << 60)

    class Feed:
        compacted_version = models = 0

        def changed_since(self, since: int) -> Iterable[ChangedModels]:
            return [ChangedModels(np.array([5]), np.array([7]), values.astype("<u8").tobytes())]

        def removed_since(self, since: int) -> Iterable[int]:
            return []

    snapshot = index.snapshot_at(1, Feed())
    assert ([5], list(range(H))) == (snapshot.ids.tolist(), snapshot.rows[0].tolist())


def a_space(models: int) -> History:
    """A space of ``models`` models."""
    history = History()
    for model in range(models):
        history.put(model, signature(model))
    return history


def at(registry: IndexRegistry, space_id: int, history: History) -> Snapshot:
    """The index of a space at its present version."""
    return registry.snapshot_at(space_id, SPEC, history.version, history)


def test_the_registry_keeps_one_index_a_space() -> None:
    """A space keeps its index until the registry forgets it."""
    registry, history = IndexRegistry(1 << 20), a_space(3)
    first = at(registry, 1, history)
    assert first is at(registry, 1, history)
    assert first is not at(registry, 2, history)
    assert [1, 2] == registry.space_ids()
    registry.forget(1)
    registry.forget(77)
    assert first is not at(registry, 1, history)
    assert [0, 0, 0] == history.asked


def test_the_registry_evicts_the_least_recently_used() -> None:
    """The indexes fit into the bytes allowed; an evicted one is built again at its next use."""
    histories = {space_id: a_space(100) for space_id in range(4)}
    registry = IndexRegistry(3 * index_bytes(SPEC, 100))
    for space_id in (0, 1, 2, 0, 3):
        at(registry, space_id, histories[space_id])
    assert [2, 0, 3] == registry.space_ids()
    assert (3, 300, 3 * index_bytes(SPEC, 100)) == registry.totals()
    assert 100 == len(at(registry, 1, histories[1]))
    assert [0, 3, 1] == registry.space_ids()


def test_an_index_that_grows_displaces_others() -> None:
    """An index that grows evicts those that were used less recently."""
    first, second = a_space(50), a_space(50)
    registry = IndexRegistry(index_bytes(SPEC, 120))
    at(registry, 1, first)
    at(registry, 2, second)
    for model in range(50, 100):
        second.put(model, signature(model))
    assert 100 == len(at(registry, 2, second))
    assert [2] == registry.space_ids()


def test_a_space_too_large_for_the_registry_is_served() -> None:
    """The index that is in use stays, alone."""
    small, large = a_space(5), a_space(500)
    registry = IndexRegistry(index_bytes(SPEC, 100))
    at(registry, 1, small)
    assert 500 == len(at(registry, 2, large))
    assert [2] == registry.space_ids()
    assert at(registry, 2, large) is at(registry, 2, large)


def test_an_index_takes_the_planned_bytes() -> None:
    """A new index takes the planned bytes; dead rows count until they are dropped."""
    index, history = SpaceIndex(SPEC), a_space(300)
    index.snapshot_at(history.version, history)
    assert index_bytes(SPEC, 300) == index.nbytes
    history.remove(7)
    index.snapshot_at(history.version, history)
    assert index_bytes(SPEC, 299) < index.nbytes <= index_bytes(SPEC, 300)


def test_a_load_makes_its_arrays_once() -> None:
    """A quarter more models than are loaded have room in the arrays that the load made."""
    index, history = SpaceIndex(SPEC), a_space(800)
    loaded = index.snapshot_at(history.version, history).rows
    for model in range(800, 1000):
        history.put(model, signature(model))
    grown = index.snapshot_at(history.version, history)
    assert 1000 == len(grown)
    assert np.shares_memory(loaded.blocks[0], grown.rows.blocks[0])


def test_a_load_that_failed_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one reads all models, each once."""
    index, history = SpaceIndex(SPEC), a_space(120)

    def cut_off(since: int) -> Iterable[ChangedModels]:
        yield next(iter(History.changed_since(history, since)))
        raise OSError("lost")

    with monkeypatch.context() as patched:
        patched.setattr(history, "changed_since", cut_off)
        with pytest.raises(OSError, match="lost"):
            index.snapshot_at(history.version, history)
    snapshot = index.snapshot_at(history.version, history)
    assert list(range(120)) == sorted(snapshot.ids[snapshot.alive].tolist())


@given(n=st.integers(1, 300), count=st.integers(1, 40), seed=st.integers(0, 9))
@settings(max_examples=40)
def test_the_parts_of_a_scan_give_the_same(n: int, count: int, seed: int) -> None:
    """Cores that share the rows propose what one alone does, ties included."""
    history, query = a_space(n), signature(1000 + seed)
    for model in range(0, n, 7):
        history.remove(model)
    snapshot = SpaceIndex(SPEC).snapshot_at(history.version, history)
    alone = candidates(snapshot, query, count)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(parts, "MIN_ROWS", 16)
        patched.setattr(parts, "cores", lambda: 5)
        shared = candidates(snapshot, query, count)
    assert history.best(query, count) == alone == shared
