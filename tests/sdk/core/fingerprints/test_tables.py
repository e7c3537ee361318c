"""Tables that no training made are known by their order or by their few values."""

from __future__ import annotations

import numpy as np
import pytest

from modelkin.core.fingerprints.anatomy import anatomy
from modelkin.core.fingerprints.tables import LineSample, has_few_values, is_structured
from modelkin.core.fingerprints.tensors import NotComparable
from tests.sdk.core.fingerprints.fixed_tables import FEW, ORDERED, Table
from tests.sdk.core.fingerprints.planted import Tensors, fingerprint

DRAW = np.random.default_rng(0)
TRAINED_LIKE = {
    "normal": DRAW.standard_normal((300, 200)),
    "uniform": DRAW.uniform(-1, 1, (128, 64)),
    "low rank": DRAW.standard_normal((300, 4)) @ DRAW.standard_normal((4, 300)),
    "heavy tails": DRAW.standard_t(2, (300, 300)),
    "channels": DRAW.standard_normal((300, 300)) * DRAW.lognormal(0, 2, 300),
    "outlier": DRAW.standard_normal((300, 300)) + 100 * (np.arange(300) == 7),
    "8 bits": np.round(30 * DRAW.standard_normal((1000, 1024))),
    "4 bits": np.clip(np.round(2.5 * DRAW.standard_normal((1000, 1024))), -8, 7),
}
NOISES = [0, 0.1]


def stored(table: Table, noise: float, seed: int) -> Table:
    """A table to which rounding, or training, has added some noise."""
    added = np.random.default_rng(seed).standard_normal(table.shape, np.float32)
    return table + np.float32(noise * table.std()) * added


def in_bfloat16(table: Table) -> Table:
    return (table.view(np.uint32) + 0x8000 & np.uint32(0xFFFF0000)).view(np.float32)


def network(seed: int) -> Tensors:
    draw = np.random.default_rng(seed)
    return {"up": draw.standard_normal((160, 200), np.float32)}


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("name", ORDERED)
def test_a_fixed_table_is_structured(name: str, noise: float) -> None:
    """In full, in bfloat16, and where training, or rounding, has added a tenth of noise to it."""
    table = stored(ORDERED[name], noise, 1)
    made = fingerprint({"plain": table, "rounded": in_bfloat16(table)})
    assert 2 * [NotComparable.STRUCTURED] == [each.reason for each in made.tensors]


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("name", [*ORDERED, *FEW])
def test_a_table_that_both_store_makes_nobody_kin(name: str, noise: float) -> None:
    """Nor do their own noises, nor that one of them stores it in bfloat16."""
    table = (ORDERED | FEW)[name]
    noisy = [stored(table, noise, seed) for seed in range(3)]
    noisy[2] = in_bfloat16(noisy[2])
    one, other, rounded = (
        fingerprint(network(seed) | {name: values}) for seed, values in enumerate(noisy)
    )
    assert () == anatomy(one, {"other": other, "rounded": rounded}).parents
    if noise == 0:
        assert one.tensors[-1].reason == rounded.tensors[-1].reason is not None


@pytest.mark.parametrize("name", TRAINED_LIKE)
def test_weights_are_neither(name: str) -> None:
    """Random ones of many kinds, and quantised ones, whichever way they are stored."""
    for matrix in (TRAINED_LIKE[name], TRAINED_LIKE[name].T):
        sample = LineSample.of(np.ascontiguousarray(matrix, np.float32))
        assert (False, False) == (is_structured(sample), has_few_values(sample))


@pytest.mark.parametrize("axis", [0, 1])
def test_lines_of_zeros_say_nothing_of_the_others(axis: int) -> None:
    """Most rows, or most columns, may be pruned: those that are left have their keys."""
    pruned = np.random.default_rng(0).standard_normal((300, 300), np.float32)
    np.moveaxis(pruned, axis, 0)[np.random.default_rng(1).permutation(300)[:200]] = 0
    [tensor] = fingerprint({"w": pruned}).tensors
    assert {300: 400} == tensor.lines


@pytest.mark.parametrize("name", FEW)
def test_few_values_are_known(name: str) -> None:
    """Where the largest magnitudes of a line cannot be told apart; Hadamard's have order, too."""
    expected = NotComparable.STRUCTURED if name == "hadamard" else NotComparable.FEW_VALUES
    assert expected == fingerprint({name: FEW[name]}).tensors[0].reason
