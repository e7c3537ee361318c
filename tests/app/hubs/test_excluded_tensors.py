"""Tensors that a source or its space leaves out are part of no support and of no layout."""

from __future__ import annotations

from typing import Any

import pytest

from app.hubs.records import SourceRecord
from app.hubs.service import SourceService
from app.models.spaces.records import SpaceRecord
from app.models.spaces.requested import RequestedSpace
from app.models.spaces.service import SpaceService
from app.models.spaces.stored_layouts import StoredLayout
from modelkin.core.layout import Layout
from tests.support.app.harness import AppHarness
from tests.support.models.checkpoints import (
    SHAPES,
    Tensors,
    delta_support,
    random_tensors,
    safetensors,
    sister_of,
    weight_support,
)
from tests.support.servers.fake_huggingface import Hub

FIXED = {**SHAPES, "stft.basis": (64, 8), "norm.running_mean": (50,)}
CARD = {"base_model": "org/base"}
EXCLUDE = ["stft.*", "*.running_*"]


def fixed(seed: int) -> Tensors:
    """Weights beside constants, which are the same and large in every model."""
    tensors = random_tensors(seed, FIXED)
    constants = random_tensors(99, FIXED)
    return tensors | {name: 10 * constants[name] for name in ("stft.basis", "norm.running_mean")}


def kept(tensors: Tensors) -> Tensors:
    return {name: tensors[name] for name in SHAPES}


def push(hub: Hub, name: str, tensors: Tensors, **known: Any) -> None:
    hub.push(name, {"model.safetensors": safetensors(tensors)}, **known)


def space_of(app: AppHarness, name: str) -> SpaceRecord:
    with app.database.reading() as session:
        return app.services[SpaceService].get(session, app.tenant, name)


def synced(app: AppHarness, source: SourceRecord, name: str) -> dict[str, Any]:
    job = app.hubs.sync_model(source, name)
    assert job.result is not None, job.error
    return dict(job.result)


def test_excluded_tensors_are_left_out_everywhere(hub: Hub, app: AppHarness) -> None:
    """Weights, base, digest of the base, layout and M are those of the other tensors, and the
    spaces that are made say so.
    """
    push(hub, "org/base", fixed(1))
    push(hub, "org/a", fixed(2), card=CARD)
    outcome = synced(app, app.hubs.follow(hub.url, exclude=EXCLUDE), "org/a")
    sister = sister_of("kin", "org/base")
    assert ("kin", sister, []) == (outcome["space"], outcome["delta"]["space"], outcome["notes"])
    assert weight_support(kept(fixed(2))) == app.hubs.support("org/a")
    assert delta_support(kept(fixed(2)), kept(fixed(1))) == app.hubs.support("org/a", sister)
    for name in ("kin", sister):
        space = space_of(app, name)
        assert (tuple(EXCLUDE), 3050) == (space.exclude, space.num_parameters)
        assert Layout.of(sorted(SHAPES.items())).digest == space.layout_digest


def test_checkpoints_that_lack_what_is_excluded_share_the_space(hub: Hub, app: AppHarness) -> None:
    """A pattern that matches nothing is a note, and what is left is the same layout."""
    push(hub, "org/a", random_tensors(1))
    push(hub, "org/b", fixed(2))
    source = app.hubs.follow(hub.url, exclude=EXCLUDE)
    first, second = synced(app, source, "org/a"), synced(app, source, "org/b")
    assert ["kin"] == app.hubs.spaces()
    notes = [f"exclude: {pattern!r} matches no tensor" for pattern in EXCLUDE]
    assert (notes, []) == (first["notes"], second["notes"])


def test_what_a_space_excludes_holds_for_every_source(hub: Hub, app: AppHarness) -> None:
    """Also for checkpoints of another layout, whose space takes the patterns over."""
    layout = Layout.of(FIXED.items()).without(EXCLUDE, unmatched_ok=True)
    with app.database.writing() as session:
        app.services[SpaceService].create(
            session,
            app.tenant,
            "kin",
            RequestedSpace(
                num_parameters=None,
                layout=StoredLayout.of(layout),
                scheme=None,
                num_perm=64,
                seed=1,
                exclude=EXCLUDE,
            ),
        )
    push(hub, "org/base", fixed(1))
    push(hub, "org/a", fixed(2), card=CARD)
    wide = fixed(3) | random_tensors(3, {"encoder.weight": (50, 42)})
    push(hub, "org/wide", wide)
    source = app.hubs.follow(hub.url)
    outcome = synced(app, source, "org/a")
    assert ("kin", 152) == (outcome["space"], outcome["support_size"])
    assert sister_of("kin", "org/base") == outcome["delta"]["space"]
    other = space_of(app, synced(app, source, "org/wide")["space"])
    assert (tuple(EXCLUDE), 3050 + 100) == (other.exclude, other.num_parameters)


def test_nothing_left_is_an_error(hub: Hub, app: AppHarness) -> None:
    """A source that leaves out every tensor stores nothing and says why."""
    push(hub, "org/a", random_tensors(1))
    job = app.hubs.sync_model(app.hubs.follow(hub.url, exclude=["*.*", "?*h*"]), "org/a")
    assert job.error is not None
    assert ("failed", "invalid_checkpoint") == (job.state, job.error["code"])
    assert "exclude leaves out 3 tensors" in job.error["detail"]
    assert [] == app.hubs.spaces()


def test_what_is_excluded_may_be_of_any_kind(hub: Hub, app: AppHarness) -> None:
    """A checkpoint that would be refused for its packed tensors is accepted without them."""
    packed = random_tensors(1) | {"quantised.weight": random_tensors(2)["encoder.weight"]}
    packed["quantised.weight"] = packed["quantised.weight"].astype("i1")
    packed["encoder.bias"] = packed["encoder.bias"].astype("f2")
    push(hub, "org/a", packed)
    assert "failed" == app.hubs.sync_model(app.hubs.follow(hub.url), "org/a").state
    source = app.hubs.follow(hub.url, exclude=["quantised.*"])
    assert "succeeded" == app.hubs.sync_model(source, "org/a").state


@pytest.mark.parametrize("on_delete", ["keep", "remove"])
def test_a_change_of_the_patterns_makes_models_again(
    hub: Hub, app: AppHarness, on_delete: str
) -> None:
    """They are in their space, over what is left of them."""
    push(hub, "org/a", fixed(1))
    source = app.hubs.follow(hub.url, on_delete=on_delete)
    assert "kin" == synced(app, source, "org/a")["space"]
    with app.database.writing() as session:
        changes = {"exclude": EXCLUDE}
        app.services[SourceService].update(session, app.tenant, source.id, changes)
    outcome = synced(app, app.hubs.source(source.id), "org/a")
    assert ("stored", "kin") == (outcome["outcome"], outcome["space"])
    support = app.hubs.support("org/a")
    assert 3050 == support.num_parameters - support.gaps.size
    again = synced(app, app.hubs.source(source.id), "org/a")
    assert "unchanged" == again["outcome"]
