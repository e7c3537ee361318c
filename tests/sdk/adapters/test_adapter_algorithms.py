"""Adapters by the names of kohya's trainers, diffusers and LyCORIS: each as published formulas say.

The oracle is numpy's, in float64: ``kron``, products of whole matrices, no blocks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.numpy import save_file

import modelkin
from modelkin.checkpoints import Adapter, importance_chunks, open_checkpoint, select_from_checkpoint
from modelkin.errors import InvalidCheckpoint, SpaceMismatch
from modelkin.torch import adapter_importance
from tests.sdk.adapters.folders import CONFIG, adapter_folder, factors, random_factors
from tests.sdk.cli.files import save

Matrix = npt.NDArray[Any]
DRAW = np.random.default_rng(34)
Q = "lora_unet_mid_block_attentions_0_transformer_blocks_0_attn1_to_q"
CONV = "lora_unet_mid_block_resnets_0_conv1"
TEXT = "lora_te1_text_model_encoder_layers_0_mlp_fc1"


def draw(*shape: int) -> Matrix:
    """Normally distributed entries."""
    return DRAW.standard_normal(shape, np.float32)


def saved(path: Path, tensors: Mapping[str, Any], **metadata: str) -> Path:
    """A file of tensors."""
    save_file({n: np.asarray(t) for n, t in tensors.items()}, path, metadata or None)
    return path


def importance_of(path: Path) -> Matrix:
    """All of an adapter's importance."""
    return np.concatenate([chunk.copy() for chunk in importance_chunks(open_checkpoint(path))()])


def oracle(*differences: Matrix) -> Matrix:
    """|ΔW| of several tensors, in the order of their names, flat."""
    return np.concatenate([np.abs(each).reshape(-1) for each in differences]).astype("f4")


def wide(*arrays: Matrix) -> list[Matrix]:
    """The same in float64."""
    return [array.astype("f8") for array in arrays]


def test_kohyas_adapter_is_the_differences_of_its_base(tmp_path: Path) -> None:
    """Of linear layers and convolutions, of two components, each with an alpha of its own."""
    down, up, text_down, text_up = draw(4, 16), draw(24, 4), draw(2, 8), draw(12, 2)
    kernel, out = draw(3, 5, 3, 3), draw(7, 3, 1, 1)
    path = saved(
        tmp_path / "my_style.safetensors",
        {
            f"{Q}.lora_down.weight": down,
            f"{Q}.lora_up.weight": up,
            f"{Q}.alpha": np.float16(8),
            f"{CONV}.lora_down.weight": kernel,
            f"{CONV}.lora_up.weight": out,
            f"{CONV}.alpha": np.int64(1),
            f"{TEXT}.lora_down.weight": text_down,
            f"{TEXT}.lora_up.weight": text_up,  # without an alpha its scale is 1
        },
    )
    adapter = open_checkpoint(path)
    assert isinstance(adapter, Adapter)
    assert ("delta", "LoRA") == (adapter.kind, adapter.algorithm)
    assert [
        ("text_encoder.encoder.layers.0.mlp.fc1.weight", (12, 8)),
        ("unet.mid_block.attentions.0.transformer_blocks.0.attn1.to_q.weight", (24, 16)),
        ("unet.mid_block.resnets.0.conv1.weight", (7, 45)),
    ] == [(tensor.name, tensor.shape) for tensor in adapter.layout.tensors]
    down, up, kernel, out, text_down, text_up = wide(down, up, kernel, out, text_down, text_up)
    convolution = np.einsum("or,rihw->oihw", out[:, :, 0, 0], kernel) / 3
    expected = oracle(text_up @ text_down, 8 / 4 * up @ down, convolution)
    np.testing.assert_array_max_ulp(expected, importance_of(path), maxulp=1)


def lokr(rank: int = 2) -> tuple[dict[str, Matrix], Matrix]:
    """The factors of LoKr's w2 of shape (6, 4), and the product."""
    a, b = draw(6, rank), draw(rank, 4)
    return {"lokr_w2_a": a, "lokr_w2_b": b}, np.matmul(*wide(a, b))


