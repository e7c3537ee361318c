"""Fits: the directions of numpy's SVD, who is left out, and what cannot be fitted."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkin.core.subspaces.affinity import affinity
from modelkin.core.subspaces.angles import angles_between
from modelkin.core.subspaces.fit import FewSamplesWarning, fit_subspace
from modelkin.core.subspaces.subspace import Subspace
from modelkin.errors import InvalidParameter

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4, 2)) * np.linspace(3, 1, 8).reshape(4, 2)
LABELS = np.repeat([0, 5, 9], [30, 25, 5])


def lengthened(x: npt.NDArray[np.float64], constant: float) -> npt.NDArray[np.float64]:
    """The rows that the docs describe: of length 1, a constant behind, and of length 1 again."""
    rows = x.reshape(len(x), -1)
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    rows = np.hstack([rows, np.full((len(rows), 1 if constant else 0), constant)])
    return np.asarray(rows / np.sqrt(1 + constant**2))


def fitted(x: Any = X, labels: Any = None, **options: Any) -> Subspace:
    return fit_subspace(x, labels, **({"samples_per_direction": 1} | options))


@pytest.mark.parametrize("constant", [0.0, 0.5])
@pytest.mark.parametrize("count", [7, 60])
def test_directions_and_weights_are_those_of_the_svd(constant: float, count: int) -> None:
    """By either side of the moment, of few samples and of many."""
    found = fitted(X[:count], constant=constant, whole_rank=4)
    _, sizes, rows = np.linalg.svd(lengthened(X[:count], constant), full_matrices=False)
    (block,) = found.blocks
    assert angles_between(rows[:4].T, block.columns.T).max() < 1e-6
    shares = sizes[:4] / np.sqrt((sizes[:4] ** 2).sum())
    assert np.abs(shares - block.weights).max() < 1e-6


def test_classes_share_their_energy() -> None:
    """Squared weights of all classes sum to 1, so a larger class weighs more."""
    found = fitted(X, LABELS, rank=2)
    assert found.labels == (0, 5, 9)
    _, *classes = found.blocks
    energies = []
    for block in classes:
        rows = lengthened(X[block.label == LABELS], 0.5)
        energies.append(np.linalg.svd(rows, compute_uv=False)[:2] ** 2)
    shares = np.sqrt(np.concatenate(energies) / np.concatenate(energies).sum())
    assert np.abs(shares - np.concatenate([block.weights for block in classes])).max() < 1e-6


def test_the_constant_distinguishes_a_sample_from_its_negative() -> None:
    """Without it a subspace cannot."""
    rows = np.abs(X) + 1
    assert affinity(fitted(rows), fitted(-rows)) < 0.5
    assert affinity(fitted(rows, constant=0.0), fitted(-rows, constant=0.0)) > 0.999


@given(st.integers(0, 2**32 - 1), st.integers(1, 20), st.integers(2, 30), st.integers(1, 12))
@settings(max_examples=60)
def test_any_samples_make_a_valid_subspace(seed: int, count: int, m: int, rank: int) -> None:
    """Also repeated, dependent, huge and tiny ones, and some that are zero."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, m)) * 10.0 ** rng.integers(-150, 150, (count, 1))
    x[rng.random(count) < 0.3] = x[0]
    x[rng.random(count) < 0.2] = 0
    if not x.any():
        return
    found = fitted(x, rng.integers(0, 3, count), rank=rank, whole_rank=rank)
    for block in found.blocks:
        columns = block.columns.astype(np.float64)
        assert np.abs(columns @ columns.T - np.eye(len(columns))).max() < 1e-5
        assert (np.abs(columns).argmax(axis=1) >= 0).all()
        largest = columns[np.arange(len(columns)), np.abs(columns).argmax(axis=1)]
        assert (largest > 0).all()
    assert found == Subspace.from_bytes(found.to_bytes("float32"))


def test_few_samples_are_refused_by_default() -> None:
    """Fewer than twenty show which samples there were; the message says what to do."""
    with pytest.raises(InvalidParameter, match="19 samples are too few") as refused:
        fit_subspace(X[:19])
    assert "epsilon" in str(refused.value)
    assert "samples_per_direction=1" in str(refused.value)
    assert fit_subspace(X[:20]).num_columns == 1
    assert fit_subspace(X).num_columns == 3


