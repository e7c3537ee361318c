"""Networks of transformers, living and as they are saved: one space has both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_model

from modelkin import Layout, select_support
from modelkin.checkpoints import open_checkpoint, select_from_checkpoint
from modelkin.torch import layout_of, weight_importance, weights_digest

pytestmark = pytest.mark.slow

SMALL: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 50,
}
EXPERTS = {"num_key_value_heads": 1, "moe_intermediate_size": 8, "head_dim": 8}
IMAGE = {"image_size": 8, "patch_size": 4}
SEQUENCES = {
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "max_position_embeddings": 20,
}
LLAVA = {
    "text_config": {"model_type": "llama", **SMALL},
    "vision_config": {"model_type": "clip_vision_model", **SMALL, **IMAGE},
}
SWIN = {"embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2], "window_size": 2} | IMAGE
SEGFORMER = {
    "depths": [1, 1],
    "hidden_sizes": [8, 16],
    "num_encoder_blocks": 2,
    "sr_ratios": [2, 1],
    "num_attention_heads": [1, 2],
}
AUDIO = {"num_mel_bins": 16, "max_length": 32}
OWN = (LLAVA, SWIN, SEGFORMER)
FAMILIES: dict[str, dict[str, Any]] = {
    "BertForMaskedLM": {},
    "GPT2LMHeadModel": {"n_embd": 16, "n_layer": 2, "n_head": 2},
    "GPTNeoXForCausalLM": {},
    "LlamaForCausalLM": {},
    "MixtralForCausalLM": {"num_key_value_heads": 1, "num_local_experts": 3},
    "Qwen3MoeForCausalLM": {"num_experts": 3, "num_experts_per_tok": 2, **EXPERTS},
    "GraniteMoeForCausalLM": {"num_key_value_heads": 1, "num_local_experts": 3},
    "BartForConditionalGeneration": SEQUENCES,
    "ViTForImageClassification": IMAGE,
    "BeitForImageClassification": IMAGE,
    "Dinov2Model": IMAGE,
    "SwinForImageClassification": SWIN,
    "SegformerForImageClassification": SEGFORMER,
    "ASTForAudioClassification": AUDIO,
    "LlavaForConditionalGeneration": LLAVA,
}


def network(name: str) -> Any:
    """A small network of a family, with random weights."""
    import transformers

    torch.manual_seed(1)
    family = getattr(transformers, name)
    given = FAMILIES[name]
    return family(family.config_class(**(given if given in OWN else SMALL | given)))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_saved_network_is_the_living_one(name: str, tmp_path: Path) -> None:
    """Its file gives the same support and the same digest, whatever its tensors are called."""
    model = network(name)
    model.save_pretrained(tmp_path)
    assert_same(tmp_path, model)


def test_a_tied_table_is_saved_under_either_name(tmp_path: Path) -> None:
    """``save_model`` keeps the head's name, ``layout_of`` the embedding's."""
    model = network("GPT2LMHeadModel")
    save_model(model, str(tmp_path / "m.safetensors"))
    assert "lm_head.weight" in {t.name for t in open_checkpoint(tmp_path).layout.tensors}
    assert_same(tmp_path, model)


def test_a_wrapped_network_has_the_layout_of_its_own(tmp_path: Path) -> None:
    """Neither ``torch.compile`` nor data parallelism changes a name."""
    model = network("LlamaForCausalLM")
    layout = layout_of(model)
    assert layout == layout_of(torch.compile(model, backend="eager"))  # type: ignore[arg-type]
    assert layout == layout_of(torch.nn.DataParallel(model))
    model.model.layers[0] = torch.compile(model.model.layers[0], backend="eager")
    assert layout == layout_of(model)
    assert weights_digest(network("LlamaForCausalLM")) == weights_digest(model)
    kept = layout_of(model, ["model.layers.0.*"])
    assert len(kept.tensors) < len(layout.tensors)


def assert_same(folder: Path, model: Any) -> None:
    layout: Layout = layout_of(model)
    file = open_checkpoint(folder).in_order(layout)
    found = select_from_checkpoint(file).reordered(layout)
    assert select_support(weight_importance(model)) == found
    assert weights_digest(model) == checkpoint_digest(folder, layout)


def checkpoint_digest(folder: Path, layout: Layout) -> str:
    from modelkin import checkpoints

    return checkpoints.weights_digest(open_checkpoint(folder), layout)
