"""Lines and their keys: the same whatever moves them about, on each kernel, in any stretches."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from modelkin.core.fingerprints.lines import Keys, members_of_key, size_of_set, walk
from modelkin.core.fingerprints.matrices import matrices, part_of
from modelkin.core.fingerprints.matrix_keys import line_keys
from modelkin.core.fingerprints.scales import PlaceScales
from modelkin.core.fingerprints.tables import LineSample
from modelkin.core.kernels import fast, reference
from modelkin.core.sketching.schemes import permutations

Matrix = npt.NDArray[np.float32]

SPECIAL = [0.0, -0.0, 1e-45, 1e-40, 1.1754944e-38, 1.0, 1.0000001, 2.0, -2.0, 3.4028235e38]
GOLDEN_ROWS = ["73dab2e437db5abd", "d16187fb090e1fc5", "deeac085b9c87a1a"]
GOLDEN_COLUMNS = ["c91bb018de14028a", "ddee5fba5ec138f8", "ca79e1d0e8f5e3f0"]
SHAPES = [(1, 64), (65, 64), (300, 100), (257, 256), (70, 513), (40, 4096)]


def random_matrix(rows: int, columns: int, seed: int = 0) -> Matrix:
    """Weights whose columns have scales of their own, as those of networks have."""
    draw = np.random.default_rng(seed)
    scales = draw.lognormal(0, 1, columns)
    return (0.02 * scales * draw.standard_normal((rows, columns))).astype(np.float32)


def tied(rows: int, columns: int) -> Matrix:
    """Many equal magnitudes, with both zeros, denormals and the greatest floats among them."""
    draw = np.random.default_rng(1)
    values = np.round(draw.standard_normal((rows, columns)), 1).astype(np.float32)
    where = draw.random(values.shape) < 0.2
    values[where] = draw.choice(np.array(SPECIAL, np.float32), np.count_nonzero(where))
    values[0] = 0
    return values


def keys_of(values: npt.NDArray[Any]) -> list[int]:
    """All keys of a tensor, in no order."""
    both = (each for matrix in matrices_of(values) for each in line_keys(matrix))
    return sorted(key for each in both for key in each.keys[each.has].tolist())


def matrices_of(values: npt.NDArray[Any]) -> list[Matrix]:
    """The matrices of a tensor, whole."""
    found = matrices(values.shape, part_of(values))
    return [np.ascontiguousarray(each.read(0, each.rows)) for each in found]


@pytest.mark.parametrize("make", [random_matrix, tied])
@pytest.mark.parametrize("shape", SHAPES)
def test_kernels_agree(make: Any, shape: tuple[int, int]) -> None:
    """Sums, keys, which lines have one, and the members of sets, bit for bit."""
    values = make(*shape)
    sums = [[np.zeros((17, side), np.uint64) for side in shape[::-1]] for _ in range(2)]
    reference.add_squares(values, *sums[0])
    fast.add_squares(values, *sums[1])
    assert all(map(np.array_equal, *sums))
    draw = np.random.default_rng(2)
    scales = draw.uniform(0.2, 0.9, shape[1]).astype(np.float32)
    scales[5] = 0
    walk = draw.permutation(shape[1]).astype(np.uint32)
    asked = size_of_set(shape[1]), members_of_key(shape[1])
    first = reference.line_keys(values, scales, walk, *asked)
    second = fast.line_keys(values, scales, walk, *asked)
    assert [part.tolist() for part in first] == [part.tolist() for part in second]
    assert make is tied or (first[1] > 0).all()
    members = [kernel.members_of_sets(values, scales, first[1], 7) for kernel in (reference, fast)]
    assert np.array_equal(*members)
    assert members[0].size >= asked[0] * np.count_nonzero(first[1])


def test_sums_of_squares_are_exact() -> None:
    """Those of mantissas of 12 bits, from the least normal float to the greatest."""
    values = tied(300, 70)

    def square(value: float) -> Fraction:
        if abs(value) < 2.0**-126:
            return Fraction(0)
        mantissa, exponent = np.frexp(np.float64(abs(value)))
        return (
            Fraction(int(np.floor(mantissa * 2**12 + 0.5))) * Fraction(2) ** int(exponent - 12)
        ) ** 2

    columns, rows = (np.zeros((17, side), np.uint64) for side in (70, 300))
    fast.add_squares(values, columns, rows)
    for sums, lines in ((columns, values.T), (rows, values)):
        for place in range(0, len(lines), 7):
            held = sum(int(sums[window, place]) << 32 * window for window in range(17))
            assert sum(map(square, lines[place].tolist())) == Fraction(held, 2**276)


def test_a_key_is_of_the_first_members_of_the_walk() -> None:
    """As one writes it down in a few lines of Python."""
    matrix = random_matrix(90, 130)
    scales = PlaceScales(*matrix.shape)
    scales.add(0, matrix)
    factor, offset = (int(part[0]) for part in permutations("affine32", 1, 1))

    def rank(place: int) -> int:
        x = place
        x = (x ^ x >> 16) * 0x85EBCA6B % 2**32
        x = (x ^ x >> 13) * 0xC2B2AE35 % 2**32
        return (factor * (x ^ x >> 16) + offset) % 2**32

    def mixed(x: int) -> int:
        x = (x ^ x >> 33) * 0xFF51AFD7ED558CCD % 2**64
        x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53 % 2**64
        return x ^ x >> 33

    def key(line: Matrix, reciprocals: Matrix, size: int, members: int) -> int:
        magnitudes = (np.abs(line) * reciprocals).tolist()
        held = [p for p, x in enumerate(magnitudes) if x >= sorted(magnitudes)[-size]]
        found = len(magnitudes)
        for each in sorted(map(rank, held))[:members]:
            found = mixed((found * 0x9E3779B97F4A7C15 + each) % 2**64)
        return found

    rows, columns = line_keys(matrix)
    assert [key(line, scales.of_rows, 8, 5) for line in matrix] == rows.keys.tolist()
    assert [key(line, scales.of_columns, 8, 7) for line in matrix.T] == columns.keys.tolist()


def test_keys_are_these() -> None:
    """They are stored, so they never change."""
    place = np.arange(64 * 64, dtype=np.uint64).reshape(64, 64)
    values = (place * np.uint64(2654435761) % np.uint64(65521)).astype(np.float32)
    rows, columns = line_keys(values)
    assert GOLDEN_ROWS == [f"{key:016x}" for key in rows.keys[:3].tolist()]
    assert GOLDEN_COLUMNS == [f"{key:016x}" for key in columns.keys[:3].tolist()]


def test_scales_do_not_depend_on_stretches() -> None:
    """Rows come in any stretches and in any order of them."""
    matrix = random_matrix(1000, 80)
    whole, parts = (PlaceScales(*matrix.shape) for _ in range(2))
    whole.add(0, matrix)
    for begin, end in [(700, 1000), (0, 1), (1, 300), (300, 700)]:
        parts.add(begin, matrix[begin:end])
    assert np.array_equal(whole.of_rows, parts.of_rows)
    assert np.array_equal(whole.of_columns, parts.of_columns)
    wanted = 1 / np.sqrt(np.square(matrix, dtype=np.float64).mean(axis=0))
    assert np.allclose(wanted, whole.of_rows, rtol=1e-3)


def test_what_moves_lines_keeps_their_keys() -> None:
    """Rows in another order, transposition, other signs, and scales of rows, columns and all."""
    matrix = random_matrix(200, 300)
    draw = np.random.default_rng(3)
    rows, columns = line_keys(matrix)
    order = draw.permutation(200)
    assert np.array_equal(rows.keys[order], line_keys(matrix[order])[0].keys)
    assert keys_of(matrix) == keys_of(np.ascontiguousarray(matrix.T))
    signs = draw.choice(np.array([-1, 1], np.float32), (200, 1))
    assert keys_of(matrix) == keys_of(signs * matrix) == keys_of(matrix * np.float32(2**-90))
    gains = np.float32(2) ** draw.integers(-9, 9, (1, 300)).astype(np.float32)
    assert np.array_equal(rows.keys, line_keys(matrix * gains)[0].keys)
    other = line_keys(matrix * np.float32(0.3) * draw.uniform(0.5, 2, (1, 300)).astype(np.float32))
    assert (rows.keys == other[0].keys).mean() > 0.97
    assert (columns.keys == line_keys(matrix * np.float32(0.3))[1].keys).mean() > 0.99


def test_some_lines_have_no_key() -> None:
    """Those of zeros, of equal magnitudes, and of few; an outlier makes no line keyless."""
    matrix = random_matrix(100, 256)
    matrix[3] = 0
    matrix[4] = matrix[4, 0]
    matrix[5, 20] = 1e30
    has = line_keys(matrix)[0].has
    assert [3] == np.flatnonzero(~has).tolist()  # equal magnitudes differ by their places' scales
    assert not any(each.has.any() for each in line_keys(np.ones((64, 64), np.float32)))


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((100, 64), (1, 100, 64)),
        ((63, 1000), None),
        ((1000,), None),
        ((), None),
        ((16, 64, 80), (16, 64, 80)),  # experts
        ((8, 64, 80), (8, 64, 80)),
        ((128, 96, 7), (7, 128, 96)),  # kernels of one dimension
        ((128, 96, 16), (16, 128, 96)),  # long ones, as those that raise the rate of sounds
        ((96, 128, 3, 3), (9, 96, 128)),
        ((64, 128, 3, 3, 3), (27, 64, 128)),
        ((192, 3, 16, 16), (1, 192, 768)),  # an embedding of patches
        ((64, 3, 3, 3), None),
        ((0, 64, 64), None),
    ],
)
def test_the_matrices_of_a_tensor(shape: tuple[int, ...], expected: Any) -> None:
    """Experts are matrices, and so is each place of a kernel; stems are one matrix."""
    found = matrices_of(np.zeros(shape, np.float32))
    assert expected == ((len(found), *found[0].shape) if found else None)


@pytest.mark.parametrize("shape", [(128, 72, 3, 3), (96, 128, 5), (70, 80, 32), (192, 3, 16, 16)])
def test_the_order_in_which_a_kernel_is_stored_does_not_matter(shape: tuple[int, ...]) -> None:
    """O x I x H x W, H x W x I x O and all others have the same keys."""
    values = np.random.default_rng(4).standard_normal(shape).astype(np.float32)
    expected = keys_of(values)
    assert len(expected) > 250
    for axes in itertools.permutations(range(len(shape))):
        if len(shape) < 4 or axes.index(2) < axes.index(3):  # height before width
            assert expected == keys_of(np.ascontiguousarray(values.transpose(axes))), axes


@pytest.mark.parametrize("kernel", [fast, reference])
@pytest.mark.parametrize("make", [random_matrix, tied])
@pytest.mark.parametrize("shape", [(64, 100), (300, 100), (3000, 70), (513, 64)])
def test_columns_are_the_rows_of_the_transpose(
    monkeypatch: pytest.MonkeyPatch, kernel: Any, make: Any, shape: tuple[int, int]
) -> None:
    """Their keys too, though no more than a few rows of the matrix are held."""
    monkeypatch.setattr("modelkin.core.fingerprints.columns.kernels", lambda: kernel)
    matrix = make(*shape)
    scales = PlaceScales(*shape)
    scales.add(0, matrix)
    found = line_keys(matrix)[1]
    assert_same(found, keys_by_numpy(matrix.T, scales.of_columns))


@pytest.mark.parametrize("most", [1, 50_000])
def test_wrong_guesses_change_no_key(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Columns that are large in the rows of the sample alone, kept a few at a time."""
    monkeypatch.setattr("modelkin.core.fingerprints.columns.MOST_KEPT", most)
    matrix = np.random.default_rng(5).standard_t(4, (6000, 64)).astype(np.float32)
    matrix[LineSample(6000, 64).row_numbers, ::9] = 30
    matrix[:, 7] = 0
    matrix[:3, 8] = 0
    scales = PlaceScales(*matrix.shape)
    scales.add(0, matrix)
    assert_same(line_keys(matrix)[1], keys_by_numpy(matrix.T, scales.of_columns))


def keys_by_numpy(lines: Matrix, scales: Matrix) -> Keys:
    """Those of lines that are held whole."""
    length = lines.shape[1]
    asked = walk(length), size_of_set(length), members_of_key(length)
    return Keys(*reference.line_keys(np.ascontiguousarray(lines), scales, *asked), scales)


def assert_same(first: Keys, second: Keys) -> None:
    assert first.keys.tolist() == second.keys.tolist()
    assert first.least.tolist() == second.least.tolist()
    assert first.scales.tolist() == second.scales.tolist()
