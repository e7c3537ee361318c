"""The finding index: what it answers, whatever it was fed, flushed and merged meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.fingerprints.finding.index import FindingIndex
from app.fingerprints.finding.records import Found
from app.fingerprints.finding.rounds import MOST_HOLDERS
from app.fingerprints.finding.segment_store import SegmentStore
from app.fingerprints.finding.tenant_index import TenantIndex
from app.infra.deadlines import NEVER
from modelkin.core.fingerprints.fingerprint import Fingerprint
from tests.app.fingerprints.finding.made_hub import Hub, fingerprint, keys

TENANT = 7
HELD = 600
"""Keys of a made fingerprint, all of which it is found by."""


@pytest.fixture
def draw() -> np.random.Generator:
    """Seeded."""
    return np.random.default_rng(5)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[FindingIndex]:
    """One that writes its tail from some 30 fingerprints on."""
    made = FindingIndex(tmp_path, tail_entries=30 * HELD)
    yield made
    made.close()


def find(index: FindingIndex, hub: Hub, asked: Fingerprint, *left_out: int) -> Found:
    return index.find_by(hub, TENANT, asked, leave_out=left_out, deadline=NEVER)


def ids(found: Found, number: int | None = None) -> set[int]:
    return {each.id for each in found.candidates if number in (None, each.round)}


# A change is a put of one of some key sets under an id, a removal of an id, or a restart.
CHANGES = st.lists(
    st.tuples(st.sampled_from("pppprt"), st.integers(1, 12), st.integers(0, 5)), max_size=60
)


@settings(max_examples=60, deadline=None)
@given(changes=CHANGES, tail=st.sampled_from([1, 40, 200, 10_000]))
def test_holders_are_those_of_a_dict(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[str, int, int]], tail: int
) -> None:
    """After any puts, removals, writes, merges and restarts each key has its present holders."""
    draw = np.random.default_rng(2)
    sets = [fingerprint(keys(draw, count)) for count in (3, 40, 400, 0, 41, 39)]
    sets[4] = fingerprint(np.union1d(sets[1].keys, sets[0].keys))
    store = SegmentStore(tmp_path_factory.mktemp("f") / "1")
    index, hub = TenantIndex(store, tail_entries=tail), Hub(page=3)
    for what, id_, number in changes:
        if what == "p":
            hub.put(id_, sets[number])
        elif what == "t":
            index = TenantIndex(store, tail_entries=tail)
        elif id_ in hub.changed:
            hub.remove(id_)
        index.snapshot_at(hub, NEVER)
        index.tidy()
    asked = np.unique(np.concatenate([each.keys for each in sets]))
    snapshot = index.snapshot_at(hub, NEVER)
    holders = snapshot.holders(asked, MOST_HOLDERS)
    found = zip(holders.at.tolist(), snapshot.ids(holders.slots).tolist(), strict=True)
    expected = {
        (at, each.id)
        for each in hub.changed.values()
        for at in np.flatnonzero(np.isin(asked, each.keys)).tolist()
    }
    assert expected == set(found)
    assert len(hub.changed) == len(index)


def test_a_key_lists_its_first_holders(draw: np.random.Generator, tmp_path: Path) -> None:
    """The lowest ranks, from all segments; those that are gone leave their places to others."""
    hub, base = Hub(page=20), fingerprint(keys(draw, 20))
    index = TenantIndex(SegmentStore(tmp_path / "1"), tail_entries=600)
    for id_ in range(1, 200):
        hub.put(id_, base, rank=1000 - id_)
    index.snapshot_at(hub, NEVER)
    for id_ in range(120, 190):
        hub.remove(id_)
    holders = index.snapshot_at(hub, NEVER).holders(base.keys, MOST_HOLDERS)
    listed = index.snapshot_at(hub, NEVER).ids(holders.slots).reshape(20, -1)
    assert [[*range(199, 189, -1), *range(119, 65, -1)]] * 20 == listed.tolist()
    assert holders.more.all()


def planted(draw: np.random.Generator, base: Fingerprint, share: float) -> Fingerprint:
    """A model with a part of a base's keys, and its own."""
    kept = base.keys[draw.random(base.keys.size) < share]
    return fingerprint(np.union1d(kept, keys(draw, base.keys.size - kept.size)))


