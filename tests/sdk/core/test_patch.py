"""``Patch``: what changes between two supports, and what is refused of one."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkin import wire
from modelkin.core.patch import Patch
from modelkin.core.support import Support
from modelkin.errors import DeltaMismatch, InvalidParameter, InvalidSupport, SpaceMismatch
from tests.sdk.core.ordered import ranked

SIZES = (2, 64, 1000, 2**32, 2**32 + 1, 2**63 - 1)
BEFORE = Support.from_indices([2, 5, 7], 10)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Support, Support]:
    """Two supports of one space, of 1 to 30 indices each, near one another or not."""
    m = draw(st.sampled_from(SIZES))
    index = st.integers(0, m - 1) | st.integers(0, min(m, 40) - 1)
    first = draw(st.sets(index, min_size=1, max_size=30))
    other = draw(st.sets(index, min_size=1, max_size=30))
    second = draw(st.sampled_from([other, first, first | other, (first - other) or first]))
    return Support.from_indices(sorted(first), m), Support.from_indices(sorted(second), m)


@pytest.mark.slow
@given(pairs())
def test_a_delta_leads_from_one_support_to_the_other(
    each_kernels: ModuleType, pair: tuple[Support, Support]
) -> None:
    """apply(patch(a, b), a) == b, and the patch is what Python's sets say."""
    a, b = pair
    patch = Patch.between(a, b)
    assert b == patch.apply(a)
    assert (b.indices.dtype, b.digest) == (patch.apply(a).indices.dtype, patch.digest)
    before, after = set(a.indices.tolist()), set(b.indices.tolist())
    assert sorted(after - before) == patch.added.tolist()
    assert sorted(before - after) == patch.removed.tolist()
    assert len(before ^ after) == patch.size


def test_a_large_delta_leads_there_too(each_kernels: ModuleType) -> None:
    """The same at 20,000 indices, of which a tenth changes."""
    random = np.random.default_rng(3)
    m = 200_000
    a = Support.from_indices(np.sort(random.choice(m, 20_000, replace=False)), m)
    kept = random.random(a.k) < 0.9
    new = random.choice(
        np.setdiff1d(np.arange(m), a.indices, assume_unique=True), 1_800, replace=False
    )
    b = Support.from_indices(np.union1d(a.indices[kept], new), m)
    assert b == Patch.between(a, b).apply(a)


@pytest.mark.parametrize(
    ("added", "removed", "field", "message"),
    [
        ([1, 5, 7], [], "added", "index 5 is to be added, but is already in the support"),
        ([], [0, 2, 9], "removed", "index 0 is to be removed, but is not in the support"),
        ([5], [5], "added", "index 5 is to be added"),
        ([6], [6], "removed", "index 6 is to be removed"),
        ([], [2, 5, 7], "removed", "removes all 3 indices"),
    ],
)
def test_what_does_not_fit_the_support_is_refused(
    added: list[int], removed: list[int], field: str, message: str
) -> None:
    """What is there already, is not there, or leaves nothing is named, the first index of it."""
    with pytest.raises(InvalidSupport, match=message) as caught:
        Patch.of(added, removed, 10).apply(BEFORE)
    assert field == caught.value.field


@pytest.mark.parametrize(
    ("added", "removed", "message"),
    [
        ([3, 1], [], r"added: indices are not sorted: indices\[0\] = 3 is followed by 1"),
        ([], [2, 2], "removed: indices are repeated"),
        ([10], [], "added: .*10 is out of range for 10 parameters"),
        ([-1], [], "added: .*negative"),
        ([0.5], [], "added: indices must be integers"),
        ([[1]], [], "added: indices must be one-dimensional"),
    ],
)
def test_what_makes_no_delta_is_refused(added: object, removed: object, message: str) -> None:
    """Indices are held to what those of a support are, and the error says which list it is."""
    with pytest.raises(InvalidSupport, match=message):
        Patch.of(added, removed, 10)


def test_everything_may_be_exchanged() -> None:
    """A patch may remove all there was, as long as it adds something."""
    assert Support.from_indices([0, 9], 10) == Patch.of([0, 9], [2, 5, 7], 10).apply(BEFORE)


def test_an_empty_delta_changes_nothing() -> None:
    """No index to add or to remove gives the same support."""
    patch = Patch.of([], [], 10)
    assert (0, BEFORE) == (patch.size, patch.apply(BEFORE))


def test_another_result_than_the_digest_says_is_refused() -> None:
    """The digest in the patch is compared with that of the result."""
    right = Support.from_indices([2, 5, 7, 8], 10)
    assert right == Patch.of([8], [], 10, digest=right.digest).apply(BEFORE)
    with pytest.raises(InvalidSupport, match="the result has the digest"):
        Patch.of([9], [], 10, digest=right.digest).apply(BEFORE)


def test_supports_of_two_spaces_have_no_delta() -> None:
    """Another M is an error, not an empty patch."""
    with pytest.raises(SpaceMismatch):
        Patch.between(BEFORE, Support.from_indices([2, 5, 7], 11))


def test_ordered_supports_have_no_delta() -> None:
    """Neither from one nor to one, and a patch of a plain support does not change one."""
    ordered = ranked([5, 2, 7], 10)
    message = "is ordered, and a patch has no place for octaves: send the support whole"
    for before, after in ((BEFORE, ordered), (ordered, BEFORE), (ordered, ordered)):
        with pytest.raises(InvalidParameter, match=message):
            Patch.between(before, after)
    with pytest.raises(InvalidParameter, match=message):
        Patch.of([1], [2], 10).apply(ordered)


def test_the_delta_of_a_plain_support_is_not_read_for_an_ordered_one() -> None:
    """In the native format the digest of the support before is another one."""
    data = wire.encode_patch(BEFORE, Support.from_indices([2, 5, 8], 10))
    with pytest.raises(DeltaMismatch, match="send the support whole"):
        wire.decode_patch(data, ranked([5, 2, 7], 10))
