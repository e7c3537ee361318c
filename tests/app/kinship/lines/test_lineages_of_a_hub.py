"""Lineages of what a hub has: each model in a layout of its own, and none of them prepared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.sdk.core.fingerprints.planted import DERIVED, Tensors, model
from tests.sdk.core.fingerprints.relatives import changed
from tests.support.app.harness import open_hub_app
from tests.support.models.checkpoints import safetensors
from tests.support.servers.fake_huggingface import loopback_hub

OLD, NEW = "2024-01-01T00:00:00.000Z", "2025-01-01T00:00:00.000Z"


@pytest.mark.slow
def test_models_of_new_layouts_are_answered_for_at_once(tmp_path: Path) -> None:
    """In no space, and in the spaces that syncs chose; with the dates of the hub."""
    base = model(0)
    grown = DERIVED["more tokens"](base)
    made: dict[str, tuple[Tensors, str, dict[str, Any]]] = {
        "org/base": (base, OLD, {}),
        "org/stranger": (DERIVED["up-scaled"](model(1)), OLD, {}),
        "org/up": (DERIVED["up-scaled"](base), NEW, {"base_model": "org/base"}),
        "org/claims": (changed(grown, 3), NEW, {"base_model": "org/stranger"}),
    }
    with loopback_hub() as hub, open_hub_app(tmp_path) as app:
        for name, (tensors, created, card) in made.items():
            hub.push(name, {"model.safetensors": safetensors(tensors)}, card=card, created=created)
        source = app.hubs.follow(hub.url)
        spaces = {}
        for name in made:
            job = app.hubs.sync_model(source, name)
            assert job.result is not None, job.error
            spaces[name] = job.result.get("space")
        found = app.http.get("/v1/fingerprints/org/up/lineage").json()
        assert ("consistent", "depth_up_scaled") == (found["verdict"], found["relation"])
        assert "hub" == found["lines"]["stated_by"]
        found = app.http.get("/v1/fingerprints/org/claims/lineage").json()
        assert ("mismatch", "org/base") == (found["verdict"], found["likely_base"])
        assert "lines" == found["likely_by_lines"]["edge"]
        [space] = {spaces["org/up"]} - {None}
        asked = {"model": "org/up"}
        found = app.http.get(f"/v1/spaces/{space}/lineage", params=asked).json()
        assert ("consistent", "kappa", True) == (
            found["verdict"],
            found["reason"],  # over the part of the base's space that the model has
            found["lines_agree"],
        )
        asked = {"model": "org/claims"}
        found = app.http.get(f"/v1/spaces/{spaces['org/claims']}/lineage", params=asked).json()
        assert ("mismatch", "chance", True) == (
            found["verdict"],
            found["reason"],
            found["lines_agree"],
        )
        assert "org/base" == found["likely_base"]