def with_strangers(draw: np.random.Generator, *models: Fingerprint) -> Hub:
    """A hub of these models, whose ids begin at 1, and of 40 strangers."""
    hub = Hub()
    for id_, each in enumerate(models, 1):
        hub.put(id_, each)
    for id_ in range(1000, 1040):
        hub.put(id_, fingerprint(keys(draw, HELD)))
    return hub


def test_kin_are_found_and_strangers_are_not(
    draw: np.random.Generator, index: FindingIndex
) -> None:
    """A base and its children, the nearest first; the asked model is left out on request."""
    base = fingerprint(keys(draw, HELD))
    children = [planted(draw, base, share) for share in (0.9, 0.5, 0.1)]
    hub = with_strangers(draw, base, *children)
    found = find(index, hub, children[1], 3)
    assert [1, 2] == [each.id for each in found.candidates][:2]
    assert {1, 2} <= ids(found) <= {1, 2, 4}
    assert (False, 0, 44) == (found.truncated, found.common, found.compared)
    assert 3 == find(index, hub, children[1]).candidates[0].id
    assert set() == ids(find(index, hub, fingerprint(keys(draw, HELD))))


def test_an_answer_is_current(draw: np.random.Generator, index: FindingIndex) -> None:
    """What was put, replaced or removed before a question is in its answer."""
    base = fingerprint(keys(draw, HELD))
    hub = with_strangers(draw, base)
    assert {1} == ids(find(index, hub, base))
    hub.put(50, base)
    assert {1, 50} == ids(find(index, hub, base))
    hub.put(1, fingerprint(keys(draw, HELD)))
    assert {50} == ids(find(index, hub, base))
    hub.remove(50)
    assert set() == ids(find(index, hub, base))


def test_a_second_parent_is_found_in_a_later_round(
    draw: np.random.Generator, index: FindingIndex
) -> None:
    """Beside a base with more children than a list holds, down to 2% of the lines."""
    base, second = (fingerprint(keys(draw, HELD)) for _ in range(2))
    hub = with_strangers(draw, base, second, *(planted(draw, base, 0.6) for _ in range(150)))
    parts = base.keys[:500], second.keys[draw.permutation(second.keys.size)[:12]]
    found = find(index, hub, fingerprint(np.concatenate([*parts, keys(draw, 88)])))
    assert found.truncated
    assert 1 == found.candidates[0].id
    assert {2} == ids(found, 2)
    assert set() == ids(found, 3)


@pytest.mark.parametrize("siblings", [1, 60])
@pytest.mark.parametrize("is_whole", [True, False])
def test_a_second_parent_is_found_that_kin_of_the_first_have_in_them(
    draw: np.random.Generator, index: FindingIndex, siblings: int, is_whole: bool
) -> None:
    """Whether they have all of it or the same 2%: its keys are neither left with theirs nor common.

    Sixty and the parent are as many as are listed of a key.
    """
    base, second = (fingerprint(keys(draw, HELD)) for _ in range(2))
    theirs = second.keys[draw.permutation(second.keys.size)[:12]]
    children = [planted(draw, each, 0.6) for each in (*[base] * 150, *[second] * 3)]
    hub = with_strangers(draw, base, second, *children)
    for id_ in range(2000, 2000 + siblings):
        half = base.keys[draw.random(base.keys.size) < 0.5]
        hub.put(id_, fingerprint(np.union1d(half, second.keys if is_whole else theirs)))
    found = find(index, hub, fingerprint(np.concatenate([base.keys[:500], theirs, keys(draw, 88)])))
    assert 1 == found.candidates[0].id
    assert 2 in ids(found, 2)


def test_a_declared_base_is_found_behind_its_children(
    draw: np.random.Generator, index: FindingIndex
) -> None:
    """A key lists the oldest, and the base may be the youngest: what these declare is looked up."""
    base = fingerprint(keys(draw, HELD))
    hub = with_strangers(draw, *(planted(draw, base, 0.95) for _ in range(200)))
    hub.put(900, base)
    asked = planted(draw, base, 0.7)
    assert 900 not in ids(find(index, hub, asked))
    hub.names["base"] = 900
    hub.bases = dict.fromkeys(range(1, 100), ("base", "another"))
    assert 900 == find(index, hub, asked).candidates[0].id


