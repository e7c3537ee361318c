"""Means of clusters: those of numpy, whatever the order of arrival, of models that fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from modelkin.integrations.federation.cluster_means import cluster_means, mean_model, misfits

Model = dict[str, np.ndarray[Any, Any]]
NAMES = ("ada", "bo", "cy", "di", "eve")
WEIGHTS = dict(zip(NAMES, (10.0, 3.0, 0.25, 7.0, 1e6), strict=True))


def models() -> dict[str, Model]:
    """One model a client, of floats of two widths and a counter."""
    rng = np.random.default_rng(3)
    return {
        name: {
            "w": rng.normal(size=(4, 3)).astype(np.float32),
            "b": rng.normal(size=5),
            "steps": np.array(int(rng.integers(100))),
        }
        for name in NAMES
    }


def test_means_are_those_of_numpy() -> None:
    """Each cluster has the weighted mean of its members, in the members' dtypes."""
    sent, clusters = models(), {0: ("ada", "bo", "cy"), 4: ("di", "eve")}
    found = cluster_means(sent, clusters, WEIGHTS)
    assert clusters.keys() == found.keys()
    for cluster, members in clusters.items():
        for name in ("w", "b", "steps"):
            each = np.stack([sent[m][name] for m in members]).astype(np.float64)
            mean = np.average(each, axis=0, weights=[WEIGHTS[m] for m in members])
            expected = np.rint(mean) if name == "steps" else mean
            assert isinstance(found[cluster][name], np.ndarray)  # a counter is no scalar
            assert sent["ada"][name].dtype == found[cluster][name].dtype
            np.testing.assert_allclose(found[cluster][name], expected, rtol=1e-6)


def test_means_do_not_depend_on_the_order_or_the_ids() -> None:
    """Models that arrive in another order, under other ids, give the same bits for the names."""
    sent = models()
    expected = cluster_means(sent, {0: NAMES}, WEIGHTS)[0]
    ids = {name: number for number, name in enumerate(("di", "bo", "eve", "ada", "cy"))}
    name_of = {number: name for name, number in ids.items()}
    by_id = {number: sent[name] for name, number in ids.items()}
    weights = {ids[name]: weight for name, weight in WEIGHTS.items()}
    found = cluster_means(by_id, {0: tuple(by_id)}, weights, name_of.__getitem__)[0]
    assert {n: v.tobytes() for n, v in expected.items()} == {
        n: v.tobytes() for n, v in found.items()
    }


def test_a_weight_of_zero_leaves_a_member_out() -> None:
    """The others' mean is exactly that without it, and a cluster of none has no mean."""
    sent, clusters = models(), {0: ("ada", "bo", "cy"), 1: ("di",), 2: ("gone",)}
    found = cluster_means(sent, clusters, {**WEIGHTS, "bo": 0.0, "di": 0.0})
    without = cluster_means(sent, {0: ("ada", "cy")}, WEIGHTS)
    assert {0} == found.keys()
    assert all(np.array_equal(found[0][name], without[0][name]) for name in ("w", "b", "steps"))


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({}, "it sent no array"),
        ({"w": np.zeros((4, 3)), "b": np.zeros(5)}, "the model has 'steps'"),
        ({**models()["bo"], "x": np.zeros(1)}, "the model does not have 'x'"),
        ({**models()["bo"], "b": np.zeros(6)}, "'b' has the shape [6], not [5]"),
        ({**models()["bo"], "b": np.full(5, np.nan)}, "'b' has a value that is NaN or infinite"),
        ({**models()["bo"], "w": np.full((4, 3), 1e300)}, "NaN or infinite in float32"),
        ({**models()["bo"], "steps": np.array(1e300)}, "out of range in int64"),
        ({**models()["bo"], "steps": np.array(2.0**63)}, "out of range in int64"),
        ({**models()["bo"], "steps": np.array(2**63, np.uint64)}, "out of range in int64"),
        ({**models()["bo"], "steps": np.array(np.nan)}, "out of range in int64"),
        ({**models()["bo"], "b": np.array(["a"] * 5)}, "'b' is of <U1, not of numbers"),
    ],
)
def test_models_that_do_not_fit_have_a_reason(wrong: Model, why: str) -> None:
    """Another layout than the model sent, or no finite numbers."""
    found = misfits({**models(), "bo": wrong}, models()["ada"])
    assert {"bo"} == found.keys()
    assert why in found["bo"]


def test_means_have_the_types_of_the_model_sent() -> None:
    """Members of wider, narrower or other types count, and change no type of their cluster."""
    sent, like = models(), models()["ada"]
    sent["bo"] = {name: values.astype(np.float64) for name, values in sent["bo"].items()}
    sent["cy"] = {name: values.astype(np.float16) for name, values in sent["cy"].items()}
    assert {} == misfits(sent, like)
    found = mean_model(sent, WEIGHTS, like=like)
    for name, values in found.items():
        assert like[name].dtype == values.dtype
        each = [sent[member][name].astype(np.float64) for member in NAMES]
        mean = np.average(each, axis=0, weights=[WEIGHTS[member] for member in NAMES])
        expected = np.rint(mean) if name == "steps" else mean
        np.testing.assert_allclose(values, expected, rtol=1e-6)


def test_most_members_do_not_decide_the_layout() -> None:
    """The model that was sent does, also where all but one have another one."""
    one, other = {"w": np.zeros(2)}, {"w": np.zeros(3)}
    assert {"a", "b"} == misfits({"a": other, "b": other, "c": one}, one).keys()
