"""Adapters of a hub: the difference that each makes, in a space of its base and targets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modelkin.checkpoints import open_checkpoint, select_from_checkpoint
from modelkin.core.support import Support
from tests.sdk.adapters.folders import CONFIG, adapter_folder, factors, random_factors
from tests.support.app.harness import AppHarness, open_hub_app
from tests.support.models.checkpoints import random_tensors, safetensors
from tests.support.servers.fake_huggingface import Hub

BASE = {
    "layers.0.q_proj.weight": (24, 16),
    "layers.0.v_proj.weight": (8, 16),
    "mlp.down.weight": (16, 40),
    "norm.weight": (16,),
}
CARD = {"base_model": "org/base"}


def files(seed: int, shapes: Any = None, **fields: Any) -> dict[str, bytes]:
    """The files of an adapter's repository."""
    pairs = random_factors(seed) if shapes is None else random_factors(seed, shapes)
    return {
        "adapter_model.safetensors": safetensors(factors(pairs)),
        "adapter_config.json": json.dumps({**CONFIG, **fields}).encode(),
    }


def on_disk(folder: Path, seed: int) -> Support:
    """The support of the same adapter from a folder, as the command line makes it."""
    return select_from_checkpoint(
        open_checkpoint(adapter_folder(folder / f"{seed}", factors(random_factors(seed))))
    )


SPACE = "kin-org-base-lora"
"""The space of adapters of the base."""


def test_adapters_go_to_a_space_of_their_base_and_targets(
    hub: Hub, app: AppHarness, tmp_path: Path
) -> None:
    """Each has the support that the command line gives it; the base's weights are not needed."""
    hub.push("org/base", {"model.safetensors": safetensors(random_tensors(1, BASE))})
    source = app.hubs.follow(hub.url)
    for seed in (0, 1):
        hub.push(f"org/lora{seed}", files(seed), card=CARD)
        job = app.hubs.sync_model(source, f"org/lora{seed}")
        assert "succeeded" == job.state, job.error
        assert job.result is not None
        assert ("delta", SPACE, "org/base", 115) == tuple(
            job.result[name] for name in ("importance", "space", "base", "support_size")
        )
        assert on_disk(tmp_path, seed) == app.hubs.support(f"org/lora{seed}", job.result["space"])
        assert not [note for note in job.result["notes"] if "not compared" in note]
    assert {SPACE: "delta"} == app.hubs.kinds()
    model = app.hubs.model("org/lora0", SPACE)
    assert model is not None
    assert "org/base" == model.base_model


def test_other_bases_and_other_targets_have_other_spaces(hub: Hub, app: AppHarness) -> None:
    """Differences from two bases cannot be compared, and other targets are other indices."""
    source = app.hubs.follow(hub.url)
    hub.push("org/a", files(0))
    hub.push("org/b", files(0, base_model_name_or_path="org/other"))
    hub.push("org/c", files(0, base_model_name_or_path=None))
    hub.push("org/d", files(0, {"layers.0.q_proj": (24, 16)}))
    placed = []
    for name in "abcd":
        job = app.hubs.sync_model(source, f"org/{name}")
        assert job.result is not None, job.error
        placed.append(job.result["space"])
    assert [SPACE, "kin-org-other-lora", "kin-org-c-lora", f"{SPACE}-2"] == placed


def test_a_commit_that_changes_no_factor_downloads_nothing(hub: Hub, app: AppHarness) -> None:
    """The factors and the configuration are the recipe: a new alpha is a new support."""
    source = app.hubs.follow(hub.url)
    hub.push("org/lora", files(0))
    app.hubs.sync_model(source, "org/lora")
    hub.push("org/lora", {**files(0), "README.md": b"# News"})
    before = len(hub.downloads)
    job = app.hubs.sync_model(source, "org/lora")
    assert job.result is not None, job.error
    assert "unchanged" == job.result["outcome"]
    assert before == len(hub.downloads)
    hub.push("org/lora", files(0, alpha_pattern={"down": 1}))
    job = app.hubs.sync_model(source, "org/lora")
    assert job.result is not None, job.error
    assert "stored" == job.result["outcome"]