def algorithms() -> dict[str, tuple[dict[str, Any], Matrix]]:
    """The tensors of a module by algorithm and form, and the difference that they make."""
    a1, b1, a2, b2 = draw(9, 2), draw(2, 12), draw(9, 2), draw(2, 12)
    hadamard = np.multiply(np.matmul(*wide(a1, b1)), np.matmul(*wide(a2, b2)))
    hada = {"hada_w1_a": a1, "hada_w1_b": b1, "hada_w2_a": a2, "hada_w2_b": b2}
    w1, w1_a, w1_b, w2 = draw(3, 2), draw(3, 5), draw(5, 2), draw(6, 4)
    kernel = draw(6, 4, 3, 3)
    factors, product = lokr()
    wide_kernel = np.einsum("ab,cdhw->acbdhw", *wide(w1, kernel)).reshape(18, 8, 3, 3)
    return {
        "LoHa": ({**hada, "alpha": np.float32(1)}, hadamard / 2),
        "LoHa without alpha": (hada, hadamard),
        "LoKr": ({"lokr_w1": w1, **factors, "alpha": np.float32(6)}, 3 * np.kron(w1, product)),
        "LoKr of two products": (
            {"lokr_w1_a": w1_a, "lokr_w1_b": w1_b, **factors, "alpha": np.float32(1)},
            np.kron(np.matmul(*wide(w1_a, w1_b)), product) / 5,
        ),
        "LoKr of whole matrices": (  # whose alpha is without meaning
            {"lokr_w1": w1, "lokr_w2": w2, "alpha": np.float32(6)},
            np.kron(*wide(w1, w2)),
        ),
        "LoKr of a kernel": ({"lokr_w1": w1, "lokr_w2": kernel}, wide_kernel),
    }


@pytest.mark.parametrize(
    "block", [1 << 18, *(pytest.param(b, marks=pytest.mark.slow) for b in (100, 7, 1))]
)
@pytest.mark.parametrize("name", algorithms())
def test_lycoris_is_the_product_that_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, block: int
) -> None:
    """Elementwise, or Kronecker's, scaled by α/r, whatever the size of the blocks."""
    monkeypatch.setattr("modelkin.core.adapters.updates.BLOCK_SIZE", block)
    tensors, expected = algorithms()[name]
    path = saved(tmp_path / "a.safetensors", {f"{Q}.{n}": t for n, t in tensors.items()})
    adapter = open_checkpoint(path)
    assert isinstance(adapter, Adapter)
    assert name[:4] == adapter.algorithm
    np.testing.assert_array_max_ulp(oracle(expected), importance_of(path), maxulp=1)
    in_memory = {f"{Q}.{n}": torch.from_numpy(np.asarray(t)) for n, t in tensors.items()}
    assert adapter_importance(in_memory).numpy().tobytes() == importance_of(path).tobytes()


@pytest.mark.parametrize(("kind", "name"), [("LOHA", "LoHa"), ("LOKR", "LoKr")])
def test_peft_saves_loha_and_lokr_with_a_configuration(
    tmp_path: Path, kind: str, name: str
) -> None:
    """Its α and r are those of the scale, with patterns for modules as LoRA has them."""
    tensors, expected = algorithms()[name]
    scale = {"LoHa": 1 / 2, "LoKr": 6 / 2}[name]
    named = {f"base_model.model.mlp.{n}": t for n, t in tensors.items() if n != "alpha"}
    folder = adapter_folder(tmp_path, named)
    fields = {
        "peft_type": kind,
        "r": 2,
        "alpha": 3,
        "alpha_pattern": {"mlp": 10},
        "target_modules": ["mlp"],
        "init_weights": True,
        "module_dropout": 0.1,
        "rank_dropout": 0.1,
    }
    (folder / "adapter_config.json").write_text(json.dumps(fields))
    found = importance_of(folder)
    np.testing.assert_array_max_ulp(oracle(5 * expected / scale), found, maxulp=1)


