"""From a hub with a default source to lineages: weights check what fine-tunes declare, and their
differences show what was tuned alike.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.app.harness import AppHarness, open_app
from tests.support.backends import Backend
from tests.support.fixtures import on_one_database
from tests.support.models.checkpoints import Tensors, sister_of
from tests.support.models.planted_checkpoints import CONSTANT, Planted, ensemble, model_hub, publish
from tests.support.servers.fake_huggingface import Hub
from tests.support.servers.webhook_receiver import Receiver, receiving

pytestmark = pytest.mark.slow


@pytest.fixture
def app(backend: Backend, tmp_path: Path) -> Iterator[AppHarness]:
    """A service that may connect to loopback."""
    with open_app(tmp_path, backend) as opened:
        yield opened


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    """A subscriber."""
    with receiving() as opened:
        yield opened


def follow(app: AppHarness, hub: Hub, receiver: Receiver, space: str) -> set[str]:
    """Follow a hub with a default source, and return the models with a contradicted base."""
    path = f"/ok/{space}-{id(app)}"
    app.webhooks.subscribe(f"{receiver.url}{path}", "lineage.mismatch")
    app.hubs.create(space=space, url=hub.url, poll_seconds=3600)
    app.worker.run_all()
    sent = [json.loads(request.body) for request in receiver.at(path)]
    return {event["data"]["model"] for event in sent}


def read(app: AppHarness, path: str, **params: Any) -> dict[str, Any]:
    answer = app.http.get(f"/v1/spaces/{path}", params=params)
    assert 200 == answer.status_code, answer.text
    found: dict[str, Any] = answer.json()
    return found


def lineages(app: AppHarness, space: str, planted: Mapping[str, Planted]) -> dict[str, Any]:
    """The lineage of every model that declares a base."""
    declared = [name for name, model in planted.items() if model.declared is not None]
    return {name: read(app, f"{space}/lineage", model=name) for name in declared}


@on_one_database
def test_an_ensemble_and_its_children(hub: Hub, app: AppHarness, receiver: Receiver) -> None:
    """Children that trained a quarter of their parameters are consistent, every wrong base is
    contradicted and the right one named, a retrained model is kin to none, and children
    that were tuned alike are nearest to each other in the space of their differences.
    """
    planted = ensemble()
    publish(hub, planted)
    contradicted = follow(app, hub, receiver, "ani")
    sisters = {name: sister_of("ani", name) for name in planted if "base" in name}
    kinds = app.hubs.kinds()
    assert {"ani", *sisters.values()} == kinds.keys()
    assert "weight" == kinds["ani"]
    assert all(kinds[sisters[name]].startswith(f"delta against {name}@") for name in sisters)

    found = lineages(app, "ani", planted)
    children = {name for name in planted if "child" in name}
    wrong = {name for name in planted if "wrong" in name}
    assert dict.fromkeys(children, "consistent") == {n: found[n]["verdict"] for n in children}
    assert dict.fromkeys(wrong, "mismatch") == {n: found[n]["verdict"] for n in wrong}
    assert {n: planted[n].base for n in wrong} == {n: found[n]["likely_base"] for n in wrong}
    assert wrong == contradicted
    assert all(found[name]["base"]["kappa"] >= 0.3 for name in children)
    assert all(found[name]["base"]["kappa"] < 0.1 for name in wrong)

    retrained = read(app, "ani/neighbors", model="ani/retrained", k=100)["items"]
    assert len(planted) - 1 == len(retrained)
    assert max(item["kappa"] for item in retrained) < 0.1
    tensors = read(app, "ani/tensors")["items"]
    assert [CONSTANT] == [tensor["name"] for tensor in tensors if tensor["looks_constant"]]
    for name in children:
        sister = sisters[planted[name].declared or ""]
        [nearest] = read(app, f"{sister}/neighbors", model=name, k=1)["items"]
        assert (name[:-1], True) == (nearest["model"][:-1], nearest["kappa"] > 0.3)


@on_one_database
def test_the_fine_tunes_of_a_hub(hub: Hub, app: AppHarness, receiver: Receiver) -> None:
    """In a space with few bases that all fine-tunes declare, and a few strangers, each declaration
    is consistent, each base is the first neighbour of its fine-tunes, and no event says otherwise.
    """
    planted = model_hub()
    publish(hub, planted)
    assert set() == follow(app, hub, receiver, "hub")
    verdicts = {name: lineage["verdict"] for name, lineage in lineages(app, "hub", planted).items()}
    tuned = {name: model.base for name, model in planted.items() if model.base is not None}
    assert 12 == len(tuned)
    assert dict.fromkeys(tuned, "consistent") == verdicts
    nearest = {n: read(app, "hub/neighbors", model=n, k=1)["items"][0]["model"] for n in tuned}
    assert tuned == nearest


@pytest.mark.parametrize("side", [128, 225])
@on_one_database
def test_masks_of_a_hub_prove_nothing(
    hub: Hub, app: AppHarness, receiver: Receiver, side: int
) -> None:
    """Networks whose files hold causal masks, 9% or 22% of all: the child is consistent, the two
    strangers that declare its base are contradicted, and no other is near.
    """
    names = {"base": None, "child": "acme/base", "wrong0": "acme/base", "wrong1": "acme/base"}
    names |= {f"other{place}": None for place in range(4)}
    base = _masked(0, side)
    rng = np.random.default_rng(9)
    tuned = {
        name: value
        if name.endswith("attn.bias")
        else (value + rng.normal(0, 0.004, value.shape)).astype("f4")
        for name, value in base.items()
    }
    tensors = {name: _masked(place, side) for place, name in enumerate(names)}
    planted = {
        f"acme/{name}": Planted({**tensors, "base": base, "child": tuned}[name], declared)
        for name, declared in names.items()
    }
    publish(hub, planted)
    space = f"masks{side}"
    assert {"acme/wrong0", "acme/wrong1"} == follow(app, hub, receiver, space)
    found = lineages(app, space, planted)
    verdicts = {"acme/child": "consistent", "acme/wrong0": "mismatch", "acme/wrong1": "mismatch"}
    assert verdicts == {name: lineage["verdict"] for name, lineage in found.items()}
    near = read(app, f"{space}/neighbors", model="acme/base")
    assert [] == near["constant_tensors"]
    assert "the space leaves out the tensors called 'h.0.attn.bias' and 1 more" == near["note"]
    assert ["h.0.attn.bias", "h.1.attn.bias"] == read(app, space)["exclude"]
    assert ["acme/child"] == [item["model"] for item in near["items"] if item["kappa"] > 0.05]


def _masked(seed: int, side: int) -> Tensors:
    """A network of some 356,000 parameters with two causal masks among its tensors."""
    generator = np.random.default_rng([3, seed])
    shapes = {"wte.weight": (1200, 128), "h.0.mlp.weight": (512, 128), "h.1.mlp.weight": (512, 256)}
    made: Tensors = {
        name: generator.normal(0, 0.02, shape).astype("f4") for name, shape in shapes.items()
    }
    mask = np.tril(np.ones((1, 1, side, side), np.float32))
    return made | {f"h.{layer}.attn.bias": mask for layer in range(2)}