@pytest.mark.parametrize(
    ("shapes", "reason"),
    [
        ({"norm.weight": (16,)}, "targets 'layers.0.q_proj.weight', which its base"),
        (BASE | {"mlp.down.weight": (40, 16)}, "fan_in_fan_out the wrong way round"),
    ],
)
def test_a_base_without_the_targets_is_an_error_where_deltas_are_required(
    hub: Hub, app: AppHarness, shapes: Any, reason: str
) -> None:
    """Else it is noted: files may name tensors otherwise than modules."""
    hub.push("org/base", {"model.safetensors": safetensors(random_tensors(1, shapes))})
    hub.push("org/lora", files(0), card=CARD)
    job = app.hubs.sync_model(app.hubs.follow(hub.url), "org/lora")
    assert job.result is not None, job.error
    assert any("not compared with a base: the base org/base@" in n for n in job.result["notes"])
    assert any(reason in note for note in job.result["notes"])
    strict = app.hubs.follow(hub.url, space="strict", importance="delta")
    job = app.hubs.sync_model(strict, "org/lora")
    assert job.error is not None
    assert "space_mismatch" == job.error["code"]
    assert reason in job.error["detail"]


@pytest.mark.parametrize("importance", ["delta", None])
def test_the_base_of_the_configuration_counts_before_the_sources(
    hub: Hub, app: AppHarness, importance: str | None
) -> None:
    """A source's base that does not fit is the base of other models, and not compared."""
    hub.push("org/base", {"model.safetensors": safetensors(random_tensors(1, BASE))})
    hub.push("org/other", {"model.safetensors": safetensors(random_tensors(2, {"x": (3, 4)}))})
    hub.push("org/lora", files(0))
    source = app.hubs.follow(hub.url, base_model="org/other", importance=importance)
    job = app.hubs.sync_model(source, "org/lora")
    assert job.result is not None, job.error
    assert "org/base" == job.result["base"]
    assert not [note for note in job.result["notes"] if "not compared" in note]
    app.hubs.sync_model(source, "org/lora")
    model = app.hubs.model("org/lora", job.result["space"])
    assert model is not None
    assert "org/base" == model.base_model


@pytest.mark.parametrize(
    ("config", "configured"), [("org/base", None), ("org/base", "org/other"), (None, "org/base")]
)
def test_a_base_that_the_card_does_not_name_is_compared(
    hub: Hub, app: AppHarness, config: str | None, configured: str | None
) -> None:
    """The one of the configuration, else the one of the source, must have the targets, too."""
    hub.push("org/base", {"model.safetensors": safetensors(random_tensors(1, {"x": (3, 4)}))})
    hub.push("org/other", {"model.safetensors": safetensors(random_tensors(2, BASE))})
    hub.push("org/lora", files(0, base_model_name_or_path=config))
    strict = app.hubs.follow(hub.url, base_model=configured, importance="delta")
    job = app.hubs.sync_model(strict, "org/lora")
    assert job.error is not None
    assert "space_mismatch" == job.error["code"]
    assert "the base org/base@" in job.error["detail"]
    job = app.hubs.sync_model(app.hubs.follow(hub.url, base_model=configured), "org/lora")
    assert job.result is not None, job.error
    assert any("not compared with a base: the base org/base@" in n for n in job.result["notes"])


@pytest.mark.parametrize("config", ["org/base", "/home/me/llama", "../../etc"])
def test_a_base_of_the_configuration_that_the_hub_lacks_is_noted(
    hub: Hub, app: AppHarness, config: str
) -> None:
    """Also a folder of the machine that trained it, and where deltas are required."""
    hub.push("org/lora", files(0, base_model_name_or_path=config))
    job = app.hubs.sync_model(app.hubs.follow(hub.url, importance="delta"), "org/lora")
    assert job.result is not None, job.error
    assert any(f"base {config} is not available" in note for note in job.result["notes"])


def test_an_adapter_needs_no_base_on_the_hub(hub: Hub, app: AppHarness) -> None:
    """A base that is missing or hidden is noted, also where deltas are required."""
    hub.push("org/lora", files(0), card=CARD)
    source = app.hubs.follow(hub.url, importance="delta")
    job = app.hubs.sync_model(source, "org/lora")
    assert job.result is not None, job.error
    assert "stored" == job.result["outcome"]
    assert any("base org/base is not available" in note for note in job.result["notes"])