def spelled(down: Matrix, up: Matrix, alpha: float) -> dict[str, dict[str, Any]]:
    """One difference by the names of several trainers."""
    inner = "mid_block.attentions.0.transformer_blocks.0.attn1"
    scaled = (down * np.float32(alpha / len(down))).astype("f4")
    return {
        "kohya": {
            f"{Q}.lora_down.weight": down,
            f"{Q}.lora_up.weight": up,
            f"{Q}.alpha": np.float32(alpha),
        },
        "kohya of SDXL": {
            "lora_unet_middle_block_1_transformer_blocks_0_attn1_to_q.lora_down.weight": scaled,
            "lora_unet_middle_block_1_transformer_blocks_0_attn1_to_q.lora_up.weight": up,
        },
        "diffusers": {
            f"unet.{inner}.to_q.lora_A.weight": scaled,
            f"unet.{inner}.to_q.lora_B.weight": up,
        },
        "diffusers before": {
            f"unet.{inner}.to_q.lora.down.weight": scaled,
            f"unet.{inner}.to_q.lora.up.weight": up,
        },
        "diffusers at first": {
            f"{inner}.processor.to_q_lora.down.weight": scaled,
            f"{inner}.processor.to_q_lora.up.weight": up,
        },
        "wrapped": {
            f"module.unet._orig_mod.{inner}.to_q.lora_A.weight": scaled,
            f"module.unet._orig_mod.{inner}.to_q.lora_B.weight": up,
        },
    }


def test_one_difference_is_one_support_by_all_names(tmp_path: Path) -> None:
    """The layouts are equal, so they go to one space, and S is 1, with the header's words too."""
    down, up = draw(4, 16), draw(24, 4)
    found = {
        name: select_from_checkpoint(open_checkpoint(saved(tmp_path / "a.safetensors", tensors)))
        for name, tensors in spelled(down, up, 2.0).items()
    }
    told = {
        f"unet.{k}": v for k, v in {**CONFIG, "lora_alpha": 2, "target_modules": ["to_q"]}.items()
    }
    named = dict(zip(spelled(down, up, 2.0)["diffusers"], (down, up), strict=True))
    path = saved(
        tmp_path / "pytorch_lora_weights.safetensors",
        named,
        lora_adapter_metadata=json.dumps(told),
    )
    found["diffusers with configuration"] = select_from_checkpoint(open_checkpoint(path))
    assert 1 == len({support.origin for support in found.values()})
    assert 1 == len({support.digest for support in found.values()})


def test_alphas_of_modules_decide_between_them(tmp_path: Path) -> None:
    """A scale leaves the support of one tensor alone; of two tensors it decides which counts."""
    pairs = [(draw(4, 16), draw(24, 4)) for _ in range(2)]
    shares = []
    for alphas in ((4, 4), (4, 0.04)):
        tensors: dict[str, Any] = {}
        for module, (down, up), alpha in zip((Q, CONV), pairs, alphas, strict=True):
            tensors[f"{module}.lora_down.weight"] = down
            tensors[f"{module}.lora_up.weight"] = up
            tensors[f"{module}.alpha"] = np.float32(alpha)
        support = select_from_checkpoint(
            open_checkpoint(saved(tmp_path / "a.safetensors", tensors))
        )
        shares.append(np.mean(support.indices < 24 * 16))
    assert 0.2 < shares[0] < 0.8
    assert 1 == shares[1]


def test_adapters_of_different_ranks_compare(tmp_path: Path) -> None:
    """|BA| has the base's shape whatever r: of one difference S is 1, in one layout."""
    narrow = random_factors(1, rank=2)
    padded = {
        module: (np.pad(a, ((0, 6), (0, 0))), np.pad(b, ((0, 0), (0, 6))))
        for module, (a, b) in narrow.items()
    }
    turn = np.linalg.qr(DRAW.standard_normal((8, 8)))[0].astype("f4")
    broad = {m: (turn @ a, b @ turn.T) for m, (a, b) in padded.items()}
    folders = [
        adapter_folder(tmp_path / "r2", factors(narrow), r=2, lora_alpha=4),
        adapter_folder(tmp_path / "r8", factors(broad), r=8, lora_alpha=16),
        adapter_folder(tmp_path / "other", factors(random_factors(2, rank=8)), r=8),
    ]
    first, second, other = (select_from_checkpoint(open_checkpoint(f)) for f in folders)
    assert first.origin == second.origin
    assert modelkin.similarity(first, second) >= 0.99
    assert modelkin.similarity(first, other) < 0.3