def test_a_class_of_few_samples_is_left_out() -> None:
    """With a warning that names it; the samples still count among all."""
    with pytest.warns(FewSamplesWarning, match="1 classes have fewer than 20 samples .*: 9"):
        found = fit_subspace(X, LABELS)
    assert found.labels == (0, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fit_subspace(X, LABELS, samples_per_direction=5).labels == (0, 5, 9)


def test_samples_that_are_zero_have_no_direction() -> None:
    """They are left out, with their labels."""
    some = np.concatenate([X, np.zeros((5, 4, 2))])
    labels = np.concatenate([LABELS, np.full(5, 77)])
    assert fitted(some, labels) == fitted(X, LABELS)


@pytest.mark.parametrize(
    ("x", "options", "says"),
    [
        (np.zeros((0, 4)), {}, "x has no samples"),
        (np.zeros((3, 4)), {}, "all samples of x are zero"),
        (np.ones(4), {}, "x must be numbers of shape"),
        (np.array([["a", "b"]]), {}, "x must be numbers of shape"),
        (np.ones((3, 1)), {}, "2 to 65535 features, not 1"),
        (np.ones((1, 65_536)), {}, "2 to 65535 features, not 65536"),
        (np.array([[1.0, 2.0], [np.nan, 1.0]]), {}, "sample 1 of x has a value that is not finite"),
        (np.array([[np.inf, 2.0]]), {}, "sample 0 of x has a value that is not finite"),
        (X, {"labels": [1, 2]}, r"labels must have shape \(60,\), not \(2,\)"),
        (X, {"labels": np.linspace(0, 1, 60)}, "labels must be integers, not float64"),
        (X, {"labels": LABELS - 1}, "a label is 0 to 2147483647"),
        (X, {"labels": LABELS.astype(np.int64) + 2**31}, "a label is 0 to 2147483647"),
        (X, {"rank": 0}, "rank must be an integer from 1 on, not 0"),
        (X, {"whole_rank": 2.5}, r"whole_rank must be an integer from 1 on, not 2\.5"),
        (X, {"samples_per_direction": True}, "samples_per_direction must be an integer"),
        (X, {"constant": -0.5}, r"constant must be 0 to 100, not -0\.5"),
        (X, {"constant": float("nan")}, "constant must be 0 to 100, not nan"),
        (X, {"weighting": "energy"}, "weighting must be spectrum or flat, not 'energy'"),
        (X, {"classes": [1]}, "classes need labels"),
        (X, {"epsilon": 0.0}, "epsilon must be above 0"),
        (X, {"epsilon": 1.0, "delta": 1.0}, "delta must be above 0 and below 1"),
        (X, {"epsilon": 1.0, "labels": LABELS}, "epsilon with labels needs classes"),
        (X, {"epsilon": 1.0, "labels": LABELS, "classes": [0, 5]}, "class 9 is not among classes"),
        (X, {"epsilon": 1.0, "labels": LABELS, "classes": [0, -5]}, "a class is 0 to 2147483647"),
        (X, {"epsilon": 1.0, "labels": LABELS, "classes": ["0"]}, "a class is an integer"),
    ],
)
def test_bad_arguments_are_named(x: Any, options: dict[str, Any], says: str) -> None:
    """Before anything is fitted or sent."""
    with pytest.raises(InvalidParameter, match=says) as refused:
        fitted(x, **options)
    assert refused.value.field in {"x", "classes", *options}


def test_labels_of_any_integer_type_and_samples_of_any_number() -> None:
    """What lists and other arrays hold counts as it is."""
    expected = fitted(X.astype(np.float32).astype(np.float64), LABELS)
    assert expected == fitted(X.astype(np.float32).tolist(), LABELS.astype(np.uint8))
    bits = RNG.integers(0, 2, (40, 6)).astype(bool)
    assert fitted(bits) == fitted(bits.astype(np.int8))