@pytest.mark.parametrize(
    ("pushed", "code", "detail"),
    [
        (
            {"adapter_model.safetensors": files(0)["adapter_model.safetensors"]},
            "invalid_checkpoint",
            "and no adapter_config.json beside it: publish what PEFT saved",
        ),
        (
            {"model.safetensors": files(0)["adapter_model.safetensors"]},
            "invalid_checkpoint",
            "it holds the factors of an adapter, and no adapter_config.json",
        ),
        (files(0, r=0), "invalid_checkpoint", "adapter_config.json: r is 0: a rank is"),
        (files(0, use_dora=True), "invalid_checkpoint", "use_dora is True: DoRA"),
        (files(0, r=8), "invalid_checkpoint", "have the rank 4, its configuration says 8"),
        (files(0, peft_type="IA3"), "invalid_checkpoint", "peft_type is 'IA3'"),
    ],
)
def test_what_cannot_be_compared_is_refused_by_name(
    hub: Hub,
    app: AppHarness,
    pushed: dict[str, bytes],
    code: str,
    detail: str,
) -> None:
    """The job's error says field, value and remedy, and no space is made."""
    hub.push("org/lora", pushed)
    job = app.hubs.sync_model(app.hubs.follow(hub.url), "org/lora")
    assert job.error is not None
    assert code == job.error["code"]
    assert detail in job.error["detail"]
    assert [] == app.hubs.spaces()


def test_an_adapter_among_models_is_left_out_by_weights(hub: Hub, app: AppHarness) -> None:
    """The job says why, and the source has no error."""
    hub.push("org/base", {"model.safetensors": safetensors(random_tensors(1, BASE))})
    hub.push("org/lora", files(0), card=CARD)
    source = app.hubs.follow(hub.url, importance="weight")
    results = list[Any]()
    for name in ("org/base", "org/lora"):
        job = app.hubs.sync_model(source, name)
        assert job.result is not None, job.error
        results.append(job.result)
    assert ["stored", "ignored"] == [each["outcome"] for each in results]
    assert "set it to null or to delta to have it, too" in results[1]["reason"]
    assert app.hubs.source(source.id).last_error is None
    assert ["kin"] == app.hubs.spaces()


def test_a_small_file_of_a_huge_difference_is_refused(hub: Hub, tmp_path: Path) -> None:
    """The limit on checkpoints counts what an adapter changes, not its own bytes."""
    wide = {"q_proj": (3000, 3000)}
    pushed = files(0, wide)
    limit = 4 * len(pushed["adapter_model.safetensors"])
    assert limit < 2 * 3000 * 3000
    hub.push("org/lora", pushed)
    with open_hub_app(tmp_path, max_checkpoint_bytes=limit) as app:
        job = app.hubs.sync_model(app.hubs.follow(hub.url), "org/lora")
    assert job.error is not None
    assert "changes 9000000 weights, which take 18000000 bytes" in job.error["detail"]


MID = "mid_block_attentions_0_transformer_blocks_0_attn1_to_q"
DOTTED = "unet.mid_block.attentions.0.transformer_blocks.0.attn1.to_q"


def kohya(seed: int, rank: int = 4, module: str = f"lora_unet_{MID}") -> bytes:
    """A file of kohya's trainers."""
    [(a, b)] = random_factors(seed, {"x": (24, 16)}, rank).values()
    return safetensors(
        {
            f"{module}.lora_down.weight": a,
            f"{module}.lora_up.weight": b,
            f"{module}.alpha": np.full((), rank, "f4"),
        }
    )


def diffusers(seed: int, rank: int = 4) -> bytes:
    """The same as diffusers saves it."""
    [(a, b)] = random_factors(seed, {"x": (24, 16)}, rank).values()
    return safetensors({f"{DOTTED}.lora_A.weight": a, f"{DOTTED}.lora_B.weight": b})


def test_adapters_by_any_name_meet_in_one_space(hub: Hub, app: AppHarness, tmp_path: Path) -> None:
    """kohya's, diffusers' and a file called as weights are, of ranks 4 and 8, with one base."""
    pushed = {
        "kohya": {"my_style.safetensors": kohya(0)},
        "diffusers": {"pytorch_lora_weights.safetensors": diffusers(0)},
        "weights": {"model.safetensors": kohya(0)},
        "wide": {"sub/wide.safetensors": kohya(1, rank=8)},
    }
    source = app.hubs.follow(hub.url)
    spaces, supports = set(), {}
    for name, content in pushed.items():
        hub.push(f"org/{name}", content, card=CARD)
        job = app.hubs.sync_model(source, f"org/{name}")
        assert job.result is not None, job.error
        assert ("delta", "org/base") == (job.result["importance"], job.result["base"])
        spaces.add(job.result["space"])
        supports[name] = app.hubs.support(f"org/{name}", job.result["space"])
        path = tmp_path / f"{name}.safetensors"
        path.write_bytes(next(iter(content.values())))
        assert select_from_checkpoint(open_checkpoint(path)) == supports[name]
    assert 1 == len(spaces)
    assert supports["kohya"] == supports["diffusers"] == supports["weights"]
    assert supports["kohya"].num_parameters == supports["wide"].num_parameters


