"""Pipelines of diffusers: each component is a model of its own, all of them from one sync."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from app.hubs.repositories import source_models
from tests.app.hubs.conftest import downloads, refused
from tests.app.hubs.ingestion.test_same_support import digest_by_shell
from tests.support.app.harness import AppHarness, open_hub_app
from tests.support.models.checkpoints import Tensors, random_tensors, safetensors, sharded
from tests.support.servers.fake_huggingface import Hub

Shapes = dict[str, tuple[int, ...]]

UNET: Shapes = {"conv_in.weight": (30, 40), "mid.weight": (50, 40)}
ENCODER: Shapes = {"embed.weight": (60, 10), "mlp.weight": (30, 20)}
VAE: Shapes = {"encoder.weight": (20, 20), "decoder.weight": (25, 20)}
UNET_FILE = "unet/diffusion_pytorch_model.safetensors"
VAE_FILE = "vae/diffusion_pytorch_model.safetensors"


def weights(seed: int) -> dict[str, Tensors]:
    """The weights of a pipeline's components."""
    shapes = {"unet": UNET, "text_encoder": ENCODER, "vae": VAE}
    return {name: random_tensors(seed, shape) for name, shape in shapes.items()}


def pipeline(seed: int, **changed: bytes | None) -> dict[str, bytes]:
    """The files of a pipeline: single files, shards, variants, and files of all beside them."""
    listed: dict[str, Any] = {
        "_class_name": "StableDiffusionPipeline",
        "_diffusers_version": "0.35.0",
        "unet": ["diffusers", "UNet2DConditionModel"],
        "text_encoder": ["transformers", "CLIPTextModel"],
        "vae": ["diffusers", "AutoencoderKL"],
        "tokenizer": ["transformers", "CLIPTokenizer"],
        "safety_checker": [None, None],
        "force_zeros": True,
    }
    parts = weights(seed)
    files = {
        "model_index.json": json.dumps(listed).encode(),
        "all_in_one.safetensors": safetensors(random_tensors(99)),
        UNET_FILE: safetensors(parts["unet"]),
        "unet/diffusion_pytorch_model.fp16.safetensors": safetensors(random_tensors(98)),
        "unet/config.json": b"{}",
        **{f"text_encoder/{name}": data for name, data in sharded(parts["text_encoder"]).items()},
        VAE_FILE: safetensors(parts["vae"]),
        "vae_1_0/diffusion_pytorch_model.safetensors": safetensors(random_tensors(97)),
        "safety_checker/model.safetensors": safetensors(random_tensors(96)),
        "tokenizer/vocab.json": b"{}",
    }
    merged = files | {name.replace("__", "/"): data for name, data in changed.items()}
    return {name: data for name, data in merged.items() if data is not None}


def places(result: Mapping[str, Any] | None) -> dict[str, str]:
    """The space of each component of a job's result."""
    assert result is not None
    return {name: part["space"] for name, part in result["components"].items() if "space" in part}


def stored(app: AppHarness) -> set[str]:
    """The names of all models."""
    return {
        item["model"]
        for space in app.hubs.spaces()
        for item in app.http.get(f"/v1/spaces/{space}/models").json()["items"]
    }


COMPONENTS = {"org/a/unet", "org/a/text_encoder", "org/a/vae"}


def test_each_component_is_a_model(hub: Hub, app: AppHarness, tmp_path: Path) -> None:
    """One sync stores them in spaces of their layouts, as the command line reads their folders."""
    hub.push("org/a", pipeline(1))
    source = app.hubs.follow(hub.url)
    job = app.hubs.sync_model(source, "org/a")
    assert "succeeded" == job.state, job.error
    result = job.result or {}
    spaces = places(result)
    assert COMPONENTS == stored(app)
    assert ("kin", 3) == (spaces["unet"], len(set(spaces.values())))
    for name, space in spaces.items():
        folder = {
            path.removeprefix(f"{name}/"): data
            for path, data in pipeline(1).items()
            if path.startswith(f"{name}/")
        }
        expected = digest_by_shell(tmp_path / name, folder)
        assert expected == app.hubs.support(f"org/a/{name}", space).digest
    assert "all_in_one.safetensors' beside them is left aside" in result["notes"][0]
    assert "which are left aside: safety_checker/, vae_1_0/" in result["notes"][1]
    [note] = result["components"]["unet"]["notes"]
    assert "'diffusion_pytorch_model.fp16.safetensors' beside it left aside" in note
    page = app.http.get(f"/jobs/{job.id}").text
    assert "<summary>unet</summary>" in page
    assert "<div>it is a pipeline, whose components are read" in page
    assert [] == downloads(app)
    model = app.hubs.model("org/a/unet")
    assert model is not None
    hub_says = model.attributes["hub"]
    assert ("org/a", "unet") == (hub_says["model"], hub_says["component"])


