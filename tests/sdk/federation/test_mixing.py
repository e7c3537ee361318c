"""One model of a cluster's and the common one: kept, mixed, or chosen by a loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from modelkin.errors import InvalidParameter
from modelkin.federation.mixing import Mixing, Tensors, mix

RNG = np.random.default_rng(0)


def model(dtype: str = "float32") -> dict[str, Any]:
    """Two tensors, and a counter of whole numbers."""
    return {
        "w": RNG.normal(size=(3, 4)).astype(dtype),
        "b": RNG.normal(size=3).astype(dtype),
        "steps": np.array(RNG.integers(100)),
    }


CLUSTER, COMMON = model(), model()


@pytest.mark.parametrize("share", [0.25, 0.5, 0.9])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_mix_is_the_weighted_mean_rounded_once(dtype: str, share: float) -> None:
    """In float64, value by value; whole numbers are rounded to the nearest."""
    cluster, common = model(dtype), model(dtype)
    found = mix(cluster, common, share)
    for name, own in cluster.items():
        pairs = zip(own.ravel().tolist(), common[name].ravel().tolist(), strict=True)
        exact = [share * a + (1 - share) * b for a, b in pairs]
        if name == "steps":
            exact = [round(value) for value in exact]
        expected = np.array(exact).astype(own.dtype).reshape(own.shape)
        np.testing.assert_array_equal(found[name], expected)
        assert own.dtype == found[name].dtype


def test_truth_values_are_those_of_the_larger_share() -> None:
    """As in means of models: the nearest of both values."""
    cluster, common = {"on": np.array([True, False])}, {"on": np.array([False, True])}
    found = Mixing.of(0.7).model(cluster, common).tensors["on"]
    assert ([True, False], "bool") == (found.tolist(), str(found.dtype))


def test_whole_shares_are_exact() -> None:
    """The models themselves, also where one of them has NaN."""
    broken = {**COMMON, "w": np.full((3, 4), np.nan, np.float32)}
    assert mix(CLUSTER, broken, 1.0) is CLUSTER
    assert mix(broken, COMMON, 0.0) is COMMON


def squares(target: Tensors) -> Any:
    """A loss that is least at a model."""
    return lambda found: sum(float(((found[n] - v) ** 2).sum()) for n, v in target.items())


@pytest.mark.parametrize("share", [0.0, 0.25, 0.75, 1.0])
def test_the_least_loss_decides(share: float) -> None:
    """Among five shares, each model is made once, and the loss of each is reported."""
    asked = Mixing.of((0, 0.25, 0.5, 0.75, 1))
    loss = squares(mix(CLUSTER, COMMON, share))
    found = asked.model(CLUSTER, COMMON, loss)
    assert share == found.share
    expected = {each: loss(mix(CLUSTER, COMMON, each)) for each in asked.shares}
    assert expected == found.losses
    for name, values in mix(CLUSTER, COMMON, share).items():
        np.testing.assert_array_equal(found.tensors[name], values)


def test_of_equal_losses_the_earlier_share_is_taken() -> None:
    """And a loss that is not finite is never the least."""
    assert 1.0 == Mixing.of((1, 0)).model(CLUSTER, COMMON, lambda _: 2.0).share
    assert 0.0 == Mixing.of((0, 1)).model(CLUSTER, COMMON, lambda _: 2.0).share
    losses = iter([float("nan"), 3.0, float("-inf")])
    found = Mixing.of((0, 0.5, 1)).model(CLUSTER, COMMON, lambda _: next(losses))
    assert 0.5 == found.share


@pytest.mark.parametrize(
    ("share", "wants"),
    [(1, "cluster"), (0, "common"), (0.5, "both"), ((1, 0), "both"), ((1,), "cluster")],
)
def test_only_what_is_needed_is_wanted(share: Any, wants: str) -> None:
    """One model alone, where the other is in no mix."""
    assert wants == Mixing.of(share).wants


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan"), "0.5", True, (), (0, 0.0), None])
def test_a_share_that_is_none_is_refused(share: Any) -> None:
    """Shares are different numbers of 0 to 1."""
    with pytest.raises(InvalidParameter, match="share must be"):
        Mixing.of(share)


@pytest.mark.parametrize(
    ("common", "why"),
    [
        ({"w": COMMON["w"]}, "another layout: the model has 'b'"),
        (
            {**COMMON, "b": np.ones(4, np.float32)},
            "'b' has the shape .4., not .3.",
        ),
        ({**COMMON, "b": np.ones(3)}, "'b' is of float64, not of float32"),
    ],
)
def test_models_of_two_layouts_are_refused(common: Any, why: str) -> None:
    """Also where one of them would be taken as it is."""
    for share in (0, 0.5, 1):
        with pytest.raises(InvalidParameter, match=why):
            Mixing.of(share).model(CLUSTER, common)


def test_what_cannot_be_chosen_is_refused() -> None:
    """Several shares without a loss, losses that are all NaN, and tensors of no numbers."""
    several = Mixing.of((0, 1))
    with pytest.raises(InvalidParameter, match="give a loss"):
        several.model(CLUSTER, COMMON)
    with pytest.raises(InvalidParameter, match="no share has a finite loss"):
        several.model(CLUSTER, COMMON, lambda _: float("nan"))
    words = {"w": np.array(["a"])}
    with pytest.raises(InvalidParameter, match=r"the common model does not fit .* 'w' is of <U1"):
        several.model(words, words, lambda _: 0.0)
