"""The names of modules: those of one tensor meet, whichever trainer wrote them."""

from __future__ import annotations

import pytest

from modelkin.core.adapters import is_of_adapter, part_of

ATTENTION = "down_blocks.1.attentions.0.transformer_blocks.0.attn1"
FLAT = "down_blocks_1_attentions_0_transformer_blocks_0_attn1"


@pytest.mark.parametrize(
    ("module", "names"),
    [
        (
            f"unet.{ATTENTION}.to_q",
            [
                f"lora_unet_{FLAT}_to_q.lora_down.weight",
                f"lora_unet__orig_mod_{FLAT}_to_q.lora_down.weight",
                "lora_unet_input_blocks_4_1_transformer_blocks_0_attn1_to_q.lora_down.weight",
                f"unet.{ATTENTION}.to_q.lora_A.weight",
                f"unet.{ATTENTION}.to_q.lora.down.weight",
                f"unet.{ATTENTION}.to_q.alpha",
                f"unet.{ATTENTION}.to_q.lora.alpha",
                f"unet.{ATTENTION}.processor.to_q_lora.down.weight",
                f"{ATTENTION}.processor.to_q_lora.up.weight",
                f"base_model.model.{ATTENTION}.to_q.lora_A.weight",
                f"module.unet._orig_mod.{ATTENTION}.to_q.lora_A.default.weight",
                f"lora_unet_{FLAT}_to_q.hada_w1_a",
                f"base_model.model.{ATTENTION}.to_q.lokr_w2",
                "diffusion_model.input_blocks.4.1.transformer_blocks.0.attn1.to_q.lora_up.weight",
                "model.diffusion_model.input_blocks.4.1.transformer_blocks.0.attn1.to_q.lora_B.weight",
            ],
        ),
        (
            f"unet.{ATTENTION}.to_out.0",
            [
                f"lora_unet_{FLAT}_to_out_0.lora_down.weight",
                f"{ATTENTION}.processor.to_out_lora.down.weight",
            ],
        ),
        (
            "text_encoder.encoder.layers.0.self_attn.q_proj",
            [
                "text_encoder.encoder.layers.0.self_attn.q_proj.lora_A.weight",
                "base_model.model.text_encoder.text_model.encoder.layers.0.self_attn.q_proj.lora_A."
                "weight",
                "lora_te_text_model_encoder_layers_0_self_attn_q_proj.lora_down.weight",
                "lora_te1_text_model_encoder_layers_0_self_attn_q_proj.alpha",
                "text_encoder.text_model.encoder.layers.0.self_attn.to_q_lora.down.weight",
                "text_encoder.text_model.encoder.layers.0.self_attn.q_proj.lora_linear_layer.up."
                "weight",
                "text_encoders.clip_l.transformer.text_model.encoder.layers.0.self_attn.q_proj."
                "lora_A.weight",
            ],
        ),
        (
            "text_encoder_2.encoder.layers.31.mlp.fc1",
            ["lora_te2_text_model_encoder_layers_31_mlp_fc1.lora_up.weight"],
        ),
        (
            "unet.down_blocks.0.resnets.1.time_emb_proj",
            [
                "lora_unet_input_blocks_2_0_emb_layers_1.lora_down.weight",
                "lora_unet_down_blocks_0_resnets_1_time_emb_proj.lora_down.weight",
            ],
        ),
        (
            "unet.down_blocks.0.downsamplers.0.conv",
            ["lora_unet_input_blocks_3_0_op.lora_down.weight"],
        ),
        ("unet.up_blocks.0.upsamplers.0.conv", ["lora_unet_output_blocks_2_1_conv.alpha"]),
        (
            "unet.mid_block.attentions.0.proj_in",
            [
                "lora_unet_middle_block_1_proj_in.hada_w2_b",
                "unet.mid_block.attentions.0.proj_in.alpha",
            ],
        ),
        ("unet.conv_in", ["lora_unet_input_blocks_0_0.alpha", "lora_unet_conv_in.alpha"]),
        ("unet.time_embedding.linear_2", ["lora_unet_time_embed_2.alpha"]),
        (
            "transformer.transformer_blocks.0.attn.add_k_proj",
            [
                "transformer.transformer_blocks.0.attn.add_k_proj.lora_A.weight",
                "transformer.transformer_blocks.0.attn.processor.add_k_proj_lora.down.weight",
                "lora_transformer_transformer_blocks_0_attn_add_k_proj.lora_down.weight",
            ],
        ),
        (
            "transformer.single_transformer_blocks.0.attn.to_q",
            [
                "transformer.single_transformer_blocks.0.attn.to_q.lora_A.weight",
                "single_transformer_blocks.0.attn.to_q.lora_down.weight",
                "lycoris_single_transformer_blocks_0_attn_to_q.lokr_w1",
                "base_model.model.single_transformer_blocks.0.attn.to_q.lora_A.weight",
            ],
        ),
        ("transformer_2.blocks.0.attn2.to_k", ["transformer_2.blocks.0.attn2.to_k.lora_A.weight"]),
        ("encoder.layers.0.mlp.fc1", ["lycoris_encoder_layers_0_mlp_fc1.hada_w1_a"]),
        (  # no word list has the names of all networks: these stay without dots, both of them
            "unet.double_blocks_0_img_attn_qkv",
            [
                "lora_unet_double_blocks_0_img_attn_qkv.lora_down.weight",
                "diffusion_model.double_blocks.0.img_attn.qkv.lora_A.weight",
            ],
        ),
        (
            "model.layers.0.self_attn.q_proj",
            [
                "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight",
                "module.base_model.model.model.layers.0.self_attn.q_proj.lora_B.default.weight",
                "_orig_mod.base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight",
                "base_model.model.model.layers._orig_mod.0.self_attn.q_proj.lora_A.weight",
            ],
        ),
        ("transformer.h.0.attn", ["base_model.model.transformer.h.0.attn.lora_A.weight"]),
    ],
)
def test_names_of_one_module_meet(module: str, names: list[str]) -> None:
    """kohya's, diffusers' (three of them), PEFT's, Stable Diffusion's own and wrapped names."""
    found = [part_of(name) for name in names]
    assert [module] * len(names) == [part.module.name for part in found if part is not None]


