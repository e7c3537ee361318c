"""Strangers have as many keys in common as chance says, whatever their lines; kin have far more."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest

from modelkin.core.fingerprints.anatomy import anatomy
from modelkin.core.fingerprints.chance import expected_keys
from modelkin.core.fingerprints.matrix_keys import line_keys
from tests.sdk.core.fingerprints.planted import Tensors, fingerprint
from tests.sdk.core.fingerprints.relatives import changed

Draw = np.random.Generator
MOST_BEYOND = 1.3
LAYERS = 12


def normal(draw: Draw, rows: int, length: int) -> npt.NDArray[np.float32]:
    return draw.standard_normal((rows, length), np.float32)


def heavy_tails(draw: Draw, rows: int, length: int) -> npt.NDArray[np.float32]:
    return draw.standard_t(3, (rows, length)).astype(np.float32)


def low_rank(draw: Draw, rows: int, length: int) -> npt.NDArray[np.float32]:
    return normal(draw, rows, 32) @ normal(draw, 32, length)


def unequal_columns(draw: Draw, rows: int, length: int) -> npt.NDArray[np.float32]:
    """Lognormal scales, with six outlier channels."""
    scales = draw.lognormal(0, 1, length)
    scales[:6] *= 30
    return normal(draw, rows, length) * scales.astype(np.float32)


def adapter(seed: int) -> Tensors:
    """LoRA of rank 64 for the queries and the values of twelve layers."""
    draw = np.random.default_rng(seed)
    matrices = Tensors()
    for name in (f"layers.{i}.{kind}" for i in range(LAYERS) for kind in "qv"):
        matrices[f"{name}.lora_A"] = draw.uniform(-0.04, 0.04, (64, 768)).astype(np.float32)
        matrices[f"{name}.lora_B"] = normal(draw, 768, 64) * np.float32(0.01)
    return matrices


@pytest.mark.slow
@pytest.mark.parametrize(
    ("length", "lines", "weights"),
    [
        (64, 70_000, normal),
        (100, 60_000, unequal_columns),
        (256, 33_000, heavy_tails),
        (256, 33_000, low_rank),
        (768, 33_000, unequal_columns),
    ],
)
def test_strangers_meet_as_often_as_expected(
    length: int, lines: int, weights: Callable[[Draw, int, int], npt.NDArray[np.float32]]
) -> None:
    """Over 1e9 pairs of lines and more: lambda to 1.3 of it, but for what Poisson adds."""
    first, second = (
        line_keys(weights(np.random.default_rng(seed), lines, length))[0].keys for seed in (1, 2)
    )
    expected = expected_keys({length: lines}, {length: lines}, 1)
    assert lines * lines > 1e9
    assert expected > 9
    common, luck = np.intersect1d(first, second).size, 3 * math.sqrt(expected)
    assert 0 < expected - luck < common < MOST_BEYOND * expected + luck


@pytest.mark.slow
def test_adapters_of_rank_64_tell_strangers_from_kin() -> None:
    """Four of them, 8e9 pairs of lines: common keys as expected. A child's are found."""
    made = [fingerprint(adapter(seed)) for seed in range(4)]
    expected = expected_keys(made[0].lines, made[1].lines, 1)
    common = [np.intersect1d(a.distinct, b.distinct).size for a, b in combinations(made, 2)]
    of_all = len(common) * expected
    assert 3 < expected < 5
    assert abs(sum(common) - of_all) < 3 * math.sqrt(of_all)
    models = {str(seed): each for seed, each in enumerate(made)}
    assert () == anatomy(models.pop("3"), models).parents
    found = anatomy(fingerprint(changed(adapter(0), 99, 0.3)), models)
    assert [("0", "derived")] == [(each.model, each.verdict) for each in found.parents]
    named = [each for each in found.tensors if each.sources]
    assert len(named) > LAYERS * 2
    assert all(each.sources[0].tensor.name == each.tensor.name for each in named)