@pytest.mark.slow
def test_a_kohya_file_is_known_by_its_header(hub: Hub, app: AppHarness) -> None:
    """Also where the source asks for differences and no base is declared; then it is not read again
    before its factors change, and weights under such a name are weights."""
    source = app.hubs.follow(hub.url, importance="delta")
    hub.push("org/lora", {"a.safetensors": kohya(0)})
    job = app.hubs.sync_model(source, "org/lora")
    assert job.result is not None, job.error
    assert "stored" == job.result["outcome"]
    hub.push("org/lora", {"a.safetensors": kohya(0), "NEWS.md": b"# News"})
    hub.downloads = []
    job = app.hubs.sync_model(source, "org/lora")
    assert job.result is not None, job.error
    assert ("unchanged", []) == (job.result["outcome"], hub.downloads)
    hub.push("org/lora", {"a.safetensors": kohya(1)})
    job = app.hubs.sync_model(source, "org/lora")
    assert job.result is not None, job.error
    assert ("stored", "replaced") == (job.result["outcome"], job.result["status"])
    hub.push("org/plain", {"a.safetensors": safetensors(random_tensors(1, BASE))})
    job = app.hubs.sync_model(app.hubs.follow(hub.url), "org/plain")
    assert job.result is not None, job.error
    assert "weight" == job.result["importance"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pushed", "detail"),
    [
        ({"a.safetensors": kohya(0), "b.safetensors": kohya(1)}, "several checkpoints, 'a.safeten"),
        (
            {"a.safetensors": safetensors({"x.dora_scale": np.ones((4, 1), "f4")})},
            "'x.dora_scale' is not a factor lora_A or lora_B, it is of DoRA",
        ),
        (
            {"learned_embeds.safetensors": safetensors({"<cat>": np.ones((2, 8), "f4")})},
            "an embedding of textual inversion",
        ),
    ],
)
def test_other_files_of_adapters_are_refused_as_what_they_are(
    hub: Hub, app: AppHarness, pushed: dict[str, bytes], detail: str
) -> None:
    """None is stored as weights."""
    hub.push("org/lora", pushed)
    job = app.hubs.sync_model(app.hubs.follow(hub.url), "org/lora")
    assert job.error is not None
    assert ("invalid_checkpoint", True) == (job.error["code"], detail in job.error["detail"])
    assert [] == app.hubs.spaces()


@pytest.mark.slow
@pytest.mark.parametrize("first", ["child", "base"])
def test_adapters_of_a_base_that_moves_stay_in_one_space(
    hub: Hub, app: AppHarness, first: str
) -> None:
    """The space keeps its name, and takes later adapters and new contents of those in it, whether
    the base or a child of it is synced first.
    """
    hub.push("org/base", {"model.safetensors": safetensors(random_tensors(1, BASE))})
    source = app.hubs.follow(hub.url)
    for name in ("org/base", "org/early"):
        hub.push("org/early", files(0), card=CARD)
        app.hubs.sync_model(source, name)
    hub.move("org/base", "new/base")
    if first == "base":
        app.hubs.sync_model(source, "org/base")
    for seed, name in ((1, "org/late"), (2, "org/early"), (3, "org/new")):
        hub.push(name, files(seed), card={"base_model": "new/base"} if seed == 3 else CARD)
        job = app.hubs.sync_model(source, name)
        assert SPACE == (job.result or {}).get("space"), job.error
        app.worker.run_all()
    for name in ("org/early", "org/late", "org/new"):
        found = app.hubs.model(name, SPACE)
        assert found is not None
        assert "new/base" == found.base_model
    del hub.moved["org/base"]  # another model takes the name
    hub.push("org/base", {"model.safetensors": safetensors(random_tensors(2, BASE))})
    placed = set()
    for seed in (4, 5):
        hub.push(f"org/other{seed}", files(seed), card=CARD)
        placed.add((app.hubs.sync_model(source, f"org/other{seed}").result or {})["space"])
    assert {f"{SPACE}-2"} == placed