@pytest.mark.slow
def test_a_component_has_the_base_of_its_name(hub: Hub, app: AppHarness) -> None:
    """Deltas are those from the base's component; one that the base lacks has weights alone."""
    hub.push("org/base", pipeline(1, **{"vae__diffusion_pytorch_model.safetensors": None}))
    hub.push("org/a", pipeline(2), card={"base_model": "org/base"})
    source = app.hubs.follow(hub.url)
    app.hubs.sync_model(source, "org/base")
    result = app.hubs.sync_model(source, "org/a").result or {}
    parts = result["components"]
    assert "org/base/unet@" in parts["unet"]["delta"]["base"]
    assert "org/base/vae@" in parts["vae"]["delta"]["reason"]
    model = app.hubs.model("org/a/unet")
    assert model is not None
    assert "org/base/unet" == model.base_model
    lineage = app.http.get("/v1/spaces/kin/lineage", params={"model": "org/a/unet"}).json()
    assert "mismatch" == lineage["verdict"]


@pytest.mark.slow
def test_a_base_that_comes_later(hub: Hub, app: AppHarness) -> None:
    """Once the base is stored, the next poll makes the deltas of the components."""
    hub.push("org/a", pipeline(2), card={"base_model": "org/base"})
    source = app.hubs.follow(hub.url)
    first = app.hubs.sync_model(source, "org/a").result or {}
    assert "is not available" in first["components"]["unet"]["delta"]["reason"]
    hub.push("org/base", pipeline(1))
    app.hubs.sync_model(source, "org/base")
    with app.database.reading() as session:
        seen = {model.name: model for model in source_models.seen_models(session, source.id)}
    assert ("", True) == (seen["org/a"].revision, seen["org/a"].placed)
    result = app.hubs.sync_model(source, "org/a").result or {}
    assert {"unet", "text_encoder", "vae"} == {
        name for name, part in result["components"].items() if "space" in part["delta"]
    }
    del hub.repos["org/base"]
    hub.push("org/a", pipeline(2) | {"x.txt": b"x"})
    assert "unchanged" == (app.hubs.sync_model(source, "org/a").result or {})["outcome"]


@pytest.mark.slow
def test_only_what_changed_is_read_again(hub: Hub, app: AppHarness) -> None:
    """A new commit of one component downloads that alone; a commit of none downloads a list."""
    hub.push("org/a", pipeline(1))
    source = app.hubs.follow(hub.url)
    app.hubs.sync_model(source, "org/a")
    hub.downloads.clear()
    hub.push("org/a", pipeline(1) | {VAE_FILE: safetensors(weights(5)["vae"])})
    parts = (app.hubs.sync_model(source, "org/a").result or {})["components"]
    assert {"unet": "unchanged", "text_encoder": "unchanged", "vae": "stored"} == {
        name: part["outcome"] for name, part in parts.items()
    }
    assert {"model_index.json", VAE_FILE} == set(hub.downloads)
    hub.downloads.clear()
    hub.push("org/a", pipeline(1) | {VAE_FILE: safetensors(weights(5)["vae"]), "x.txt": b"x"})
    assert "unchanged" == (app.hubs.sync_model(source, "org/a").result or {})["outcome"]
    assert ["model_index.json"] == hub.downloads


@pytest.mark.slow
def test_components_follow_their_repository(hub: Hub, app: AppHarness) -> None:
    """They are renamed with it, and deleted with it where the source says so."""
    hub.push("org/a", pipeline(1))
    source = app.hubs.follow(hub.url, on_delete="remove")
    app.hubs.sync_model(source, "org/a")
    hub.move("org/a", "new/b")
    app.hubs.sync_model(source, "new/b", moved_from="org/a")
    assert {name.replace("org/a", "new/b") for name in COMPONENTS} == stored(app)
    del hub.repos["new/b"]
    result = app.hubs.sync_model(source, "new/b", gone=True).result or {}
    assert ("gone", True, set()) == (result["outcome"], result["removed"], stored(app))


@pytest.mark.slow
@pytest.mark.parametrize("on_delete", ["remove", "keep"])
def test_a_repository_that_becomes_another_kind(hub: Hub, app: AppHarness, on_delete: str) -> None:
    """A pipeline that loses a component, or becomes one model, leaves none behind unsaid."""
    hub.push("org/a", pipeline(1))
    source = app.hubs.follow(hub.url, on_delete=on_delete)
    app.hubs.sync_model(source, "org/a")
    hub.push("org/a", {n: d for n, d in pipeline(1).items() if not n.startswith("vae/")})
    fewer = app.hubs.sync_model(source, "org/a").result or {}
    gone = on_delete == "remove"
    assert COMPONENTS - ({"org/a/vae"} if gone else set()) == stored(app)
    assert (["org/a/vae"], [])[gone] == list(fewer.get("left", {}))
    hub.push("org/a", {"model.safetensors": safetensors(random_tensors(1))})
    one = app.hubs.sync_model(source, "org/a").result or {}
    assert ("org/a", gone) == (one["model"], stored(app) == {"org/a"})
    assert "components" not in one
    hub.push("org/a", pipeline(1))
    back = app.hubs.sync_model(source, "org/a").result or {}
    assert COMPONENTS <= stored(app)
    assert gone == ("org/a" not in stored(app)) == ("left" not in back)


