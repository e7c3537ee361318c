"""Scans that read half of the bytes first, beside those that read all of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.models.index import columns
from app.models.index.columns import ByteColumns
from app.models.index.rows import OrderedRows
from app.models.index.scan import MISSED, Scan, least_in_first
from app.models.index.space_index import Snapshot

N, H, KIN = 6_000, 256, 20
Bytes = npt.NDArray[np.uint8]


@pytest.fixture(autouse=True)
def small_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows lie in halves from 1,000 on."""
    monkeypatch.setattr(columns, "MIN_HALVED_ROWS", 1_000)


def a_space(shared: float, seed: int = 1, kin: int = KIN) -> tuple[Snapshot, Bytes]:
    """A snapshot of N models, unrelated but for kin of the query, and the query; some are dead."""
    rng = np.random.default_rng(seed)
    query = rng.integers(0, 256, H, dtype=np.uint8)
    values = rng.integers(0, 256, (N, H), dtype=np.uint8)
    values = np.where(rng.random((N, H)) < 0.05, query, values)
    values[:kin] = np.where(rng.random((kin, H)) < shared, query, values[:kin])
    rows = ByteColumns.empty(N, H)
    rows.write(0, values)
    alive = rng.random(N) < 0.9
    alive[:kin] = True
    ids, dead = np.arange(N) + 7, np.flatnonzero(~alive)
    ordered = OrderedRows(ids, np.arange(N, dtype=np.int32), N)
    return Snapshot(1, rows, ids, np.zeros(N, np.int64), alive, dead, ordered), query


def above(scan: Scan, least: int) -> dict[int, int]:
    """The models with so many equal bytes or more, and how many."""
    found = zip(scan.ids.tolist(), scan.matches.tolist(), strict=True)
    return {model: matches for model, matches in found if matches >= least}


@pytest.mark.parametrize("seed", range(12))
def test_the_nearest_are_those_of_a_whole_scan(seed: int) -> None:
    """No model above the floor is missing, and the second half is read of one in six at most."""
    snapshot, query = a_space(0.3, seed)
    some, whole = snapshot.scan(query, nearest=10), snapshot.scan(query)
    assert 0 < some.floor < int(np.sort(whole.matches)[-10])
    assert some.ids.size <= N / 6
    assert above(whole, some.floor) == above(some, some.floor)


def test_models_below_the_floor_are_read_when_they_are_asked_for() -> None:
    """Others that are compared are those of a whole scan, though the first did not read them."""
    snapshot, query = a_space(0.3)
    some, whole = snapshot.scan(query, nearest=10), snapshot.scan(query)
    best = some.best(12)
    for least in (some.floor - 20, some.floor - 1, some.floor, some.floor + 9):
        others = some.others(best, least)
        wanted = above(whole, least).keys() - set(best.ids.tolist())
        assert wanted == set(others.ids.tolist())


@pytest.mark.parametrize(("shared", "nearest"), [(0.03, 10), (0.3, KIN + 5), (0.3, N)])
def test_all_is_read_where_the_nearest_are_not_near(shared: float, nearest: int) -> None:
    """A floor that half of the bytes cannot decide about leaves no model out."""
    snapshot, query = a_space(shared)
    some, whole = snapshot.scan(query, nearest=nearest), snapshot.scan(query)
    assert 0 == some.floor
    assert whole.matches.tolist() == some.matches.tolist()


def test_a_least_similarity_raises_the_floor() -> None:
    """Models that the answer would not hold need not be found, few kin or many."""
    snapshot, query = a_space(0.3, kin=3)
    assert 0 == snapshot.scan(query, nearest=10).floor
    some = snapshot.scan(query, nearest=10, least=70)
    assert 70 == some.floor
    assert above(snapshot.scan(query), 70) == above(some, 70) != {}


def test_few_rows_lie_whole_and_are_all_read() -> None:
    """A small index answers as it always did."""
    rows = ByteColumns.empty(999, H)
    assert 1 == len(rows.blocks)
    assert 1 == len(ByteColumns.empty(5_000, 32).blocks)
    assert [128, 128] == [block.shape[1] for block in ByteColumns.empty(1_000, H).blocks]


@given(
    n=st.integers(1, 40),
    h=st.sampled_from([64, 65, 100, 257]),
    spare=st.sampled_from([0, 1_000]),
    back=st.sampled_from([0, 1_000]),
)
def test_bytes_are_the_same_in_any_blocks(n: int, h: int, spare: int, back: int) -> None:
    """Rows written, moved to another layout, and counted equal a plain array of them."""
    rng = np.random.default_rng(n * h)
    values = rng.integers(0, 900, (n, h), dtype=np.uint32)
    values[rng.random((n, h)) < 0.5] = 7
    whole, low = values.astype(np.uint8), np.full(h, 7, np.uint8)
    written = ByteColumns.empty(n + spare, h)
    written.write(0, values)
    kept = rng.permutation(n)
    moved = ByteColumns.empty(n + back, h)
    moved.copy(written, kept, n)
    assert np.array_equal(whole[kept], moved[np.arange(n)])
    expected = (whole[kept] == 7).sum(axis=1)
    assert np.array_equal(expected, moved.first(n).counts(low))
    assert np.array_equal(expected[::2], moved.counts_at(low, np.arange(0, n, 2), since=0))
    first = moved.first(n).counts(low, until=1)
    if moved.halved:
        assert np.array_equal((whole[kept] == 7)[:, : h // 2].sum(axis=1), first)
        assert np.array_equal(expected, moved.first(n).add_rest(low, first, np.empty(0, np.int64)))


def test_the_first_half_hides_as_few_as_it_says() -> None:
    """Of rows whose equal bytes lie anywhere, a share of MISSED has fewer than the least ones."""
    rng, h = np.random.default_rng(5), 256
    for matches in (40, 60, 128, 250):
        least = least_in_first(matches, h, h // 2)
        drawn = rng.hypergeometric(h // 2, h // 2, matches, 1_000_000)
        assert (drawn < least).mean() <= 1.5 * MISSED
        assert (drawn <= least).mean() > 0.5 * MISSED
    assert (0, 32) == (least_in_first(0, 64, 32), least_in_first(64, 64, 32))