def test_a_base_may_be_one_component(tmp_path: Path) -> None:
    """Its tensors are found without the component's name, kernels by their entries."""
    tensors = {
        f"{Q}.lora_down.weight": draw(4, 16),
        f"{Q}.lora_up.weight": draw(24, 4),
        f"{CONV}.lora_down.weight": draw(3, 5, 3, 3),
        f"{CONV}.lora_up.weight": draw(7, 3, 1, 1),
    }
    adapter = open_checkpoint(saved(tmp_path / "a.safetensors", tensors))
    attention = "mid_block.attentions.0.transformer_blocks.0.attn1.to_q.weight"
    own = "model.diffusion_model.middle_block.1.transformer_blocks.0.attn1.to_q.weight"
    for name, kernel in (
        (attention, "mid_block.resnets.0.conv1.weight"),
        (own, "model.diffusion_model.middle_block.0.in_layers.2.weight"),
    ):
        weights = {name: torch.ones(24, 16), kernel: torch.ones(7, 5, 3, 3)}
        base = open_checkpoint(save(tmp_path / "base.safetensors", weights))
        assert select_from_checkpoint(adapter, base) == select_from_checkpoint(adapter)
    lacking = open_checkpoint(save(tmp_path / "b.safetensors", {attention: torch.ones(24, 16)}))
    with pytest.raises(SpaceMismatch, match=r"targets 'unet.mid_block.resnets.0.conv1.weight'"):
        select_from_checkpoint(adapter, lacking)


PLAIN = {
    f"{Q}.lora_down.weight": np.ones((4, 16), "f4"),
    f"{Q}.lora_up.weight": np.ones((24, 4), "f4"),
}
HADA = {f"{Q}.{n}": t for n, t in algorithms()["LoHa"][0].items()}
LOKR = {f"{Q}.{n}": t for n, t in algorithms()["LoKr"][0].items()}
NO_CORE = "it is a core of a Tucker decomposition"


