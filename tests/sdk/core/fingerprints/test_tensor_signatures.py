"""Signatures of tensors see kinship where no line is left, and none between strangers."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest

from modelkin.core.fingerprints.matrices import Matrix, matrices, part_of, sides
from modelkin.core.fingerprints.matrix_keys import MatrixKeys
from modelkin.core.fingerprints.tensor_signatures import SignatureMaker, kappa_of
from tests.sdk.core.fingerprints.planted import fingerprint, model

Floats = npt.NDArray[np.float32]


def random_matrix(seed: int) -> Floats:
    return np.random.default_rng(seed).standard_normal((200, 500), np.float32)


def signature(*stack: Floats) -> bytes:
    made = signature_or_none(*stack)
    assert made is not None
    return made


def signature_or_none(*stack: Floats) -> bytes | None:
    maker = SignatureMaker(sum(matrix.size for matrix in stack))
    for number, matrix in enumerate(stack):
        MatrixKeys(Matrix.of(matrix)).read(maker, number * matrix.size)
    return maker.finish()


def members(matrix: Floats) -> set[int]:
    """The sets of all rows, as numpy finds them."""
    scaled = np.abs(matrix) / np.sqrt(np.square(matrix, dtype=np.float64).mean(axis=0))
    largest = np.argsort(-scaled, axis=1)[:, :10]
    return set((largest + 500 * np.arange(200)[:, None]).ravel().tolist())


@pytest.mark.parametrize(("sigmas", "least", "most"), [(0, 1, 1), (0.3, 0.5, 0.8), (1, 0.15, 0.4)])
def test_kappa_falls_with_the_noise(sigmas: float, least: float, most: float) -> None:
    """It is about that of the sets themselves, also where no key is left."""
    base = random_matrix(0)
    noisy = base + np.float32(sigmas) * random_matrix(1)
    found = kappa_of(signature(base), signature(noisy), 500)
    shared = len(members(base) & members(noisy)) / 2000
    assert found == pytest.approx((shared - 0.02) / 0.98, abs=0.12)
    assert least <= found <= most


def test_strangers_are_at_zero() -> None:
    """Within three standard errors each, and on average."""
    made = [signature(random_matrix(seed)) for seed in range(2, 10)]
    found = [kappa_of(first, second, 500) for first, second in combinations(made, 2)]
    assert abs(float(np.mean(found))) < 0.03
    assert max(map(abs, found)) < 0.15


def test_a_stack_is_one_tensor() -> None:
    """Its matrices are told apart by their places."""
    one, other = random_matrix(0), random_matrix(1)
    assert signature(one, other) != signature(other, one)
    assert kappa_of(signature(one, other), signature(other, one), 500) < 0.2


def test_signs_and_scales_are_nothing() -> None:
    """As they are to keys."""
    base = random_matrix(0)
    assert signature(base) == signature(-4 * base)


def test_a_tensor_without_sets_has_none() -> None:
    """Constant ones, and those that are not compared."""
    assert signature_or_none(np.zeros((64, 64), np.float32)) is None
    made = fingerprint(model(0))
    assert [each.name for each in made.tensors if each.signature is None] == ["norm"]


@pytest.mark.parametrize(
    "shape", [(70, 90), (20, 70, 90), (96, 128, 3, 3), (192, 3, 16, 16), (7,), (64, 3, 3, 3)]
)
def test_sides_are_those_of_the_matrices(shape: tuple[int, ...]) -> None:
    """Which are too short for lines where there are none."""
    part = part_of(np.zeros(shape, np.float32))
    found = {(matrix.rows, matrix.columns) for matrix in matrices(shape, part)}
    assert found == ({sides(shape)} if min(sides(shape)) >= 64 else set())
