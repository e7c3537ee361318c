"""Who shares a mask with whom."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from modelkin.federation.sharing.pairwise_masks import neighbors


@given(st.sets(st.integers(0, 300), min_size=1, max_size=90), st.integers(0, 2**64 - 1))
@settings(max_examples=60)
def test_neighbourhood_is_mutual(places: set[int], seed: int) -> None:
    """All others up to 33 members; beyond, 32 neighbours on one ring, each knowing the other."""
    found = neighbors(sorted(places), seed)
    assert places == set(found)
    wanted = min(len(places) - 1, 32)
    for place, others in found.items():
        assert wanted == len(set(others) - {place})
        assert all(place in found[other] for other in others)
    reached, front = set[int](), {min(places)}
    while front:
        reached |= front
        front = {other for place in front for other in found[place]} - reached
    assert places == reached
