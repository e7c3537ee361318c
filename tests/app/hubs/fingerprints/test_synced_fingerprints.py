"""Syncs store the fingerprint of a model beside its supports, from one download."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.fingerprints.records import Facts
from app.fingerprints.service import FingerprintService
from app.hubs.ingestion.files import checkpoint_fetcher, ranged_files
from app.models.spaces.requested import RequestedSpace
from app.models.spaces.service import SpaceService
from app.models.spaces.stored_layouts import StoredLayout
from modelkin.checkpoints import fingerprint
from modelkin.core.importance import Importance
from modelkin.core.layout import Layout
from tests.app.hubs.fingerprints.conftest import (
    FILE,
    SHAPES,
    files,
    made_of,
    model,
    record,
    result,
    stored,
    tuned,
)
from tests.support.app.harness import AppHarness, open_app, open_hub_app
from tests.support.backends import Backend
from tests.support.models.checkpoints import (
    delta_support,
    random_tensors,
    safetensors,
    sharded,
    sister_of,
    weight_support,
)
from tests.support.servers.fake_huggingface import Hub, loopback_hub

BASE = model(1)
"""A model that others are tuned from."""


@pytest.fixture
def app(tmp_path: Path) -> Iterator[AppHarness]:
    """A service without a model."""
    with open_hub_app(tmp_path) as app:
        yield app


def test_one_download_serves_fingerprint_and_supports(
    hub: Hub, backend: Backend, tmp_path: Path
) -> None:
    """The hub sends each file once; the fingerprint is that of the command line, with the facts
    that the hub states.
    """
    child = tuned(BASE, 2)
    hub.push("org/base", files(BASE))
    card = {"base_model": "org/base", "base_model_relation": "finetune", "license": "other"}
    card["license_name"] = "acme-community"
    hub.push("org/a", files(child), card=card, created="2025-03-04T05:06:07.000Z")
    with open_app(tmp_path, backend) as app:
        source = app.hubs.follow(hub.url)
        answer = result(app, source)
        assert [len(files(child)[FILE]), len(files(BASE)[FILE])] == hub.sent[:1] + hub.sent[-1:]
        assert sum(hub.sent) <= 2 * len(files(child)[FILE]) + (64 << 10)  # and the base's header
        assert weight_support(child) == app.hubs.support("org/a")
        assert delta_support(child, BASE) == app.hubs.support("org/a", sister_of("kin", "org/base"))
        expected, found = made_of(tmp_path, child), record(app, "org/a")
        assert expected == stored(app, "org/a")
        assert found is not None
        facts = Facts(
            ("org/base",),
            "finetune",
            "acme-community",
            datetime(2025, 3, 4, 5, 6, 7, tzinfo=UTC),
            len(files(child)[FILE]),
        )
        revision = hub.repos["org/a"].commits[-1][0]
        assert ("hub", source.id, revision, facts) == (
            found.stated_by,
            found.source_id,
            found.hub_revision,
            found.facts,
        )
        said = {"tensors": 3, "keys": expected.keys.size, "scale": expected.scale}
        assert {"status": "created", **said} == answer["fingerprint"]


@pytest.mark.parametrize("shards", [False, True])
def test_a_file_that_is_read_by_ranges_comes_once(
    hub: Hub, app: AppHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shards: bool
) -> None:
    """Also a matrix that is read twice and larger than the window."""
    block = 64 << 10
    monkeypatch.setattr(ranged_files, "BLOCK_BYTES", block)
    monkeypatch.setattr(ranged_files, "WINDOW_BYTES", 4 * block)
    monkeypatch.setattr(ranged_files, "LOOK_BYTES", 1 << 10)
    monkeypatch.setattr(checkpoint_fetcher, "WHOLE_BYTES", block)
    monkeypatch.setattr("modelkin.checkpoints.one_pass.PART_SIZE", 10_000)
    shapes: dict[str, tuple[int, ...]] = {"a": (300, 256), "b": (1500, 256), "c": (3, 100, 256)}
    tensors = random_tensors(3, shapes)
    held = sharded(tensors) if shards else files(tensors)
    hub.push("org/a", held)
    source = app.hubs.follow(hub.url)
    assert "stored" == result(app, source)["outcome"]
    sizes = [len(data) for path, data in held.items() if path.endswith(".safetensors")]
    more = len(sizes) * block + len(shapes) * (1 << 10)  # headers, and a look into each tensor
    assert sum(sizes) <= sum(hub.sent) <= sum(sizes) + more
    for path, data in held.items():
        (tmp_path / path).write_bytes(data)
    opened = tmp_path / ("model.safetensors.index.json" if shards else FILE)
    assert fingerprint(opened) == stored(app, "org/a")


def test_a_stored_model_is_read_once_for_its_fingerprint(
    hub: Hub, app: AppHarness, tmp_path: Path
) -> None:
    """Its supports are not stored again, and a third sync downloads nothing."""
    tensors = model(1)
    hub.push("org/a", files(tensors))
    source = app.hubs.follow(hub.url, fingerprints=False)
    assert "fingerprint" not in result(app, source)
    assert None is stored(app, "org/a")
    changed = app.http.patch(f"/v1/sources/{source.id}", json={"fingerprints": True})
    assert {"read": 0, "without": 0, "waiting": 1, "unread": 0} == changed.json()[
        "fingerprint_counts"
    ]
    hub.sent.clear()
    again = result(app, source)
    assert ("unchanged", "created") == (again["outcome"], again["fingerprint"]["status"])
    assert [len(files(tensors)[FILE])] == hub.sent
    assert made_of(tmp_path, tensors) == stored(app, "org/a")
    kept = app.hubs.model("org/a")
    assert kept is not None
    assert 1 == kept.revision
    hub.sent.clear()
    assert "unchanged" == result(app, source)["fingerprint"]["status"]
    assert [] == hub.sent
    shown = app.hubs.show({"id": source.id})
    assert {"read": 1, "without": 0, "waiting": 0, "unread": 0} == shown["fingerprint_counts"]


def test_a_commit_of_the_card_changes_what_is_stated(hub: Hub, app: AppHarness) -> None:
    """The file is not read again, and the fingerprint has the hub's present revision."""
    hub.push("org/a", files(BASE))
    source = app.hubs.follow(hub.url)
    result(app, source)
    sha = hub.push("org/a", {**files(BASE), "notes.md": b"more"}, card={"license": "apache-2.0"})
    hub.sent.clear()
    assert "unchanged" == result(app, source)["fingerprint"]["status"]
    found = record(app, "org/a")
    assert found is not None
    assert ([], sha, "apache-2.0", 1) == (
        hub.sent,
        found.hub_revision,
        found.facts.license,
        found.revision,
    )