@pytest.mark.slow
def test_a_component_that_cannot_be_read(hub: Hub, app: AppHarness) -> None:
    """It is refused by its name, the others are stored; one of pickles alone is left out."""
    bad = {
        "vae__diffusion_pytorch_model.safetensors": b"version https://git-lfs.github.com/spec/v1"
    }
    bad["tokenizer__pytorch_model.bin"] = b"pickled"
    hub.push("org/a", pipeline(1, **bad))
    source = app.hubs.follow(hub.url)
    result = app.hubs.sync_model(source, "org/a").result or {}
    pickled = result["components"]["tokenizer"]
    assert "'tokenizer/pytorch_model.bin' is a pickle" in pickled["detail"]
    part = result["components"]["vae"]
    assert ("refused", "invalid_checkpoint") == (part["outcome"], part["code"])
    assert "pointer of Git LFS" in part["detail"]
    assert {"org/a/unet", "org/a/text_encoder"} == stored(app)
    pickles = {n.replace("safetensors", "bin"): d for n, d in pipeline(1).items() if "/" in n}
    hub.push("org/b", {"model_index.json": pipeline(1)["model_index.json"], **pickles})
    left = app.hubs.sync_model(source, "org/b").result or {}
    assert "ignored" == left["outcome"]
    assert "is a pickle, which is never read" in left["reason"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("listed", "says"),
    [
        (b"version https://git-lfs.github.com/spec/v1", "pointer of Git LFS"),
        (b"[1]", "it is not JSON"),
        (b'{"scheduler": ["diffusers", "X"]}', "none of the components"),
        (b'{"unet": ["diffusers", "\\ud800"]}', "half a surrogate pair"),
    ],
)
def test_a_list_that_is_none(hub: Hub, app: AppHarness, listed: bytes, says: str) -> None:
    """A list of components that cannot be read is an error that says why."""
    hub.push("org/a", pipeline(1, **{"model_index.json": listed}))
    state, code, detail = refused(app, hub.url)
    assert ("failed", "invalid_checkpoint") == (state, code)
    assert says in detail


@pytest.mark.slow
def test_a_pipeline_has_filters_quotas_and_events_of_one(hub: Hub, tmp_path: Path) -> None:
    """Filters take the repository's name, and models of components count against the quota."""
    hub.push("org/a", pipeline(1))
    with open_hub_app(tmp_path, quota_models=2) as app:
        source = app.hubs.follow(hub.url, filters={"repos": ["org/a"]})
        job = app.hubs.sync_model(source, "org/a")
        assert "quota_exceeded" == (job.error or {}).get("code")
        assert set() == stored(app)
        other = app.hubs.follow(hub.url, filters={"repos": ["org/b"]})
        assert "ignored" == (app.hubs.sync_model(other, "org/a").result or {})["outcome"]


@pytest.mark.slow
def test_names_that_are_taken_or_too_long(hub: Hub, app: AppHarness) -> None:
    """A component never takes the place of another repository's model; long names are errors."""
    hub.push("org/a/unet", {"model.safetensors": safetensors(weights(3)["unet"])})
    source = app.hubs.follow(hub.url)
    app.hubs.sync_model(source, "org/a/unet")
    hub.push("org/a", pipeline(1))
    parts = (app.hubs.sync_model(source, "org/a").result or {})["components"]
    assert ("refused", "conflict") == (parts["unet"]["outcome"], parts["unet"]["code"])
    assert "which is 'org/a/unet' of" in parts["unet"]["detail"]
    assert ("stored", "stored") == (parts["vae"]["outcome"], parts["text_encoder"]["outcome"])
    long = f"org/{'x' * 190}"
    hub.push(long, pipeline(1))
    assert "at most 200 may be" in refused(app, hub.url, long)[2]


@pytest.mark.slow
def test_a_single_model_of_a_pipeline(hub: Hub, app: AppHarness) -> None:
    """A model that declares a pipeline as its base has weights alone, and the reason."""
    hub.push("org/base", pipeline(1))
    files = {"model.safetensors": safetensors(weights(2)["unet"])}
    hub.push("org/a", files, card={"base_model": "org/base"})
    result = app.hubs.sync_model(app.hubs.follow(hub.url), "org/a").result or {}
    assert "is a pipeline, and org/a@" in result["delta"]["reason"]


@pytest.mark.slow
def test_an_adapter_does_not_hide_what_failed(hub: Hub, app: AppHarness) -> None:
    """Where no component is stored, one without weights is left out, and another's failure told."""
    listed = {name: ["diffusers", "X"] for name in ("unet", "vae")}
    factors: Shapes = {"q.lora_A.weight": (2, 8), "q.lora_B.weight": (8, 2)}
    files = {
        "model_index.json": json.dumps(listed).encode(),
        "unet/adapter_model.safetensors": safetensors(random_tensors(3, factors)),
        "unet/adapter_config.json": b'{"peft_type": "LORA", "r": 2, "lora_alpha": 4}',
        VAE_FILE: b"cut off",
    }
    hub.push("org/a", files)
    assert "invalid_checkpoint" == refused(app, hub.url, importance="weight")[1]