@pytest.mark.parametrize("share", [0.1, 0.4, 0.6])
def test_a_table_of_unrelated_models_makes_no_kin(
    draw: np.random.Generator, index: FindingIndex, share: float
) -> None:
    """Word vectors that three embed are marked; two that share more, or only two, are kin."""
    table, size = keys(draw, HELD), int(share * HELD)
    table = table[draw.permutation(table.size)[:size]]

    def model() -> Fingerprint:
        return fingerprint(np.union1d(table, keys(draw, HELD - size)))

    hub, asked = with_strangers(draw, model()), model()
    assert {1} == ids(find(index, hub, asked))
    hub.put(2, model())
    found = find(index, hub, asked)
    assert (set(), size) == (ids(found), found.common)
    hub.put(3, planted(draw, asked, 0.5))
    found = find(index, hub, asked)
    assert ({3}, size) == (ids(found), found.common)


def test_a_table_is_told_beside_a_large_family_that_has_it(
    draw: np.random.Generator, index: FindingIndex
) -> None:
    """Sixty children of one model have it with their base; two others come behind all of them."""
    table = keys(draw, 240)
    first = fingerprint(np.union1d(table, keys(draw, HELD - 240)))
    family = [planted(draw, first, 0.95) for _ in range(60)]
    others = [
        fingerprint(np.union1d(table, keys(draw, HELD - 240)), lines=400 * HELD) for _ in range(2)
    ]
    hub = with_strangers(draw, first, *family, *others)
    found = find(index, hub, fingerprint(np.union1d(table, keys(draw, HELD - 240))))
    assert set() == ids(found)
    assert found.common > 200


def test_a_table_of_models_of_other_sizes_is_common(
    draw: np.random.Generator, index: FindingIndex
) -> None:
    """Larger models keep fewer of its keys."""
    table = keys(draw, 300)

    def model(scale: int) -> Fingerprint:
        held = np.union1d(table[table <= (2**64 - 1) // scale], keys(draw, HELD - 300, scale))
        return fingerprint(held, scale)

    hub = with_strangers(draw, *(model(scale) for scale in (16, 32, 64, 64)))
    found = find(index, hub, model(16))
    assert (set(), 300) == (ids(found), found.common)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9, 1.0])
def test_a_family_has_no_common_keys(
    draw: np.random.Generator, index: FindingIndex, share: float
) -> None:
    """Children of one base, near or far, with it or without, and copies of one file are kin."""
    base = fingerprint(keys(draw, HELD))
    children = [planted(draw, base, share) for _ in range(6)]
    found = find(index, with_strangers(draw, *children), planted(draw, base, share))
    assert (set(range(1, 7)), 0) == (ids(found), found.common)


def test_heads_on_a_frozen_base_are_kin_of_it(
    draw: np.random.Generator, index: FindingIndex
) -> None:
    """A base that others took whole is where its keys come from."""
    base = keys(draw, 300)
    heads = [fingerprint(np.union1d(base, keys(draw, 300))) for _ in range(4)]
    hub = with_strangers(draw, fingerprint(base), *heads[1:])
    found = find(index, hub, heads[0])
    assert ({1, 2, 3, 4}, 0) == (ids(found), found.common)


def test_a_small_model_is_found_as_a_part_of_a_large_one(
    draw: np.random.Generator, index: FindingIndex
) -> None:
    """One line in fifty: more of the large one's keys are looked up than it is found by."""
    part = fingerprint(keys(draw, HELD, 1), 1)
    hub = with_strangers(draw, part)
    scale, lines = 16, 50 * HELD
    shared = part.keys[part.keys <= (2**64 - 1) // scale]
    whole = np.union1d(shared, keys(draw, lines // scale - shared.size, scale))
    found = find(index, hub, fingerprint(whole, scale, lines=lines))
    assert {1} == ids(found)
    assert shared.size == found.candidates[0].keys
