"""The order in which tensors are read: the layout's own where it has one, else as names suggest."""

from __future__ import annotations

import random
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkin.core.matching.network_order import NetworkOrder

NAMES = st.lists(st.text("ab.019é", min_size=1, max_size=9), unique=True, max_size=12)
ARCHITECTURES: Final = {
    "llama": "model.embed_tokens model.layers.* model.norm lm_head",
    "llama of Meta": "tok_embeddings layers.* norm output",
    "llama in GGUF": "token_embd blk.* output_norm output",
    "t5 in GGUF": "token_embd enc.blk.* enc.output_norm dec.blk.* dec.output_norm output",
    "gpt2": "transformer.wpe transformer.wte transformer.h.* transformer.ln_f lm_head",
    "gpt_neox": "gpt_neox.embed_in gpt_neox.layers.* gpt_neox.final_layer_norm embed_out",
    "opt": "model.decoder.embed_tokens model.decoder.layers.* model.decoder.final_layer_norm "
    "lm_head",
    "bloom": "transformer.word_embeddings transformer.word_embeddings_layernorm transformer.h.* "
    "transformer.ln_f lm_head",
    "mamba": "backbone.embeddings backbone.layers.* backbone.norm_f lm_head",
    "bert": "bert.embeddings.word_embeddings bert.embeddings.LayerNorm bert.encoder.layer.* "
    "cls.predictions.decoder",
    "roberta": "roberta.embeddings.word_embeddings roberta.encoder.layer.* classifier.out_proj",
    "distilbert": "distilbert.embeddings.LayerNorm distilbert.transformer.layer.* classifier "
    "pre_classifier",
    "t5": "shared encoder.block.* encoder.final_layer_norm decoder.block.* "
    "decoder.final_layer_norm lm_head",
    "bart": "model.shared model.encoder.embed_positions model.encoder.layers.* "
    "model.decoder.embed_positions model.decoder.layers.* lm_head",
    "whisper": "model.encoder.embed_positions model.encoder.conv1 model.encoder.layers.* "
    "model.encoder.layer_norm model.decoder.embed_tokens model.decoder.layers.* proj_out",
    "vit": "vit.embeddings.cls_token vit.encoder.layer.* vit.layernorm classifier",
    "vit of timm": "cls_token patch_embed.proj pos_embed blocks.* norm head",
    "vit of torchvision": "class_token conv_proj encoder.pos_embedding "
    "encoder.layers.encoder_layer_* encoder.ln heads.head",
    "convnext of timm": "stem.* stages.* head.norm head.fc",
    "resnet": "bn1 conv1 layer1.* layer2.* layer3.* layer4.* fc",
    "vgg": "features.* classifier.*",
    "clip": "vision_model.embeddings.class_embedding vision_model.pre_layrnorm "
    "vision_model.encoder.layers.* vision_model.post_layernorm "
    "text_model.embeddings.token_embedding text_model.encoder.layers.* text_model.final_layer_norm "
    "text_projection visual_projection logit_scale",
    "unet": "conv_in time_embedding.linear_1 down_blocks.* mid_block.resnets.* up_blocks.* "
    "conv_norm_out conv_out",
    "vae": "encoder.conv_in encoder.down_blocks.* encoder.mid_block.resnets.* encoder.conv_out "
    "post_quant_conv quant_conv decoder.conv_in decoder.mid_block.resnets.* decoder.up_blocks.* "
    "decoder.conv_out",
    "dit": "pos_embed.proj transformer_blocks.* proj_out_1 proj_out_2",
}
"""Modules from the input on; those of one stage, such as embeddings, by name."""


@pytest.mark.parametrize("modules", ARCHITECTURES.values(), ids=ARCHITECTURES)
def test_names_of_a_file_are_read_from_the_input_on(modules: str) -> None:
    """Embeddings come first, then layers by number, encoders before decoders; heads come last."""
    wanted = [
        f"{module.replace('*', str(number))}.weight"
        for module in modules.split()
        for number in range(12 if "*" in module else 1)
    ]
    names = sorted(wanted)
    order = NetworkOrder.of(names)
    assert tuple(wanted) == order.arrange(names)
    assert not order.is_own


@pytest.mark.parametrize(
    "wanted",
    [
        ["fc1.weight", "fc2.weight", "fc10.weight", "fc.bias", "fc.weight"],
        ["a.0", "a.1.1", "a.1.2", "a.1.10", "a.2", "b"],
        ["h.w1", "h.w01.x", "h.w2"],
        ["x" + "9" * 5000, "x1" + "0" * 5000],
        ["Ä.1", "Ä.2", "Ä.10"],
        ["h.0.a", "h.0.norm", "h.0.output", "h.0.shared", "h.0.token_mixer"],
    ],
)
def test_numbers_count_by_value(wanted: list[str]) -> None:
    """Module by module; within a numbered layer no word has a place."""
    names = sorted(wanted)
    assert tuple(wanted) == NetworkOrder.of(names).arrange(names)


def test_another_order_is_that_of_the_network() -> None:
    """A layout whose names no reader has sorted is read as it is."""
    names = ["head", "layers.0", "layers.1", "layers.10", "layers.2", "embed"]
    order = NetworkOrder.of(names)
    assert (tuple(names), True) == (order.arrange(names), order.is_own)


@given(NAMES)
def test_every_tensor_is_read_once(names: list[str]) -> None:
    """Whatever its name; sorted names have one order, however they came."""
    order = NetworkOrder.of(names)
    assert list(range(len(names))) == sorted(order.places)
    shuffled = random.Random(1).sample(names, len(names))
    first, second = sorted(names), sorted(shuffled)
    assert NetworkOrder.of(first) == NetworkOrder.of(second)
    assert not NetworkOrder.of(first).is_own