def test_a_model_without_a_support_has_a_fingerprint(
    hub: Hub, app: AppHarness, tmp_path: Path
) -> None:
    """The job says why there is no support, the source shows it, and a poll does not try it again;
    the file comes once.
    """
    tensors = model(1)
    hub.push("org/a", files(tensors))
    source = app.hubs.follow(hub.url, importance="delta", filters={"owners": ["org"]})
    answer = result(app, source)
    assert ("fingerprint", None, "invalid_parameter", "created") == (
        answer["outcome"],
        answer["space"],
        answer["refused"]["code"],
        answer["fingerprint"]["status"],
    )
    assert "declares no base" in answer["refused"]["detail"]
    assert [len(files(tensors)[FILE])] == hub.sent
    assert made_of(tmp_path, tensors) == stored(app, "org/a")
    assert None is app.hubs.model("org/a")
    shown = app.hubs.source(source.id).last_error
    assert shown is not None
    assert "invalid_parameter" == shown["code"]
    app.http.post(f"/v1/sources/{source.id}/poll")
    assert "ingest" not in app.worker.run_all()
    assert 1 == len(hub.sent)


def test_a_space_of_another_kind_costs_no_fingerprint(hub: Hub, app: AppHarness) -> None:
    """The space is of other supports; the file was opened, and is read for its lines alone."""
    wanted = RequestedSpace(
        num_parameters=None,
        layout=StoredLayout.of(Layout.of(sorted(SHAPES.items()))),
        scheme=None,
        num_perm=64,
        seed=7,
        importance=Importance("fisher"),
    )
    with app.database.writing() as session:
        app.services[SpaceService].create(session, app.tenant, "kin", wanted)
    hub.push("org/a", files(BASE))
    answer = result(app, app.hubs.follow(hub.url))
    assert ("fingerprint", "space_mismatch") == (answer["outcome"], answer["refused"]["code"])
    assert 1 == len(hub.sent)
    assert None is not stored(app, "org/a")


