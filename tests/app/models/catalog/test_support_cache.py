"""The cache of open supports: bounded in number and in bytes, least recently used ones go first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.models.catalog.support_cache import SupportCache
from modelkin import Support
from modelkin.core.packed import PackedSupport


def packed(size: int) -> PackedSupport:
    """A support of so many times 640 parameters; every other one is ordered."""
    indices = range(0, 640 * size, 7)
    octaves = [rank.bit_length() - 1 for rank in range(1, len(indices) + 1)]
    support = Support.from_indices(indices, 640 * size, octaves=octaves if size % 2 else None)
    return PackedSupport.pack(support)


SUPPORTS = {key: packed(size) for size, key in enumerate("abcdefgh", start=1)}
USES = st.lists(st.sampled_from("abcdefgh"), max_size=60)


@given(uses=USES, most=st.integers(0, 9), most_bytes=st.sampled_from([0, 300, 900, 10**9]))
def test_it_keeps_the_most_recently_used(uses: list[str], most: int, most_bytes: int) -> None:
    """After any uses it equals a list in the order of use, within its limits.

    A support that is larger than the cache is not kept, and evicts no other.
    """
    opened, expected = SupportCache(most, most_bytes), list[str]()
    for key in uses:
        found = opened.get(key)
        assert (SUPPORTS[key] if key in expected else None) is found
        if found is None:
            opened.put(key, SUPPORTS[key])
        if size(key) <= most_bytes:
            expected = [other for other in expected if other != key] + [key]
        while len(expected) > most or sum(map(size, expected)) > most_bytes:
            expected.pop(0)
        assert (len(expected), sum(map(size, expected))) == (len(opened), opened.nbytes)


def size(key: str) -> int:
    return len(SUPPORTS[key].to_bytes())
