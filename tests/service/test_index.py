"""The signature index of one space, held against a dict that is told the same."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.index.registry import IndexRegistry
from app.index.space_index import Snapshot, SpaceIndex
from modelkin.types import SignatureSpec

H = 8
SPEC = SignatureSpec("affine32", H, 1)


@dataclass
class History:
    """A space as its database would tell it: what changed at which version."""

    version: int = 0
    values: dict[int, npt.NDArray[np.uint32]] = field(default_factory=dict)
    changed_at: dict[int, int] = field(default_factory=dict)
    removed_at: list[tuple[int, int]] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)

    def put(self, model: int, values: npt.NDArray[np.uint32]) -> None:
        """The model has this signature from now on."""
        self.version += 1
        self.values[model], self.changed_at[model] = values, self.version

    def remove(self, model: int) -> None:
        """The model is gone; its id is never used again."""
        self.version += 1
        del self.values[model], self.changed_at[model]
        self.removed_at.append((self.version, model))

    def changed(self, since: int) -> Iterable[tuple[int, bytes]]:
        self.asked.append(since)
        for model, version in sorted(self.changed_at.items(), key=lambda entry: entry[1]):
            if version > since:
                yield model, self.values[model].astype("<u4").tobytes()

    def removed(self, since: int) -> Iterable[int]:
        return [model for version, model in self.removed_at if version > since]

    def best(self, query: npt.NDArray[np.uint32], count: int) -> tuple[set[int], set[int]]:
        """The models that must be among ``count`` candidates, and those that may be: the tied."""
        low = query.astype(np.uint8)
        matches = {m: int((v.astype(np.uint8) == low).sum()) for m, v in self.values.items()}
        if len(matches) <= count:
            return set(matches), set(matches)
        threshold = sorted(matches.values(), reverse=True)[count - 1]
        tied = {model for model, found in matches.items() if found >= threshold}
        return {model for model in tied if matches[model] > threshold}, tied


def signature(number: int) -> npt.NDArray[np.uint32]:
    """The values of some model: bytes of few kinds, so that they match often."""
    random = np.random.default_rng(number)
    return (random.integers(0, 3, H) + 256 * random.integers(0, 9, H)).astype(np.uint32)


def candidates(snapshot: Snapshot, query: npt.NDArray[np.uint32], count: int) -> set[int]:
    """The candidates, which must be distinct."""
    found = snapshot.candidates(query, count).tolist()
    assert len(set(found)) == len(found)
    return set(found)


# Numbers name models; the sign says whether one is put or removed, 0 asks the index.
WORK = st.lists(st.integers(-12, 12) | st.just(0), max_size=150)


@settings(max_examples=60, deadline=None)
@given(work=WORK, counts=st.integers(1, 14), seed=st.integers(0, 2**16))
def test_the_index_follows_its_space(work: list[int], counts: int, seed: int) -> None:
    """After any changes, in batches of any size, the candidates are those of a dict."""
    index, history, query = SpaceIndex(SPEC), History(), signature(seed)
    ids: dict[int, int] = {}
    for step, number in enumerate([*work, 0]):
        if number == 0:
            found = candidates(index.at(history.version, history), query, counts)
            must, may = history.best(query, counts)
            assert must <= found <= may
            assert min(counts, len(history.values)) == len(found)
            assert len(history.values) == len(index)
        elif number > 0:
            ids.setdefault(number, 1000 * number + step)
            history.put(ids[number], signature(step))
        elif -number in ids:
            history.remove(ids.pop(-number))


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 5000])
def test_a_space_of_any_size_is_read_whole(n: int) -> None:
    """Around every size at which arrays grow or batches end, each model is there once."""
    index, history = SpaceIndex(SPEC), History()
    for model in range(n):
        history.put(model, signature(model))
    snapshot = index.at(history.version, history)
    assert set(range(n)) == candidates(snapshot, signature(1), n + 1)


def test_a_snapshot_stays_what_it_was() -> None:
    """What a query holds does not change while the index grows, forgets and compacts."""
    index, history = SpaceIndex(SPEC), History()
    for model in range(100):
        history.put(model, signature(model))
    taken = [(index.at(history.version, history), dict(history.values))]
    for model in range(100, 400):
        history.put(model, signature(model))
        history.remove(model - 100)
        if model % 7 == 0:
            taken.append((index.at(history.version, history), dict(history.values)))
    for snapshot, values in taken:
        assert set(values) == candidates(snapshot, signature(0), 1000)
        rows = dict(zip(snapshot.ids[snapshot.alive], snapshot.rows[snapshot.alive], strict=True))
        assert all((rows[m] == v.astype(np.uint8)).all() for m, v in values.items())


def test_dead_rows_are_dropped() -> None:
    """A space whose models are replaced again and again does not grow without end."""
    index, history = SpaceIndex(SPEC), History()
    for _ in range(60):
        for model in range(50):
            history.put(model, signature(history.version))
        snapshot = index.at(history.version, history)
    assert 50 == len(index)
    assert snapshot.ids.size <= 200
    assert index.nbytes < 10_000


def test_what_is_known_is_not_asked_again() -> None:
    """An index that is not behind asks nothing, one that is asks for what is new alone."""
    index, history = SpaceIndex(SPEC), History()
    history.put(1, signature(1))
    index.at(1, history)
    history.put(2, signature(2))
    index.at(2, history)
    index.at(2, history)
    index.at(1, history)
    assert [0, 1] == history.asked


def test_among_leaves_the_others_out() -> None:
    """Candidates are chosen among the given ids, as many as were asked for."""
    index, history = SpaceIndex(SPEC), History()
    for model in range(50):
        history.put(model, signature(model))
    snapshot = index.at(history.version, history)
    among = np.array([3, 7, 49, 1000], np.int64)
    assert {3, 7, 49} == set(snapshot.candidates(signature(0), 5, among=among).tolist())
    none = np.array([], np.int64)
    assert [] == snapshot.candidates(signature(0), 5, among=none).tolist()


def test_64_bit_signatures_are_cut_to_their_lowest_byte() -> None:
    """The values of affine64 are read eight bytes at a time."""
    index = SpaceIndex(SignatureSpec("affine64", H, 1))
    values = np.arange(H, dtype=np.uint64) + (1 << 60)

    class Feed:
        def changed(self, since: int) -> Iterable[tuple[int, bytes]]:
            return [(5, values.astype("<u8").tobytes())]

        def removed(self, since: int) -> Iterable[int]:
            return []

    snapshot = index.at(1, Feed())
    assert ([5], list(range(H))) == (snapshot.ids.tolist(), snapshot.rows[0].tolist())


def test_the_registry_keeps_one_index_a_space() -> None:
    """The same space has the same index until it is forgotten."""
    registry = IndexRegistry()
    first = registry.of(1, SPEC)
    assert first is registry.of(1, SPEC)
    assert first is not registry.of(2, SPEC)
    registry.forget(1)
    registry.forget(77)
    assert first is not registry.of(1, SPEC)
