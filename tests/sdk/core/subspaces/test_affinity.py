"""Affinities and angles against scipy, against the dense definition, and against supports."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.linalg
from hypothesis import example, given, settings
from hypothesis import strategies as st

from modelkin.core.similarity.overlap import similarity
from modelkin.core.subspaces.affinity import (
    Stack,
    SubspaceDistances,
    affinities,
    affinity,
    scaled_columns,
)
from modelkin.core.subspaces.angles import angles_between, principal_angles
from modelkin.core.subspaces.fit import fit_subspace
from modelkin.core.subspaces.subspace import Compare, Subspace
from modelkin.core.support import Support
from modelkin.errors import InvalidParameter, SpaceMismatch

Floats = npt.NDArray[np.float64]
SEEDS = st.integers(0, 2**32 - 1)
ANGLE_ERROR = 1e-12
FLOAT32_ERROR = 1e-6


def clients(seed: int, count: int = 3, *, features: int = 12, **options: Any) -> list[Subspace]:
    """Subspaces of clients, whose 40 samples have three classes."""
    rng = np.random.default_rng(seed)
    options = {"rank": 2, "whole_rank": 4, "samples_per_direction": 1} | options
    return [
        fit_subspace(rng.normal(size=(40, features)), rng.integers(0, 3, 40), **options)
        for _ in range(count)
    ]


def basis(rng: np.random.Generator, features: int, count: int) -> Floats:
    return np.linalg.qr(rng.normal(size=(features, count)))[0]


def assert_scipy_agrees(found: Floats, u: Floats, v: Floats) -> None:
    """The angles between the spans of two sets of columns are scipy's, as far as it knows them.

    It takes the arc cosine of some small angles, and the arc sine of some that are nearly right.
    Of angle t it then knows ``eps / sin t``, or ``eps / cos t``.
    """
    expected = np.sort(scipy.linalg.subspace_angles(u, v))
    lost = 1e-14 / np.maximum(np.minimum(np.sin(expected), np.cos(expected)), 1e-7)
    assert (np.abs(expected - found) <= ANGLE_ERROR + lost).all()


def root_of_density(subspace: Subspace, label: int | None) -> Floats:
    """The square root of the block's density operator, by scipy's general square root."""
    for block in subspace.blocks:
        if block.label == label:
            columns = block.columns.astype(np.float64)
            energies = np.diag(block.weights.astype(np.float64) ** 2)
            root = scipy.linalg.sqrtm(
                columns.T @ energies @ columns + 1e-15 * np.eye(columns.shape[1])
            )
            return np.asarray(root.real)
    return np.zeros((subspace.dimension, subspace.dimension))


@given(SEEDS, st.integers(1, 9), st.integers(1, 9))
@settings(max_examples=150)
def test_angles_are_those_of_scipy(seed: int, first: int, second: int) -> None:
    """For columns of any shape, a line, the whole space, and spans that have directions in common.

    The test after it has no limit of scipy's.
    """
    rng = np.random.default_rng(seed)
    u, v = rng.normal(size=(9, first)), rng.normal(size=(9, second))
    assert_scipy_agrees(angles_between(u, v), u, v)


@pytest.mark.slow
@given(
    SEEDS,
    st.lists(
        st.one_of(st.floats(0, math.pi / 2), st.floats(-15, 0).map(lambda x: 10.0**x)),
        min_size=1,
        max_size=5,
    ),
    st.integers(0, 3),
)
@settings(max_examples=150)
def test_angles_are_those_that_were_planted(seed: int, planted: list[float], more: int) -> None:
    """From nearly none to right angles, in any basis, with other columns on one side."""
    rng, count = np.random.default_rng(seed), len(planted)
    axes = basis(rng, 2 * count + more, 2 * count + more)
    u, aside, rest = axes[:, :count], axes[:, count : 2 * count], axes[:, 2 * count :]
    v = u * np.cos(planted) + aside * np.sin(planted)
    u, v = (
        np.hstack([u, rest]) @ basis(rng, count + more, count + more),
        v @ basis(rng, count, count),
    )
    for found in (angles_between(u, v), angles_between(v, u)):
        assert np.abs(np.sort(planted) - found).max() < ANGLE_ERROR


@pytest.mark.parametrize("features", [2, 64, 513])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_angles_of_exact_cases(features: int, count: int) -> None:
    """Equal spans have angles of 0, and orthogonal ones right angles."""
    count = min(count, features // 2) or 1
    both = basis(np.random.default_rng(features), features, 2 * count)
    turned = both[:, :count] @ basis(np.random.default_rng(1), count, count)
    assert np.abs(angles_between(both[:, :count], turned)).max() < ANGLE_ERROR
    right = angles_between(both[:, :count], both[:, count:])
    assert np.abs(right - math.pi / 2).max() < ANGLE_ERROR


@given(SEEDS)
@example(54965710)  # an angle of 1.5707, of which scipy knows eleven digits
@settings(max_examples=30)
def test_angles_of_fingerprints_are_by_block(seed: int) -> None:
    """Each block that both have is compared with its like, all samples under None."""
    a, b = clients(seed, 2)
    found = principal_angles(a, b)
    assert list(found) == [None, 0, 1, 2]
    blocks = {block.label: block.columns for block in b.blocks}
    for block in a.blocks:
        u, v = (each.T.astype(np.float64) for each in (block.columns, blocks[block.label]))
        assert_scipy_agrees(found[block.label], u, v)


@given(SEEDS, st.sampled_from(["classes", "whole"]))
@settings(max_examples=25)
def test_s_is_the_product_of_the_roots_of_density_operators(seed: int, compare: Compare) -> None:
    """Against ``trace(sqrtm(rho) sqrtm(rho'))``, summed over the blocks."""
    a, b = clients(seed, 2, features=5)
    labels = (None,) if compare == "whole" else (0, 1, 2)
    dense = sum(
        float(np.trace(root_of_density(a, label) @ root_of_density(b, label))) for label in labels
    )
    assert abs(dense - affinity(a, b, compare=compare)) < FLOAT32_ERROR


@given(SEEDS, st.integers(1, 5), st.integers(1, 5))
@settings(max_examples=40)
def test_flat_s_is_the_mean_squared_cosine(seed: int, first: int, second: int) -> None:
    """The mean is over the root of d times e, so over d where both have d columns."""
    rng = np.random.default_rng(seed)
    u, v = rng.normal(size=(7, first)), rng.normal(size=(7, second))
    cosines = np.cos(scipy.linalg.subspace_angles(u, v))
    expected = float((cosines**2).sum()) / math.sqrt(first * second)
    found = affinity(Subspace.of_basis(u), Subspace.of_basis(v))
    assert abs(expected - found) < FLOAT32_ERROR


@given(
    st.sets(st.integers(0, 99), min_size=1, max_size=40),
    st.sets(st.integers(0, 99), min_size=1, max_size=40),
)
def test_a_support_is_a_flat_subspace_of_axes(left: set[int], right: set[int]) -> None:
    """S of coordinate axes is that of the index sets: at one size, the overlap of supports."""
    size = min(len(left), len(right))
    first, second = sorted(left)[:size], sorted(right)[:size]
    axes = [Subspace.of_basis(np.eye(100)[:, each]) for each in (first, second)]
    supports = [Support.from_indices(each, 100) for each in (first, second)]
    assert abs(similarity(*supports) - affinity(*axes)) < FLOAT32_ERROR
    unequal = affinity(*(Subspace.of_basis(np.eye(100)[:, sorted(each)]) for each in (left, right)))
    assert abs(len(left & right) / math.sqrt(len(left) * len(right)) - unequal) < FLOAT32_ERROR


@given(SEEDS, st.floats(1e-30, 1e30), st.sampled_from(["spectrum", "flat"]))
@settings(max_examples=40)
def test_s_depends_on_no_scale_order_or_rotation(seed: int, scale: float, weighting: str) -> None:
    """Scaling the samples, shuffling them, and a rotation that both share change nothing."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(2, 30, 6))
    x[:, :2] *= 3
    turn, order = basis(rng, 6, 6), rng.permutation(30)
    labels = rng.integers(0, 2, 30)

    def fitted(rows: npt.NDArray[np.float64], codes: npt.NDArray[np.int64]) -> Subspace:
        options: Any = {"rank": 2, "whole_rank": 3, "weighting": weighting}
        return fit_subspace(rows, codes, samples_per_direction=1, **options)

    expected = [
        affinity(fitted(x, labels), fitted(y, labels), compare=how) for how in ("classes", "whole")
    ]
    changed = fitted(scale * x[order] @ turn, labels[order]), fitted(y @ turn, labels)
    found = [affinity(*changed, compare=how) for how in ("classes", "whole")]
    # Two energies that are nearly equal leave a direction open: digits are lost by their nearness.
    assert np.abs(np.array(expected) - found).max() < 1e-4


@given(SEEDS, st.sampled_from(["classes", "whole"]))
@settings(max_examples=25)
def test_all_pairs_make_a_matrix_of_inner_products(seed: int, compare: Compare) -> None:
    """Within 0..1, ones on the diagonal, symmetric, and no negative eigenvalue."""
    gram = affinities(clients(seed, 12), compare)
    assert (gram == gram.T).all()
    assert (np.diag(gram) == 1.0).all()
    assert gram.min() >= 0.0
    assert gram.max() <= 1.0
    assert np.linalg.eigvalsh(gram).min() > -FLOAT32_ERROR


@given(SEEDS, st.sampled_from(["classes", "whole"]))
@settings(max_examples=25)
def test_scan_and_pairs_are_the_single_affinities(seed: int, compare: Compare) -> None:
    """One query against a stack, all pairs at once, and two subspaces agree."""
    subspaces = clients(seed, 6)
    # One without classes: nothing in common with any other by classes.
    bare = fit_subspace(np.random.default_rng(seed).normal(size=(9, 12)), samples_per_direction=1)
    subspaces.insert(2, bare)
    pairs = affinities(subspaces, compare)
    stack = Stack.of(subspaces, compare)
    for row, one in enumerate(subspaces):
        scan = stack.query(scaled_columns(one, compare))
        for column, other in enumerate(subspaces):
            if row == column:
                continue
            alone = compare == "classes" and 2 in (row, column)
            expected = 0.0 if alone else affinity(one, other, compare=compare)
            assert abs(expected - scan[column]) < FLOAT32_ERROR
            assert abs(expected - pairs[row, column]) < FLOAT32_ERROR


@given(SEEDS)
@settings(max_examples=30)
def test_float16_moves_s_by_less_than_a_thousandth(seed: int) -> None:
    """What goes through the wire is compared with what does not."""
    a, b = clients(seed, 2)
    sent = Subspace.from_bytes(b.to_bytes())
    for compare in ("classes", "whole"):
        change = affinity(a, b, compare=compare) - affinity(a, sent, compare=compare)
        assert abs(change) < 1e-3


@given(SEEDS, st.sampled_from(["classes", "whole"]))
@settings(max_examples=20)
def test_distances_by_block_are_those_of_the_matrix(seed: int, compare: Compare) -> None:
    """Any rows to any columns, and 0 of each to itself."""
    subspaces = clients(seed, 9)
    distances = SubspaceDistances([scaled_columns(each, compare) for each in subspaces])
    expected = 1.0 - affinities(subspaces, compare)
    rng = np.random.default_rng(seed)
    rows, columns = rng.permutation(9)[:4], rng.permutation(9)[:5]
    assert len(distances) == 9
    assert np.abs(expected[rows] - distances.block(rows)).max() < FLOAT32_ERROR
    found = distances.block(rows, columns)
    assert np.abs(expected[np.ix_(rows, columns)] - found).max() < FLOAT32_ERROR
    assert (found[rows[:, None] == columns] == 0).all()


def test_random_subspaces_have_their_share_in_common() -> None:
    """S of d random directions of m is d/m on average: few features cannot separate."""
    rng = np.random.default_rng(0)
    found = [
        affinity(*(Subspace.of_basis(rng.normal(size=(64, 5))) for _ in range(2)))
        for _ in range(200)
    ]
    assert abs(5 / 64 - np.mean(found)) < 0.005


def test_subspaces_of_different_spaces_are_not_compared() -> None:
    """The error names what differs."""
    a = clients(0, 1)[0]
    for other, says in (
        (clients(0, 1, features=13)[0], "num_features is 12 of one subspace and 13 of the other"),
        (clients(0, 1, constant=1.0)[0], r"constant is 0\.5 of one subspace and 1\.0"),
        (clients(0, 1, weighting="flat")[0], "weighting is spectrum of one subspace and flat"),
    ):
        for compare in (affinity, principal_angles):
            with pytest.raises(SpaceMismatch, match=says):
                compare(a, other)


def test_a_comparison_needs_blocks() -> None:
    """Without labels there are no classes to compare, and the error says so."""
    bare = fit_subspace(np.eye(4)[:, :3] + 1, samples_per_direction=1)
    with pytest.raises(InvalidParameter, match="no class"):
        affinity(bare, bare, compare="classes")
    assert affinity(bare, bare) == pytest.approx(1.0, abs=FLOAT32_ERROR)
    wrong: Any = "labels"
    with pytest.raises(InvalidParameter, match="compare is classes or whole, not 'labels'"):
        affinity(bare, bare, compare=wrong)
