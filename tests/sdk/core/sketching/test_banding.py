"""Banding: keys that stay, the collision curve and what is seen of it, the choice of a banding."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkin.core.kernels import fast, reference
from modelkin.core.sketching.banding import (
    DEFAULT_BANDING,
    Banding,
    band_keys,
    banding_for,
    collision_probability,
    default_banding,
    recall_at,
)
from modelkin.errors import InvalidParameter

M64 = 2**64


def drawn(n: int, h: int, dtype: Any = np.uint32, seed: int = 0) -> npt.NDArray[Any]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, np.iinfo(dtype).max, (n, h), dtype=dtype, endpoint=True)


def mix(x: int) -> int:
    """One step of SplitMix64 in Python's own integers."""
    x = (x + 0x9E3779B97F4A7C15) % M64
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) % M64
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) % M64
    return x ^ x >> 31


def test_keys_are_golden(each_kernels: ModuleType) -> None:
    """These keys are constants, since buckets on disk are found by them."""
    keys = band_keys(np.arange(8, dtype=np.uint32), Banding(2, 4))
    assert [14823854466436559696, 13958706289013259680] == keys.tolist()


@given(values=st.lists(st.integers(0, M64 - 1), min_size=1, max_size=12), data=st.data())
def test_keys_are_folded_values(
    each_kernels: ModuleType, values: list[int], data: st.DataObject
) -> None:
    """A key is the band's number and its values folded by SplitMix64, for any banding."""
    rows = data.draw(st.integers(1, len(values)))
    expected = []
    for band in range(len(values) // rows):
        key = mix(band)
        for value in values[band * rows : (band + 1) * rows]:
            key = mix(key ^ value)
        expected.append(key)
    made = band_keys(np.array(values, np.uint64), Banding(len(values) // rows, rows))
    assert expected == made.tolist()


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_kernels_agree_on_many(dtype: Any) -> None:
    """Keys of many signatures are those of each, whichever kernels make them."""
    values = drawn(50, 30, dtype)
    expected = [band_keys(row, Banding(7, 4)).tolist() for row in values]
    assert expected == reference.band_keys(values, 7, 4).tolist()
    assert expected == fast.band_keys(values, 7, 4).tolist()


def test_keys_are_uniform() -> None:
    """Keys of small consecutive numbers fill the values of their top and of their low byte evenly,
    by the chi-squared statistic at five standard deviations.
    """
    keys = band_keys(np.arange(256_000, dtype=np.uint32).reshape(-1, 256), DEFAULT_BANDING)
    for shift in (0, 56):
        counts = np.bincount(((keys >> np.uint64(shift)) & np.uint64(255)).ravel().astype(int))
        expected = keys.size / 256
        assert abs(((counts - expected) ** 2 / expected).sum() - 255) < 5 * np.sqrt(2 * 255)


def test_no_two_bands_share_a_key() -> None:
    """Equal values in another band, or in another order, make another key."""
    keys = band_keys(np.array([1, 2, 1, 2, 2, 1, 0, 0], np.uint32), Banding(4, 2))
    assert 4 == np.unique(keys).size


@pytest.mark.parametrize("banding", [Banding(64, 4), Banding(85, 3), Banding(128, 2)])
@pytest.mark.parametrize("similarity", [0.3, 0.5, 0.7])
def test_observed_recall_follows_the_curve(banding: Banding, similarity: float) -> None:
    """Of 4,000 pairs at S as many share a bucket as the curve says, within four standard errors
    and a thousandth.
    """
    rng, h, n = np.random.default_rng(int(100 * similarity) + banding.rows), 256, 4000
    a, b = drawn(n, h, seed=1), drawn(n, h, seed=2)
    b = np.where(rng.random((n, h)) < similarity / (2 - similarity), a, b)
    found = (band_keys(a, banding) == band_keys(b, banding)).any(axis=1).mean()
    expected = recall_at(similarity, banding)
    assert abs(found - expected) <= 4 * np.sqrt(expected * (1 - expected) / n) + 0.001


def test_the_curve() -> None:
    """The curve at points worked out by hand, at both ends, and where it is too small to subtract
    from 1.
    """
    assert 1 - (1 - 0.5**2) ** 3 == pytest.approx(collision_probability(0.5, Banding(3, 2)))
    assert (0.0, 1.0) == tuple(collision_probability(j, DEFAULT_BANDING) for j in (0.0, 1.0))
    assert 1e-60 == pytest.approx(collision_probability(1e-3, Banding(1, 20)), rel=1e-12)
    assert [0.06, 0.55, 1.0] == [round(recall_at(s, DEFAULT_BANDING), 2) for s in (0.3, 0.5, 0.7)]


@pytest.mark.parametrize("similarity", [0.2, 0.3, 0.5, 0.68, 0.9])
@pytest.mark.parametrize("h", [16, 64, 256])
def test_no_banding_is_more_selective(similarity: float, h: int) -> None:
    """Of all bandings that reach the recall none meets fewer unrelated models, at J of .05 or
    .1.
    """
    every = (Banding(b, r) for r in range(1, h + 1) for b in range(1, h // r + 1))
    able = [each for each in every if recall_at(similarity, each) >= 0.99]
    chosen = banding_for(similarity, h)
    assert (chosen is None) == (not able)
    if chosen is None:
        return
    for jaccard in (0.05, 0.1):
        least = min(collision_probability(jaccard, each) for each in able)
        assert least == pytest.approx(collision_probability(jaccard, chosen))


def test_what_no_banding_reaches() -> None:
    """Nothing finds models that share nothing, and one band finds equal ones."""
    assert banding_for(0.0, 256) is None
    assert Banding(1, 256) == banding_for(1.0, 256)


@pytest.mark.parametrize(
    ("h", "expected"),
    [(4096, (64, 4)), (256, (64, 4)), (128, (42, 3)), (64, (32, 2)), (4, (4, 1)), (1, (1, 1))],
)
def test_the_default_is_cut_to_size(h: int, expected: tuple[int, int]) -> None:
    """The default loses rows where signatures are short."""
    made = default_banding(h)
    assert expected == (made.bands, made.rows)


def test_the_default_finds_close_kin() -> None:
    """Whatever h is, 99% of the models at S = .7 are found, where any banding can do that."""
    for h in range(1, 400):
        made = default_banding(h)
        made.check(h)
        assert recall_at(0.7, made) >= 0.99 or banding_for(0.7, h) is None


@pytest.mark.parametrize(
    ("bands", "rows", "field"), [(0, 1, "bands"), (1, 0, "rows"), (True, 1, "bands"),
                                 (1, 2.0, "rows"), (4097, 1, "bands")]
)  # fmt: skip
def test_bandings_are_checked(bands: Any, rows: Any, field: str) -> None:
    """Bands and rows are positive integers whose product a signature can have."""
    with pytest.raises(InvalidParameter) as caught:
        Banding(bands, rows)
    assert field == caught.value.field


def test_short_signatures_are_refused() -> None:
    """A signature too short for a banding is an error that names both."""
    with pytest.raises(InvalidParameter, match="64 x 4 takes 256 values, signatures of 255"):
        band_keys(np.zeros(255, np.uint32), DEFAULT_BANDING)


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_probabilities_are_checked(value: float) -> None:
    """A Jaccard, a similarity or a recall outside 0 to 1, or not a number, is refused."""
    with pytest.raises(InvalidParameter, match="jaccard"):
        collision_probability(value, DEFAULT_BANDING)
    with pytest.raises(InvalidParameter, match="similarity"):
        banding_for(value, 256)
    with pytest.raises(InvalidParameter, match="recall"):
        banding_for(0.5, 256, recall=value)