def test_models_that_have_none_say_why(hub: Hub, app: AppHarness) -> None:
    """Adapters, values that are no numbers where supports leave them out, and small models."""
    bad = model(2)
    bad["c.weight"][3, 4] = np.nan
    factors: dict[str, tuple[int, ...]] = {"q.lora_A.weight": (4, 70), "q.lora_B.weight": (80, 4)}
    adapter = {"adapter_model.safetensors": safetensors(random_tensors(3, factors))}
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q"]}
    hub.push("org/adapter", {**adapter, "adapter_config.json": json.dumps(config).encode()})
    hub.push("org/bad", files(bad))
    hub.push("org/small", files(random_tensors(1)))
    source = app.hubs.follow(hub.url, exclude=["c.*"])
    said = {
        name: result(app, source, f"org/{name}")["fingerprint"]["reason"]
        for name in ("adapter", "bad", "small")
    }
    assert "an adapter" in said["adapter"]
    assert "'c.weight' has values that are NaN" in said["bad"]
    assert "64 values" in said["small"]
    assert [None, None, None] == [stored(app, f"org/{name}") for name in said]
    counts = app.hubs.show({"id": source.id})["fingerprint_counts"]
    assert {"read": 0, "without": 3, "waiting": 0, "unread": 0} == counts
    hub.sent.clear()
    again = {name: result(app, source, f"org/{name}")["fingerprint"]["reason"] for name in said}
    assert (said, []) == (again, hub.sent)


def test_new_weights_have_another_fingerprint(hub: Hub, app: AppHarness, tmp_path: Path) -> None:
    """Where they can have none, the old one is gone: it was of other weights."""
    hub.push("org/a", files(model(1)))
    source = app.hubs.follow(hub.url)
    result(app, source)
    hub.push("org/a", files(model(2)))
    assert "changed" == result(app, source)["fingerprint"]["status"]
    assert made_of(tmp_path, model(2)) == stored(app, "org/a")
    hub.push("org/a", files(random_tensors(5, {"x.weight": (500, 20)})))
    result(app, source)
    assert None is stored(app, "org/a")


def test_a_component_of_a_pipeline_has_its_own(hub: Hub, app: AppHarness, tmp_path: Path) -> None:
    """Under the name that it has here; one that is gone goes with the policy of the source."""
    listed: dict[str, Any] = {"_class_name": "P", "_diffusers_version": "0.35.0"}
    listed |= {name: ["diffusers", "M"] for name in ("unet", "vae")}
    name = "diffusion_pytorch_model.safetensors"
    parts = {f"unet/{name}": safetensors(model(1)), f"vae/{name}": safetensors(model(2))}
    hub.push("org/p", {"model_index.json": json.dumps(listed).encode(), **parts})
    source = app.hubs.follow(hub.url, on_delete="remove")
    answer = result(app, source, "org/p")
    said = {part: each["fingerprint"]["status"] for part, each in answer["components"].items()}
    assert {"unet": "created", "vae": "created"} == said
    assert made_of(tmp_path, model(2)) == stored(app, "org/p/vae")
    del listed["vae"], parts[f"vae/{name}"]
    hub.push("org/p", {"model_index.json": json.dumps(listed).encode(), **parts})
    result(app, source, "org/p")
    assert made_of(tmp_path, model(1)) == stored(app, "org/p/unet")
    assert None is stored(app, "org/p/vae")


def test_a_component_that_cannot_be_read_keeps_its_own(
    hub: Hub, app: AppHarness, tmp_path: Path
) -> None:
    """It is not gone, and its support stays as well; once it can be read, it is read again."""
    listed: dict[str, Any] = {"_class_name": "P", "_diffusers_version": "0.35.0"}
    listed |= {name: ["diffusers", "M"] for name in ("unet", "vae")}
    index = {"model_index.json": json.dumps(listed).encode()}
    unet, vae = (f"{part}/diffusion_pytorch_model.safetensors" for part in ("unet", "vae"))
    parts = {unet: safetensors(model(1)), vae: safetensors(model(2))}
    hub.push("org/p", index | parts)
    source = app.hubs.follow(hub.url, on_delete="remove")
    result(app, source, "org/p")
    hub.push("org/p", index | parts | {vae: b"no checkpoint"})
    answer = result(app, source, "org/p")
    assert "refused" == answer["components"]["vae"]["outcome"]
    assert made_of(tmp_path, model(2)) == stored(app, "org/p/vae")
    hub.push("org/p", index | parts | {vae: safetensors(model(3))})
    assert "changed" == result(app, source, "org/p")["components"]["vae"]["fingerprint"]["status"]
    assert made_of(tmp_path, model(3)) == stored(app, "org/p/vae")


