"""Adapters as tensors: read with their scales, and written in the rank of another one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from modelkin.errors import InvalidInput
from modelkin.federation.adapters import mean_of_rank, read_adapter, stacked_mean, write_adapter
from tests.sdk.adapters.folders import difference, factors, random_factors

SHAPES = {"h.0.q_proj": (12, 8), "h.0.down": (8, 20)}
FIELDS: dict[str, Any] = {"peft_type": "LORA", "r": 4, "lora_alpha": 16}


def tensors(seed: int, rank: int) -> dict[str, Any]:
    """An adapter's factors, by PEFT's names."""
    return factors(random_factors(seed, SHAPES, rank))


def config(rank: int, alpha: float, **fields: Any) -> dict[str, Any]:
    return {**FIELDS, "r": rank, "lora_alpha": alpha, **fields}


def product(held: dict[str, Any], module: str) -> Any:
    """BA, in float64."""
    a, b = (held[f"base_model.model.{module}.lora_{side}.weight"] for side in "AB")
    return b.astype(np.float64) @ a.astype(np.float64)


@pytest.mark.parametrize(
    ("fields", "scale"),
    [
        (config(4, 16), 4.0),
        (config(4, 16, use_rslora=True), 8.0),
        (config(4, 16, alpha_pattern={"q_proj": -2}), -0.5),
    ],
)
def test_the_scale_of_each_client_is_in_its_difference(
    fields: dict[str, Any], scale: float
) -> None:
    """(α/r) BA, as the configuration says it."""
    held = tensors(1, 4)
    read = read_adapter(held, fields)["h.0.q_proj.weight"].product()
    assert_allclose(read, scale * product(held, "h.0.q_proj"), rtol=1e-12)


def test_an_alpha_beside_the_factors_is_the_scale() -> None:
    """As kohya's trainers save it, and as messages carry it."""
    held = tensors(1, 4)
    alphas = {f"base_model.model.{name}.alpha": np.array(2.0) for name in SHAPES}
    read = read_adapter({**held, **alphas})["h.0.down.weight"].product()
    assert_allclose(read, 0.5 * product(held, "h.0.down"), rtol=1e-12)


def test_clients_of_other_ranks_and_scales_have_one_mean() -> None:
    """The mean of what each adapter does to the model."""
    two, eight = tensors(1, 2), tensors(2, 8)
    read = {"a": read_adapter(two, config(2, 16)), "b": read_adapter(eight, config(8, 16))}
    mean = stacked_mean(read, {"a": 1, "b": 3})["h.0.q_proj.weight"].product()
    expected = (8 * product(two, "h.0.q_proj") + 3 * 2 * product(eight, "h.0.q_proj")) / 4
    assert_allclose(mean, expected, rtol=1e-10)


def test_a_base_that_stores_in_by_out_is_averaged_as_it_is() -> None:
    """GPT-2's layers: the difference is the transpose, there and back."""
    held, fields = tensors(1, 4), config(4, 16, fan_in_fan_out=True)
    read = read_adapter(held, fields)
    assert (8, 12) == read["h.0.q_proj.weight"].shape
    assert_allclose(read["h.0.q_proj.weight"].product(), 4 * product(held, "h.0.q_proj").T)
    written = write_adapter(read, held, fields)
    assert_allclose(product(written, "h.0.q_proj"), product(held, "h.0.q_proj"), atol=1e-5)


@pytest.mark.parametrize("alpha", [16, -3])
def test_each_client_is_answered_in_its_own_rank(alpha: float) -> None:
    """Names, shapes, dtypes and scale are its own; the difference is the best one of its rank."""
    held = {"a": tensors(1, 2), "b": tensors(2, 8)}
    ranks = {"a": 2, "b": 8}
    read = {name: read_adapter(held[name], config(ranks[name], alpha)) for name in held}
    mean = stacked_mean(read)
    for name, rank in ranks.items():
        written = write_adapter(mean, held[name], config(rank, alpha))
        assert {n: (v.shape, v.dtype) for n, v in held[name].items()} == {
            n: (v.shape, v.dtype) for n, v in written.items()
        }
        again = read_adapter(written, config(rank, alpha))
        best = mean_of_rank(read, rank=rank).adapter
        for tensor in mean:
            assert_allclose(again[tensor].product(), best[tensor].product(), rtol=0, atol=2e-5)


