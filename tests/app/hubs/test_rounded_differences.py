"""Half-precision children of an F32 base, by a source of default settings."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from safetensors.torch import save

from tests.support.app.harness import AppHarness
from tests.support.servers.fake_huggingface import Hub

pytestmark = pytest.mark.slow

SIZE = 1 << 16


def normal(seed: int, scale: float) -> torch.Tensor:
    return scale * torch.randn(SIZE, generator=torch.Generator().manual_seed(seed))


def sync(hub: Hub, app: AppHarness, children: dict[str, torch.Tensor]) -> list[Any]:
    """Push the base and its children, sync these, and return the results of the jobs."""
    source = app.hubs.follow(hub.url)
    hub.push("org/base", {"model.safetensors": save({"layer.weight": normal(0, 0.02)})})
    results = []
    for name, weights in children.items():
        file = {"model.safetensors": save({"layer.weight": weights})}
        hub.push(name, file, card={"base_model": "org/base"})
        job = app.hubs.sync_model(source, name)
        assert job.result is not None, job.error
        results.append(job.result)
    return results


def neighbors(app: AppHarness, space: str, model: str) -> Any:
    """The neighbours of a model in a space of differences."""
    answer = app.http.get(f"/v1/spaces/{space}/neighbors", params={"model": model})
    assert 200 == answer.status_code, answer.text
    return answer.json()


def test_unrelated_children_are_not_kin_by_their_dtype(hub: Hub, app: AppHarness) -> None:
    """Three each in BF16, F16 and F32: no two have a kappa of .3, where it was .8 by the dtype."""
    kinds = ((torch.bfloat16, 2e-5), (torch.float16, 2e-6), (torch.float32, 2e-5))
    children = {
        f"org/{i}-{n}": (normal(0, 0.02) + normal(1 + 3 * i + n, drift)).to(dtype)
        for i, (dtype, drift) in enumerate(kinds)
        for n in range(3)
    }
    results = sync(hub, app, children)
    assert [[]] * 9 == [result["notes"] for result in results]
    space = results[0]["delta"]["space"]
    for name in ("org/0-0", "org/1-0", "org/2-0"):
        found = neighbors(app, space, name)
        assert 8 == len(found["items"])
        assert max(item["kappa"] for item in found["items"]) < 0.3
        assert found["note"] is None


@pytest.mark.parametrize("drift", [1e-7, 1e-6])
def test_what_rounding_hides_is_noted(hub: Hub, app: AppHarness, drift: float) -> None:
    """Far below the dtype's step, the job and the neighbours in the space of differences say so."""
    child = (normal(0, 0.02) + normal(1, drift)).bfloat16()
    (result,) = sync(hub, app, {"org/a": child})
    (note,) = result["notes"]
    assert "of the weights of trained tensors moved farther than rounding" in note
    assert note == result["delta"]["note"]
    assert note == neighbors(app, result["delta"]["space"], "org/a")["note"]
    assert neighbors(app, result["space"], "org/a")["note"] is None


def test_a_mere_copy_in_half_precision_has_no_difference(hub: Hub, app: AppHarness) -> None:
    """A base that was only stored in another dtype is not compared by its rounding."""
    (result,) = sync(hub, app, {"org/a": normal(0, 0.02).bfloat16()})
    assert "no weight differs from its base" in result["delta"]["reason"]
    assert result["delta"]["reason"].endswith("by more than rounding")
