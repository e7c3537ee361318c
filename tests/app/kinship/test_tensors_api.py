"""The tensors of a space over HTTP: their shares, and the constants among them."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest

from modelkin import Client, Layout, Support
from modelkin.errors import ApiError
from tests.support.http_space import Space, assert_problem, ok
from tests.support.models.planted_tensors import CONSTANTS, LAYOUT, TRAINED, children, strangers

SIGNED = (256, 1, "affine32")


def space_of(http: httpx.Client, *models: Support, layout: Layout = LAYOUT) -> Space:
    """A space with some models."""
    space = Space(http, layout.num_parameters, layout=layout.to_json())
    space.put_all({f"m{place:03d}": support for place, support in enumerate(models)})
    return space


def tensors(space: Space) -> dict[str, Any]:
    """The answer."""
    return ok(space.http.get(space.path("tensors")))


def named(space: Space) -> set[str]:
    """The tensors that look constant."""
    return {item["name"] for item in tensors(space)["items"] if item["looks_constant"]}


def test_a_constant_tensor_is_named_and_left_out(http: httpx.Client, client: Client) -> None:
    """Strangers with one fixed tensor are none, whether comparisons leave it out or the layout."""
    models = strangers(np.random.default_rng(0), 12, CONSTANTS[:1])
    space = space_of(http, *models)
    space.put_signature("unseen", models[0].signature(*SIGNED))
    found = client.spaces.tensors(space.name)
    assert (12, 66, 13) == (found.supports, found.pairs, found.version)
    assert {"stft.basis"} == {tensor.name for tensor in found if tensor.looks_constant}
    assert list(found.to_pandas().name) == [tensor.name for tensor in LAYOUT.tensors]
    basis = found[0]
    assert (600, 150 / 550, 1.0, 1.0, 66) == (
        basis.size,
        basis.share,
        basis.similarity,
        basis.kappa,
        basis.strangers,
    )
    assert sum(tensor.share or 0 for tensor in found) == pytest.approx(1)
    trained = {tensor.name: tensor for tensor in found if tensor.name in TRAINED}
    assert all((t.similarity or 0) < 0.3 for name, t in trained.items() if name != "norm")
    assert space.neighbors("m000")["items"][1]["kappa"] < 0.1
    left = Layout.of((t.name, t.shape) for t in LAYOUT.tensors if t.name != "stft.basis")
    moved = [Support.from_indices(m.indices[m.indices >= 600] - 600, 3420) for m in models]
    other = space_of(http, *moved, layout=left)
    assert set() == named(other)
    assert other.neighbors("m000")["items"][0]["kappa"] < 0.1


def test_frozen_tensors_are_not_named(http: httpx.Client) -> None:
    """Fine-tunes of one base agree in what they froze, and are kin elsewhere."""
    space = space_of(http, *children(np.random.default_rng(1), 8, ["conv1", "head"]))
    answer = tensors(space)
    assert 28 == answer["pairs"]
    assert set() == named(space)
    assert 1.0 == answer["items"][0]["similarity"]
    assert [0] * 6 == [item["strangers"] for item in answer["items"]]


def test_the_sample_is_limited_and_the_same_each_time(
    http: httpx.Client,
) -> None:
    """Of many models some pairs are compared, and all are counted."""
    space = space_of(http, *strangers(np.random.default_rng(2), 40, CONSTANTS))
    first = tensors(space)
    assert (40, 200) == (first["supports"], first["pairs"])
    assert set(CONSTANTS) == named(space)
    assert first == tensors(space)


def test_few_models_say_little(http: httpx.Client) -> None:
    """Without supports no figure; with one no pair."""
    space = space_of(http)
    nothing = {"share": None, "similarity": None, "kappa": None, "strangers": 0}
    for item in tensors(space)["items"]:
        assert nothing.items() <= item.items()
    [one] = strangers(np.random.default_rng(3), 1, ())
    space.put("a", one)
    answer = tensors(space)
    assert (1, 0) == (answer["supports"], answer["pairs"])
    assert 150 / 550 == answer["items"][0]["share"]
    assert not any(item["looks_constant"] for item in answer["items"])


def test_a_space_without_a_layout_has_no_tensors(space: Space, client: Client) -> None:
    """A 422 that says what to do."""
    asked = space.http.get(space.path("tensors"))
    assert "no layout" in assert_problem(asked, 422, "invalid_parameter", "space")
    with pytest.raises(ApiError, match="no layout"):
        client.spaces.tensors(space.name)
