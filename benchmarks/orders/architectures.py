"""Small networks of transformers, with twelve layers of random weights, and a call of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Final, NamedTuple

import torch

__all__ = ["Network", "networks"]

transformers: Any = import_module("transformers")

_TOKENS: Final = {"vocab_size": 100, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_LAYERS: Final = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 12,
    "num_attention_heads": 4,
}
_TEXT: Final = {**_TOKENS, **_LAYERS, "max_position_embeddings": 64, "tie_word_embeddings": False}
_GROUPS: Final = {**_TEXT, "num_key_value_heads": 2, "head_dim": 8}
_GPT: Final = {**_TOKENS, "n_embd": 32, "n_layer": 12, "n_head": 4, "n_positions": 64}
_T5: Final = {**_TOKENS, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 12, "num_heads": 4}
_BART: Final = {
    **_TOKENS,
    "d_model": 32,
    "decoder_start_token_id": 1,
    "max_position_embeddings": 64,
    **{f"{side}_layers": 12 for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": 4 for side in ("encoder", "decoder")},
    **{f"{side}_ffn_dim": 48 for side in ("encoder", "decoder")},
}
_WHISPER: Final = {**_BART, "num_mel_bins": 8, "max_source_positions": 16}
_VISION: Final = {**_LAYERS, "image_size": 32, "patch_size": 8, "num_labels": 5}
_SOUND: Final = {
    **_LAYERS,
    "vocab_size": 20,
    "conv_dim": (16,) * 7,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}
_CLIP: Final = {
    "projection_dim": 32,
    "text_config": {**_LAYERS, "vocab_size": 100, "projection_dim": 32, "eos_token_id": 2},
    "vision_config": {**_LAYERS, "image_size": 32, "patch_size": 8, "projection_dim": 32},
}
_KINDS: Final[tuple[tuple[str, dict[str, Any], str, dict[str, Any]], ...]] = (
    (
        "llama mistral qwen2 qwen3 qwen2_moe gemma gemma2 mixtral phi3 cohere olmo olmo2 granite "
        "stablelm starcoder2 glm nemotron smollm3 exaone4",
        _GROUPS,
        "CausalLM",
        {},
    ),
    ("phi gpt_neox mamba biogpt", _TEXT, "CausalLM", {}),
    ("opt", {**_TEXT, "ffn_dim": 48, "word_embed_proj_dim": 32}, "CausalLM", {}),
    ("gpt2 gpt_bigcode openai-gpt", _GPT, "CausalLM", {}),
    ("gptj", {**_GPT, "rotary_dim": 4}, "CausalLM", {}),
    ("bloom", {**_TOKENS, "hidden_size": 32, "n_layer": 12, "n_head": 4}, "CausalLM", {}),
    (
        "bert roberta xlm-roberta camembert ernie electra mpnet albert convbert megatron-bert "
        "layoutlm roformer nystromformer rembert fnet modernbert",
        _TEXT,
        "MaskedLM",
        {},
    ),
    ("bert roberta electra deberta-v2", _TEXT, "SequenceClassification", {}),
    (
        "distilbert",
        {**_TOKENS, "dim": 32, "hidden_dim": 48, "n_layers": 12, "n_heads": 4},
        "SequenceClassification",
        {},
    ),
    ("t5 mt5 umt5", _T5, "Seq2SeqLM", {"decoder": True}),
    ("bart mbart pegasus blenderbot m2m_100 marian", _BART, "Seq2SeqLM", {"decoder": True}),
    ("whisper", _WHISPER, "SpeechSeq2Seq", {"decoder": True, "features": (8, 32)}),
    ("vit dinov2 beit vit_msn", _VISION, "ImageClassification", {"pixels": 32}),
    (
        "resnet regnet convnext convnextv2 swin swinv2 focalnet pvt poolformer mobilevit "
        "mobilenet_v1 mobilenet_v2 efficientnet",
        {},
        "ImageClassification",
        {"pixels": 224},
    ),
    ("segformer", {}, "SemanticSegmentation", {"pixels": 64}),
    ("wav2vec2 hubert wavlm", _SOUND, "CTC", {"samples": 4000}),
    ("clip siglip", _CLIP, "ZeroShotImageClassification", {"tokens": True, "pixels": 32}),
)
"""Types of configurations, their settings, what the network is for, and what it is given."""


class Network(NamedTuple):
    """A network, and a call that uses its parameters."""

    name: str
    module: torch.nn.Module
    call: Callable[[], Any]


def networks() -> Iterator[Network]:
    """Each network in turn; the weights are random."""
    for kinds, settings, task, given in _KINDS:
        automatic = getattr(transformers, f"AutoModelFor{task}")
        for kind in kinds.split():
            config = transformers.AutoConfig.for_model(kind, **settings)
            module = automatic.from_config(config).eval()
            yield Network(f"{kind} {task}", module, _call(module, _inputs(**given)))


def _call(module: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> Callable[[], Any]:
    return lambda: module(**inputs)


def _inputs(
    *,
    tokens: bool = False,
    decoder: bool = False,
    pixels: int = 0,
    samples: int = 0,
    features: tuple[int, ...] = (),
) -> dict[str, torch.Tensor]:
    words = torch.arange(3, 11)[None]
    found: dict[str, torch.Tensor] = {}
    if pixels:
        found["pixel_values"] = torch.randn(1, 3, pixels, pixels)
    if samples:
        found["input_values"] = torch.randn(1, samples)
    if features:
        found["input_features"] = torch.randn(1, *features)
    if tokens or not found:
        found["input_ids"] = words
    if decoder:
        found["decoder_input_ids"] = words
    return found