@pytest.mark.parametrize("policy", ["keep", "remove"])
def test_a_model_that_is_deleted_there(hub: Hub, app: AppHarness, policy: str) -> None:
    """Its fingerprint stays or goes as its supports do, also where it has none of these."""
    for name in ("org/a", "org/b"):
        hub.push(name, files(BASE))
    source = app.hubs.follow(hub.url, on_delete=policy, token="hf_of_a_user")
    alone = app.hubs.follow(hub.url, on_delete=policy, importance="delta", token="hf_of_a_user")
    assert "stored" == result(app, source, "org/a")["outcome"]
    assert "fingerprint" == result(app, alone, "org/b")["outcome"]
    del hub.repos["org/a"], hub.repos["org/b"]
    answers = result(app, source, "org/a"), result(app, alone, "org/b")
    removed = policy == "remove"
    assert [removed] * 2 == [each["fingerprint_removed"] for each in answers]
    assert [removed] * 2 == [record(app, name) is None for name in ("org/a", "org/b")]


def test_a_model_that_is_renamed_there(hub: Hub, app: AppHarness, tmp_path: Path) -> None:
    """Its fingerprint has the new name, and its file is not read again."""
    hub.push("org/old", files(BASE))
    source = app.hubs.follow(hub.url)
    result(app, source, "org/old")
    hub.move("org/old", "org/new")
    hub.sent.clear()
    assert "created" == result(app, source, "org/old")["fingerprint"]["status"]
    assert ([], None) == (hub.sent, record(app, "org/old"))
    assert made_of(tmp_path, BASE) == stored(app, "org/new")


def test_a_source_that_is_deleted_leaves_its_fingerprints(hub: Hub, app: AppHarness) -> None:
    """As it leaves its models; another source of the hub takes them over."""
    hub.push("org/a", files(BASE))
    source = app.hubs.follow(hub.url)
    result(app, source)
    assert 204 == app.http.delete(f"/v1/sources/{source.id}").status_code
    before = record(app, "org/a")
    other = app.hubs.follow(hub.url)
    assert "unchanged" == result(app, other)["fingerprint"]["status"]
    found = record(app, "org/a")
    assert before is not None
    assert found is not None
    assert (before.id, before.digest, other.id) == (found.id, found.digest, found.source_id)


def test_a_model_of_another_hub_keeps_its_fingerprint(hub: Hub, app: AppHarness) -> None:
    """Names belong to the tenant: the first hub's stays, and the job says whose it is."""
    hub.push("org/a", files(model(1)))
    result(app, app.hubs.follow(hub.url))
    with loopback_hub() as other:
        other.push("org/a", files(model(2)))
        answer = result(app, app.hubs.follow(other.url, space="others"))
    assert ("stored", True) == (answer["outcome"], hub.url in answer["fingerprint"]["reason"])
    first = record(app, "org/a")
    assert first is not None
    assert hub.repos["org/a"].commits[-1][0] == first.hub_revision


def test_a_fingerprint_that_a_client_deletes_is_made_again(hub: Hub, app: AppHarness) -> None:
    """At the next sync of its model, which reads the file again."""
    hub.push("org/a", files(BASE))
    source = app.hubs.follow(hub.url)
    result(app, source)
    with app.database.writing() as session:
        app.services[FingerprintService].delete(session, app.tenant, "org/a")
    hub.sent.clear()
    assert "created" == result(app, source)["fingerprint"]["status"]
    assert 1 == len(hub.sent)


def test_lines_of_a_killed_sync_are_kept(
    hub: Hub, app: AppHarness, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The next attempt reads the shards that are left, and the fingerprint is that of all."""
    block = 64 << 10
    monkeypatch.setattr(ranged_files, "BLOCK_BYTES", block)
    monkeypatch.setattr(ranged_files, "LOOK_BYTES", 0)
    monkeypatch.setattr(checkpoint_fetcher, "WHOLE_BYTES", block)
    tensors = random_tensors(3, {f"layers.{at}": (300, 256) for at in range(4)})
    held = sharded(tensors)
    hub.push("org/a", held)
    source = app.hubs.follow(hub.url, importance="delta")
    asked = list[str]()

    def fail_late(request: Any) -> bool:
        asked.append(request.path)
        late = sum("model-00002" in path for path in asked) > 4
        if late:
            request.say(503)
        return late

    hub.on_cdn = fail_late
    assert None is app.hubs.sync_model(source, "org/a").result
    hub.on_cdn = lambda _: False
    hub.sent.clear()
    assert "fingerprint" == result(app, source)["outcome"]
    assert sum(hub.sent) <= sum(map(len, held.values())) * 0.75
    for path, data in held.items():
        (tmp_path / path).write_bytes(data)
    assert fingerprint(tmp_path / "model.safetensors.index.json") == stored(app, "org/a")