@pytest.mark.parametrize(
    ("tensors", "change", "message"),
    [
        (PLAIN, {"lora_up.weight": None}, "attn1.to_q' has no lora_up: the file is incomplete"),
        (PLAIN, {"alpha": np.ones(2, "f4")}, "has an alpha of shape [2]: an alpha is one number"),
        (PLAIN, {"alpha": np.float32("nan")}, "is nan: an alpha is a number other than 0"),
        (PLAIN, {"alpha": np.float32("inf")}, "is inf: an alpha is a number other than 0"),
        (PLAIN, {"alpha": np.float32(0)}, "is 0.0: an alpha is a number other than 0"),
        (PLAIN, {"lora_down.weight": np.ones(0, "f4")}, "lora_down has the shape [0]: gather them"),
        (PLAIN, {"dora_scale": np.ones((24, 1), "f4")}, "it is of DoRA, whose differences are not"),
        (PLAIN, {"lora_mid.weight": np.ones((4, 4, 3, 3), "f4")}, NO_CORE),
        (PLAIN, {"lora_up.weight": np.ones((24, 4, 3, 3), "f4")}, "do not fit: factors are two"),
        (PLAIN, {"lora_down.weight": np.ones((3, 16), "f4")}, "A has the rank 3 and B 4; save"),
        (PLAIN, {"lora_down.weight": np.ones((4, 16), "i1")}, "is I8: factors are floats"),
        (PLAIN, {"diff_b": np.ones(24, "f4")}, "it is a difference of a whole tensor"),
        (HADA, {"hada_w2_b": None}, "attn1.to_q' has no hada_w2_b: the file is incomplete"),
        (HADA, {"hada_t1": np.ones((2, 2, 3, 3), "f4")}, NO_CORE),
        (HADA, {"hada_w2_b": np.ones((2, 13), "f4")}, "of two shapes, [9, 12] and [9, 13]"),
        (HADA, {"hada_w1_b": np.ones((3, 12), "f4")}, "w1_a [9, 2] and w1_b [3, 12], which do not"),
        (HADA, {"hada_w1_a": np.ones((0, 2), "f4")}, "hada_w1_a has the shape [0, 2]: gather"),
        (LOKR, {"lokr_t2": np.ones((2, 2, 3, 3), "f4")}, NO_CORE),
        (LOKR, {"lokr_w1": None}, "attn1.to_q' has no lokr_w1_a: the file is incomplete"),
        (LOKR, {"lokr_w2": np.ones((6, 4), "f4")}, "lokr_w2 and lokr_w2_a, which are in its place"),
        (LOKR, {"lokr_w1": np.ones(6, "f4")}, "lokr_w1 of shape [6], no matrix"),
        (LOKR, {"lokr_w1": np.ones((3, 2, 1, 1), "f4")}, "lokr_w1 of shape [3, 2, 1, 1], which is"),
        ({}, {"lora_a": np.ones((16, 4), "f4")}, "it is a factor as mlx-lm names it"),
        ({}, {"lora_A": np.ones((4, 16), "f4")}, "it is a factor as loralib names it"),
        ({}, {"processor.qkv_lora1.up.weight": np.ones((9, 4), "f4")}, "as XLabs names it"),
        ({}, {"processor.proj_lora2.down.weight": np.ones((4, 9), "f4")}, "as XLabs names it"),
        ({}, {"oft_blocks": np.ones((4, 4, 4), "f4")}, "it is of OFT, which multiplies"),
        ({}, {"ia3_l": np.ones(16, "f4")}, "it is of IA3, which multiplies"),
        ({}, {"weight": np.ones(16, "f4"), "on_input": np.ones(1, "f4")}, "it is of IA3, which"),
        ({}, {"a1.weight": np.ones((4, 4), "f4")}, "it is a factor of GLoRA, which multiplies"),
        ({}, {"diff": np.ones((4, 4), "f4")}, "it is a difference of a whole tensor"),
    ],
)
def test_adapters_that_are_not_read_are_refused_by_name(
    tmp_path: Path, tensors: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    """None is taken for weights; the message names the tensor and what it is."""
    named = {**tensors, **{f"{Q}.{name}": value for name, value in change.items()}}
    path = saved(tmp_path / "a.safetensors", {n: t for n, t in named.items() if t is not None})
    with pytest.raises(InvalidCheckpoint) as caught:
        select_from_checkpoint(open_checkpoint(path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "is no object of JSON"),
        ('{"unet.r": 0}', "a.safetensors, lora_adapter_metadata: peft_type is missing"),
        ('{"unet.peft_type": "LORA", "unet.r": 0}', "lora_adapter_metadata: r is 0: a rank is"),
    ],
)
def test_configurations_in_headers_are_checked(tmp_path: Path, text: str, message: str) -> None:
    """As those beside a file are."""
    tensors = spelled(draw(4, 16), draw(24, 4), 1)["diffusers"]
    path = saved(tmp_path / "a.safetensors", tensors, lora_adapter_metadata=text)
    with pytest.raises(InvalidCheckpoint) as caught:
        open_checkpoint(path)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "tensors"),
    [
        ("a", {"emb_params": np.ones((4, 768), "f4")}),
        ("a", {"<my-cat>": np.ones(768, "f4")}),
        ("a", {"cat": np.ones((1, 1024), "f4")}),
        ("a", {"clip_l": np.ones((2, 768), "f4"), "clip_g": np.ones((2, 1280), "f4")}),
        ("learned_embeds-steps-100", {"cat": np.ones(64, "f4")}),
    ],
)
def test_textual_inversion_is_called_that(tmp_path: Path, name: str, tensors: Any) -> None:
    """An embedding alone is a word, and no model of 768 parameters."""
    with pytest.raises(InvalidCheckpoint, match="alone, an embedding of textual inversion: a word"):
        open_checkpoint(saved(tmp_path / f"{name}.safetensors", tensors))


def test_small_models_are_no_embeddings(tmp_path: Path) -> None:
    """A layer has a dot in its name, and a table of words has many rows."""
    for tensors in ({"l.weight": np.ones((4, 768), "f4")}, {"w": np.ones((400, 768), "f4")}):
        assert "weight" == open_checkpoint(saved(tmp_path / "a.safetensors", tensors)).kind


def test_a_model_with_adapters_in_it_is_compared_without_them(tmp_path: Path) -> None:
    """The refusal says so, and excluding the factors leaves the weights."""
    tensors = {
        "l.base_layer.weight": np.ones((4, 4), "f4"),
        "norm.weight": np.ones(4, "f4"),
        "l.lora_A.speech.weight": np.ones((1, 4), "f4"),
        "l.lora_B.speech.weight": np.ones((4, 1), "f4"),
    }
    path = saved(tmp_path / "model.safetensors", tensors)
    with pytest.raises(InvalidCheckpoint, match=r"beside 2 other tensors, such as 'l.base_layer"):
        open_checkpoint(path)
    assert 20 == open_checkpoint(path, ["*.lora_*"]).num_parameters
