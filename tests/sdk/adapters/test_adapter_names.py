"""Adapters whose files name components, scales and layers in different ways, or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from modelkin.checkpoints import importance_chunks, open_checkpoint, select_from_checkpoint
from modelkin.errors import InvalidCheckpoint
from tests.sdk.adapters.folders import CONFIG, Matrix, adapter_folder, difference, random_factors

BLOCK = "transformer_blocks.0.attn.to_q"
SHAPES = {BLOCK: (24, 16), "proj_out": (8, 16)}
LAYER = "encoder.layers.0.self_attn.q_proj"


def factors_of(names: dict[str, str], sides: tuple[str, str] = ("lora_A", "lora_B")) -> Any:
    """The factors of the same two layers under other names."""
    pairs = random_factors(0, SHAPES)
    return {
        f"{names[module]}.{side}.weight": factor
        for module in names
        for side, factor in zip(sides, pairs[module], strict=True)
    }


def saved(path: Path, tensors: dict[str, Matrix], **fields: Any) -> Path:
    """A file as diffusers saves it, with a configuration in its header if fields are given."""
    header = {"lora_adapter_metadata": json.dumps(fields)} if fields else None
    save_file(tensors, path, header)
    return path


@pytest.mark.parametrize("sides", [("lora_A", "lora_B"), ("lora.down", "lora.up")])
def test_a_configuration_in_the_header_says_the_scale(
    tmp_path: Path, sides: tuple[str, str]
) -> None:
    """diffusers writes it beside factors of its own names, too: α/r is 8/4 of each component."""
    tensors = factors_of({module: f"transformer.{module}" for module in SHAPES}, sides)
    config = {**CONFIG, "lora_alpha": 8, "target_modules": ["to_q", "proj_out"]}
    told = {f"transformer.{name}": value for name, value in config.items()}
    path = saved(tmp_path / "pytorch_lora_weights.safetensors", tensors, **told)
    found = np.concatenate([c.copy() for c in importance_chunks(open_checkpoint(path))()])
    by_name = {f"transformer.{module}": pair for module, pair in random_factors(0, SHAPES).items()}
    np.testing.assert_array_max_ulp(difference(by_name, 2).astype("f4"), found, maxulp=1)


def test_an_adapter_of_one_component_meets_that_of_its_pipeline(tmp_path: Path) -> None:
    """A model saves it without the component's name, PEFT with its own, SimpleTuner without dots:
    the blocks tell of which component all of its layers are."""
    bare = {**CONFIG, "lora_alpha": 4, "target_modules": ["to_q", "proj_out"]}
    paths = [
        saved(tmp_path / "a.safetensors", factors_of({m: f"transformer.{m}" for m in SHAPES})),
        saved(tmp_path / "b.safetensors", factors_of({m: m for m in SHAPES}), **bare),
        saved(
            tmp_path / "c.safetensors",
            factors_of(
                {m: f"lycoris_{m.replace('.', '_')}" for m in SHAPES}, ("lora_down", "lora_up")
            ),
        ),
        adapter_folder(
            tmp_path / "d", factors_of({m: f"base_model.model.{m}" for m in SHAPES}), **bare
        ),
    ]
    found = [select_from_checkpoint(open_checkpoint(path)) for path in paths]
    assert [found[0]] * len(found) == found
    assert [found[0].origin] * len(found) == [support.origin for support in found]
    layers = open_checkpoint(paths[1]).layout.tensors
    assert {f"transformer.{module}.weight" for module in SHAPES} == {spec.name for spec in layers}


def test_text_encoders_of_two_versions_are_one(tmp_path: Path) -> None:
    """transformers 5 calls CLIP's layers without ``text_model.``, adapters and bases alike."""
    [(a, b)] = random_factors(0, {"x": (24, 16)}).values()
    supports = set()
    for middle in ("", "text_model."):
        name = f"text_encoder.{middle}{LAYER}"
        tensors = {f"{name}.lora_A.weight": a, f"{name}.lora_B.weight": b}
        adapter = open_checkpoint(saved(tmp_path / "a.safetensors", tensors))
        for other in ("", "text_model."):
            held = {f"{other}{LAYER}.weight": np.ones((24, 16), "f4")}
            base = open_checkpoint(saved(tmp_path / "base.safetensors", held))
            found = select_from_checkpoint(adapter, base)
            supports.add((found.digest, str(found.origin)))
    assert 1 == len(supports)


KERNEL = {"lokr_w1": (2, 2), "lokr_w2": (4, 4, 5)}


def test_pefts_kernels_of_one_dimension_are_not_lokr(tmp_path: Path) -> None:
    """PEFT aligns the two matrices by their last dimensions, LyCORIS by their first."""
    tensors = {n: np.ones(shape, "f4") for n, shape in KERNEL.items()}
    ours = {f"lora_unet_conv.{name}": tensor for name, tensor in tensors.items()}
    assert open_checkpoint(saved(tmp_path / "a.safetensors", ours)).num_parameters == 8 * 8 * 5
    named = {f"base_model.model.conv.{name}": tensor for name, tensor in tensors.items()}
    folder = adapter_folder(tmp_path / "peft", named)
    fields = {"peft_type": "LOKR", "r": 4, "alpha": 4, "target_modules": ["conv"]}
    (folder / "adapter_config.json").write_text(json.dumps(fields))
    with pytest.raises(InvalidCheckpoint, match="which PEFT does not multiply as LoKr says"):
        open_checkpoint(folder)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lora_te_layers_0_fc1.b1.weight", "it is a factor of GLoRA"),
        ("lycoris_layers_0_fc1.on_input", "it is of IA3"),
        ("lora_unet_conv_in.weight", "is not a factor"),
        ("lora_controlnet", "beside whole tensors"),
        ("x.embed_tokens.base_layer.weight", "save_embedding_layers=False leaves it out"),
    ],
)
@pytest.mark.parametrize("dtype", ["f4", "?"])
def test_files_of_other_adapters_are_not_weights(
    tmp_path: Path, name: str, message: str, dtype: str
) -> None:
    """A file of them alone is refused as what it is, whatever the type of its tensors."""
    path = tmp_path / "pytorch_lora_weights.safetensors"
    if "base_layer" not in name:
        path = tmp_path / "style.safetensors"
    with pytest.raises(InvalidCheckpoint, match=message):
        open_checkpoint(saved(path, {name: np.ones((4, 4), dtype)}))