def test_a_higher_rank_keeps_the_difference_and_can_be_trained() -> None:
    """What is left of A is drawn, as a training begins, and what is left of B is zero."""
    read = read_adapter(tensors(1, 2), config(2, 4))
    written = write_adapter(read, tensors(3, 6), config(6, 6))
    a, b = (written[f"base_model.model.h.0.q_proj.lora_{side}.weight"] for side in "AB")
    assert_allclose(b @ a, read["h.0.q_proj.weight"].product(), atol=1e-5)
    assert np.abs(a[2:]).min(axis=1).max() > 0
    assert np.abs(a[2:]).max() <= 8**-0.5
    assert not b[:, 2:].any()


def test_kernels_are_matrices() -> None:
    """A convolution's factors keep their shapes."""
    normal = np.random.default_rng(0).normal
    held = {
        "unet.conv.lora.down.weight": normal(size=(4, 3, 3, 3)),
        "unet.conv.lora.up.weight": normal(size=(6, 4, 1, 1)),
        "unet.conv.alpha": np.array(4),
    }
    read = read_adapter(held)
    assert {"unet.conv.weight": (6, 27)} == {name: each.shape for name, each in read.items()}
    again = read_adapter(write_adapter(read, held))
    assert_allclose(again["unet.conv.weight"].product(), read["unet.conv.weight"].product())


A, B = (f"base_model.model.h.0.q_proj.lora_{side}.weight" for side in "AB")
GOOD = tensors(1, 4)
WRONG: list[tuple[dict[str, Any], Any, str]] = [
    ({A: GOOD[A]}, FIELDS, "has no lora_B"),
    ({B: GOOD[B]}, FIELDS, "has no lora_A"),
    ({**GOOD, A: GOOD[A][:3]}, FIELDS, "A has the rank 3 and B 4"),
    ({**GOOD, A: GOOD[A][:0], B: GOOD[B][:, :0]}, FIELDS, "are empty"),
    ({**GOOD, A: np.full_like(GOOD[A], np.nan)}, FIELDS, "lora_A.weight' has a value that is NaN"),
    ({**GOOD, B: GOOD[B].astype("f8") * 1e300}, FIELDS, "NaN or infinite"),
    ({**GOOD, B: GOOD[B].astype("i1")}, FIELDS, "is of int8, not of floats"),
    ({**GOOD, "head.weight": np.ones((2, 2))}, FIELDS, "'head.weight' is not a factor"),
    (GOOD, config(8, 16), "have the rank 4, its configuration says 8"),
    (GOOD, None, "have no alpha beside them: give config"),
    (GOOD, {**FIELDS, "use_dora": True}, "use_dora is True"),
    ({**GOOD, "base_model.model.h.0.q_proj.alpha": np.array(0.0)}, None, "alpha"),
    ({}, FIELDS, "holds no factors"),
]


@pytest.mark.parametrize(("held", "fields", "why"), WRONG)
def test_what_is_no_adapter_is_refused(held: dict[str, Any], fields: Any, why: str) -> None:
    """The error names the tensor or the field."""
    with pytest.raises(InvalidInput, match=why):
        read_adapter(held, fields)


def test_other_products_are_refused() -> None:
    """LoHa's differences are no products of two factors."""
    normal = np.random.default_rng(0).normal
    sides = {"a": (6, 2), "b": (2, 6)}
    held = {f"h.hada_w{n}_{side}": normal(size=sides[side]) for n in (1, 2) for side in "ab"}
    with pytest.raises(InvalidInput, match=r"'h\.weight' is of LoHa"):
        read_adapter({**held, "h.alpha": np.array(1.0)})


def test_an_adapter_of_other_tensors_cannot_be_written() -> None:
    """The error names some of both."""
    other = factors(random_factors(0, {"h.0.q_proj": (12, 8)}))
    with pytest.raises(InvalidInput, match=r"of 'h\.0\.down\.weight', .* and not of 'h\.0\.q_"):
        write_adapter(read_adapter(GOOD, FIELDS), other, FIELDS)


def test_the_oracle_of_files_agrees() -> None:
    """The difference of an adapter on disk is that of its tensors."""
    pairs = random_factors(4, SHAPES)
    expected = difference(pairs, 4.0)
    read = read_adapter(factors(pairs), FIELDS)
    found = np.concatenate([np.abs(read[name].product()).ravel() for name in sorted(read)])
    assert_allclose(found, expected, rtol=1e-6)