def test_components_are_told_by_files_of_pipelines_alone() -> None:
    """An adapter that PEFT saved is of one model, so that its configuration is of all modules."""
    names = {
        "lora_te2_text_model_encoder_layers_0_mlp_fc1.alpha": "text_encoder_2",
        "unet.conv_in.lora_A.weight": "unet",
        "base_model.model.down_blocks.0.conv.lora_A.weight": None,
        "base_model.model.transformer.h.0.mlp.lora_A.weight": None,
        "transformer.h.0.mlp.lora_A.weight": None,
        "lycoris_layers_0_q_proj.lokr_w1": None,
    }
    found = {name: part_of(name) for name in names}
    assert names == {name: part and part.module.component for name, part in found.items()}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("x.lora_down.weight", True),
        ("x.to_q_lora.down.weight", True),
        ("x.dora_scale", True),
        ("x.lora_mid.weight", True),
        ("layers.0.lora_a", True),
        ("x.boft_R", True),
        ("lora_unet_conv_in.diff", True),  # LyCORIS' differences of whole tensors
        ("lora_te1_text_model_final_layer_norm.w_norm", True),
        ("lycoris_layers_0_q_proj.a1.weight", True),
        ("double_blocks.0.processor.proj_lora1.down.weight", True),
        ("lora_controlnet", True),
        ("x.ia3_l", True),
        ("lora_unet_down_blocks_0.a1.weight", True),  # of GLoRA
        ("lycoris_layers_0_q_proj.diff", True),
        ("x.alpha", False),  # of an activation
        ("blocks.0.attn.w_lora.lora.0.weight", False),  # of RWKV-7, which is no adapter
        ("lora_head.weight", False),
        ("model.layers.0.self_attn.kv_a_proj_with_mqa.weight", False),
    ],
)
def test_tensors_of_adapters_are_known_by_name(name: str, expected: bool) -> None:
    """Those that are read, and those that are refused by name; weights of models are neither."""
    assert expected == is_of_adapter(name)
