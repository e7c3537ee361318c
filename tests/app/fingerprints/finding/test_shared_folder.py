"""Indexes that share a folder, each asked in transactions of its own age."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.fingerprints.finding.segment_store import SegmentStore
from app.fingerprints.finding.tenant_index import TenantIndex
from app.infra.deadlines import Deadline
from app.infra.errors import Unavailable
from tests.app.fingerprints.finding.made_hub import Hub, fingerprint, keys

SETS = [fingerprint(keys(np.random.default_rng(7), count)) for count in (2, 30, 60, 90)]
ASKED = np.unique(np.concatenate([each.keys for each in SETS]))

HISTORY = st.lists(st.tuples(st.sampled_from("nnnpr"), st.integers(0, 30), st.integers(0, 3)))
# Which index is asked, by how many versions its transaction is behind, what it does besides, and
# after how many pages it has no more time.
QUESTIONS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, 6),
        st.sampled_from(["", "", "tidy", "restart", "again"]),
        st.integers(0, 9),
    ),
    max_size=25,
)


class Pages(Deadline):
    """A time of some pages."""

    def __init__(self, pages: int) -> None:
        super().__init__(60.0)
        self._left = pages

    def passed(self) -> bool:
        """Count a page."""
        self._left -= 1
        return self._left == 0


def hub_of(history: list[tuple[str, int, int]], version: int) -> Hub:
    """The hub after the first changes: new models, others in their place, and removals."""
    hub = Hub(page=2)
    for at, (what, which, number) in enumerate(history[:version]):
        known = sorted(hub.changed)
        if what == "n" or not known:
            hub.put(at + 1, SETS[number])
        elif what == "p":
            hub.put(known[which % len(known)], SETS[number])
        else:
            hub.remove(known[which % len(known)])
    return hub


@settings(max_examples=150, deadline=None)
@given(history=HISTORY, questions=QUESTIONS, tail=st.sampled_from([1, 50, 200, 10_000]))
def test_no_index_answers_from_the_past(
    tmp_path_factory: pytest.TempPathFactory,
    history: list[tuple[str, int, int]],
    questions: list[tuple[int, int, str, int]],
    tail: int,
) -> None:
    """A holder is there as the transaction sees it, unless a later change is there already."""
    store = SegmentStore(tmp_path_factory.mktemp("f") / "1")
    indexes = [TenantIndex(store, tail_entries=tail) for _ in range(3)]
    last = hub_of(history, len(history))
    for step, (who, behind, does, pages) in enumerate(questions, 1):
        now = len(history) * step // len(questions)
        version = max(0, now - behind)
        hub = hub_of(history, version)
        index = indexes[who]
        try:
            snapshot = index.snapshot_at(hub, Pages(pages))
        except Unavailable:
            continue
        holders = snapshot.holders(ASKED, 64)
        found = set(zip(holders.at.tolist(), snapshot.ids(holders.slots).tolist(), strict=True))
        later = {each.id for each in last.changed.values() if each.version > version}
        later |= set(last.removed_since(version))
        expected = {
            (at, each.id)
            for each in hub.changed.values()
            for at in np.flatnonzero(np.isin(ASKED, each.keys)).tolist()
        }
        differing = {id_ for _, id_ in found ^ expected}
        assert differing <= (later if snapshot.version > version else set())
        if does == "tidy":
            index.tidy()
        elif does == "restart":
            indexes[who] = TenantIndex(store, tail_entries=tail)
        elif does == "again":
            index.start_again()
