"""least_changes: the least change of a base that is stored as a value, in every float format."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from modelkin.core.rounding import FLOAT_FORMATS, is_rounded, least_changes
from modelkin.torch.weights import least_changes as on_device

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
}
STORED = [name for name in DTYPES if name != "F64"]


def bases_of(stored: str) -> list[str]:
    """The dtypes whose values are rounded there, but those that torch rounds twice."""
    form, twice = FLOAT_FORMATS[stored], ("F16", "F64")
    return [
        name for name in DTYPES if is_rounded(FLOAT_FORMATS[name], form) and (stored, name) != twice
    ]


def wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def bases(dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Values of all magnitudes that a weight may have, down to subnormal ones."""
    draw = np.random.default_rng(seed)
    return torch.from_numpy(draw.normal(size=2000) * 10 ** draw.uniform(-9, 0.3, 2000)).to(dtype)


@pytest.mark.parametrize("stored", STORED)
def test_a_value_that_was_only_rounded_has_not_changed(stored: str) -> None:
    """A copy in another dtype differs by 0 from its base of any dtype, in numpy and on a device."""
    for base in bases_of(stored):
        before = bases(DTYPES[base])
        after = before.to(torch.float32).to(DTYPES[stored])
        finite = torch.isfinite(wide(after))  # formats without infinity have none for large values
        forms = FLOAT_FORMATS[stored], FLOAT_FORMATS[base]
        found = least_changes(wide(after).numpy(), wide(before).numpy(), *forms)
        assert 0 == found[finite.numpy()].max(), base
        assert 0 == on_device(after, before)[finite].max(), base


@pytest.mark.parametrize("stored", STORED[1:])
def test_it_is_the_least_change_that_rounds_to_the_value(stored: str) -> None:
    """The base, moved by that and a millionth, is stored as the value; by a millionth less not."""
    before = bases(torch.float32)
    steps = np.random.default_rng(1).choice([-0.4, -0.04, -0.004, 0.004, 0.04, 0.4], before.numel())
    after = (before * (1 + torch.from_numpy(steps)).float()).to(DTYPES[stored])
    moved = on_device(after, before)
    values = wide(after)
    away = torch.sign(values - before).double()
    least = moved.double()
    slack = 1e-6 * (values.double().abs() + before.double().abs()) + 1e-15
    reached = (before.double() + away * (least + slack)).float().to(DTYPES[stored])
    missed = (before.double() + away * (least - slack)).float().to(DTYPES[stored])
    changed = (moved > 4 * slack) & torch.isfinite(values)
    assert changed.any()
    assert torch.equal(values[changed], wide(reached)[changed])
    assert not (wide(missed) == values)[changed].any()


@pytest.mark.parametrize("stored", STORED)
def test_a_device_computes_the_same_bits(stored: str) -> None:
    """torch and numpy agree to the bit, and what is not finite in the base is not in the change."""
    for base in bases_of(stored):
        before = bases(DTYPES[base])
        after = wide(before).flip(0).add(1e-3).to(DTYPES[stored])
        before[0] = torch.nan
        forms = FLOAT_FORMATS[stored], FLOAT_FORMATS[base]
        with np.errstate(invalid="ignore"):
            expected = least_changes(wide(after).numpy(), wide(before).numpy(), *forms)
        assert np.array_equal(expected, on_device(after, before).numpy(), equal_nan=True)
        assert np.isnan(expected[0])
