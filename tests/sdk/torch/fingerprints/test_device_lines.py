"""Lines in torch operations have the keys of the core, bit for bit; here on CPU tensors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.overrides import TorchFunctionMode

from modelkin.core.fingerprints.matrices import Matrix, part_of
from modelkin.core.fingerprints.matrix_keys import MatrixKeys, MatrixReading
from modelkin.core.fingerprints.tensor_lines import TensorLines, lines_of, read_lines
from modelkin.core.fingerprints.tensor_signatures import SignatureMaker
from modelkin.torch.fingerprints import matrices
from modelkin.torch.fingerprints.matrices import DeviceMatrix, matrices_of

Floats = npt.NDArray[np.float32]

EXTREME = np.array([0.0, -0.0, 1e-45, 1e-40, 1.1754944e-38, 1.0, -2.0, 3.4028235e38], np.float32)
SHAPES = [(64, 65), (300, 100), (129, 256), (64, 1100), (2100, 64)]
TENSORS = [(16, 64, 70), (70, 66, 3), (96, 64, 1, 3), (80, 3, 8, 8), (64,), (0, 64, 64)]
DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn),
    *(torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
]


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    """Where the tensors lie."""
    found: str = request.param
    return found


@pytest.fixture
def stretch(monkeypatch: pytest.MonkeyPatch) -> int:
    """How many values are looked at together: those of some lines, or of a small matrix."""
    found = 5000
    monkeypatch.setattr(matrices, "STRETCH_SIZE", found)
    return found


def weights(rows: int, columns: int) -> Floats:
    """Weights whose columns have scales of their own."""
    draw = np.random.default_rng(0)
    scales = 0.02 * draw.lognormal(0, 1, columns)
    return (scales * draw.standard_normal((rows, columns))).astype(np.float32)


def tied(rows: int, columns: int) -> Floats:
    """Few magnitudes, of which some are denormal or the greatest, and a row of zeros."""
    draw = np.random.default_rng(1)
    values = np.round(draw.standard_normal((rows, columns)), 1).astype(np.float32)
    return np.where(draw.random(values.shape) < 0.2, draw.choice(EXTREME, values.shape), values)


def powers(rows: int, columns: int) -> Floats:
    """Magnitudes of all exponents, most of them in one place alone."""
    draw = np.random.default_rng(2)
    return np.ldexp(
        draw.uniform(0.5, 1, (rows, columns)), draw.integers(-148, 128, (rows, columns))
    ).astype(np.float32)


def faint(rows: int, columns: int) -> Floats:
    """Zeros, and the least normal float."""
    found: Floats = np.random.default_rng(0).choice(EXTREME[[0, 0, 4]], (rows, columns))
    return found


def ternary(rows: int, columns: int) -> Floats:
    return np.random.default_rng(3).integers(-1, 2, (rows, columns)).astype(np.float32)


def waves(rows: int, columns: int) -> Floats:
    return np.sin(np.arange(rows)[:, None] / 10 ** (np.arange(columns) / columns)).astype(
        np.float32
    )


def zeros(rows: int, columns: int) -> Floats:
    return np.zeros((rows, columns), np.float32)


def all_of(reading: MatrixReading) -> list[Any]:
    """All that a reading finds: what it is, keys, least magnitudes, scales, signature."""
    signature = SignatureMaker(1 << 32)
    keys = reading.read(signature, (1 << 32) - (1 << 20))
    found = [[part.tolist() for part in (each.keys, each.least, each.scales)] for each in keys]
    assert reading.is_finite
    return [reading.is_structured, reading.has_few_values, *found, signature.finish()]


def of_array(values: Floats) -> list[Any]:
    return all_of(MatrixKeys(Matrix.of(values)))


def lines(tensor: torch.Tensor) -> TensorLines:
    """The lines of a tensor where it lies."""
    readings = (DeviceMatrix(matrix) for matrix in matrices_of(tensor))
    return lines_of("tensor", tuple(tensor.shape), readings)


def parts(found: TensorLines) -> tuple[Any, ...]:
    keys = {length: keys.tolist() for length, keys in found.keys.items()}
    return found.shape, keys, found.reason, found.signature


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        *itertools.product([weights, tied], SHAPES),
        *itertools.product([powers, faint, ternary, waves, zeros], SHAPES[:2]),
    ],
)
def test_matrices_have_the_keys_of_the_core(
    device: str, stretch: int, make: Callable[[int, int], Floats], shape: tuple[int, int]
) -> None:
    """Scales, keys, sets, signatures, and whether they are tables or of few values."""
    values = make(*shape)
    assert of_array(values) == all_of(DeviceMatrix(torch.from_numpy(values).to(device)))


def test_sums_may_be_beyond_all_floats(device: str) -> None:
    """Those of thousands of squares next to the greatest one, of a single stretch."""
    draw = np.random.default_rng(4)
    values = draw.uniform(3e38, 3.4e38, (8200, 64)).astype(np.float32)
    assert of_array(values) == all_of(DeviceMatrix(torch.from_numpy(values).to(device)))


@pytest.mark.parametrize(("equal", "has"), [(15, True), (16, True), (17, False)])
def test_ties_belong_to_a_set(device: str, equal: int, has: bool) -> None:
    """Of lines of 96 a set has 8 to 16 entries; with more equal ones there is none."""
    line = np.random.default_rng(0).uniform(0, 1, 96).astype(np.float32)
    line[:equal] = 2
    values = np.stack([np.roll(line, at) for at in range(96)])  # so all places have one scale
    reading = DeviceMatrix(torch.from_numpy(values).to(device))
    assert of_array(values) == all_of(reading)
    assert [has] * 96 == reading.read(SignatureMaker(1 << 32))[0].has.tolist()


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        *((dtype, (80, 130)) for dtype in DTYPES),
        *itertools.product([torch.float64, torch.float8_e4m3fn], TENSORS),
    ],
    ids=str,
)
def test_tensors_of_any_type_have_the_lines_of_their_values(
    device: str, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    """Matrices, experts, kernels, stems and vectors, each exactly as float32."""
    tensor = (torch.randn(shape, dtype=torch.float64) * 0.05).to(dtype)
    wide = tensor.to(torch.float64).numpy()
    expected = read_lines("tensor", shape, part_of(wide))
    assert parts(expected) == parts(lines(tensor.to(device)))
    assert bool(expected.keys) == (len(shape) > 1 and tensor.numel() > 0)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
        lambda x: torch.cat([x, x], 1)[:, : x.shape[1]],
        lambda x: x.repeat_interleave(2, 0)[::2],
        lambda x: x.expand(1, *x.shape)[0],
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float8_e4m3fn], ids=str)
def test_strides_do_not_matter(
    device: str, dtype: torch.dtype, change: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """Transposed in memory, parts of others, every second row."""
    tensor = torch.randn(90, 140).to(dtype).to(device)
    moved = change(tensor.view(torch.uint8) if dtype.itemsize == 1 else tensor).view(dtype)
    assert parts(lines(tensor)) == parts(lines(moved))


@settings(max_examples=40)
@given(
    shape=st.tuples(st.integers(64, 90), st.integers(64, 200)),
    bits=st.lists(st.integers(0, 0x7F7FFFFF), min_size=1, max_size=300),
    seed=st.integers(0, 99),
)
@pytest.mark.slow
def test_any_floats(shape: tuple[int, int], bits: list[int], seed: int) -> None:
    """Whatever the bits of the floats, and however few of them there are."""
    draw = np.random.default_rng(seed)
    signs = draw.integers(0, 2, shape).astype(np.uint32) << 31
    values = (draw.choice(np.array(bits, np.uint32), shape) | signs).view(np.float32)
    assert of_array(values) == all_of(DeviceMatrix(torch.from_numpy(values)))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300])
@pytest.mark.parametrize("shape", [(70, 300), (300, 70)])
def test_values_that_are_not_finite_are_found(
    device: str, stretch: int, value: float, shape: tuple[int, int]
) -> None:
    """Also those that are infinite as float32 alone, in any stretch."""
    values = torch.randn(shape, dtype=torch.float64)
    assert DeviceMatrix(values.to(device)).is_finite
    values[-1, -1] = value
    assert not DeviceMatrix(values.to(device)).is_finite


def test_what_is_taken_is_counted_once(stretch: int) -> None:
    """Half of each stretch at each reading, rounded down; what the function raises ends it."""
    taken: list[int] = []
    all_of(DeviceMatrix(torch.from_numpy(weights(151, 201)), taken.append))
    assert 151 * 201 - len(taken) / 2 < sum(taken) <= 151 * 201
    assert max(taken) <= stretch / 2

    def stop(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        DeviceMatrix(torch.ones(64, 64), stop)


class Watched(TorchFunctionMode):
    """Notes the bytes of every new tensor, and of those that go to this machine's memory."""

    def __init__(self, given: torch.Tensor) -> None:
        super().__init__()
        self._given = given.untyped_storage().data_ptr()
        self.made, self.copied = [0], [0]

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **kwargs or {})
        for each in result if isinstance(result, tuple) else (result,):
            if isinstance(each, torch.Tensor):
                own = each.untyped_storage()
                self.made.append(0 if own.data_ptr() == self._given else own.nbytes())
                moved = function.__name__ == "cpu" or "cpu" in map(str, args[1:])
                self.copied.append(each.nbytes if moved else 0)
        return result


def test_little_memory_is_taken_beside_a_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    """No new tensor has more than 12 bytes for each value of a stretch, and few are copied."""
    monkeypatch.setattr(matrices, "STRETCH_SIZE", 1 << 14)
    matrix = torch.randn(512, 400).to(torch.bfloat16)
    with Watched(matrix) as watched:
        all_of(DeviceMatrix(matrix))
    assert max(watched.made) <= 12 << 14
    sampled, of_lines = (32 * 400 + 25 * 512) * 4, (512 + 400) * 64
    assert sum(watched.copied) <= sampled + of_lines
