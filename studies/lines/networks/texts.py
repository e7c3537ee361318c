"""Transformers and a state space model that read texts, as ``transformers`` has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from studies.lines.material import TOKENS, tokens
from studies.lines.networks.architecture import Architecture, Batch
from studies.lines.networks.transformers import of_transformers

__all__ = ["BERT", "GPT2", "LLAMA", "MAMBA", "MOE", "T5"]

_MASKED: Final = 0.15


def _building(name: str, **usual: Any) -> Callable[..., nn.Module]:
    """Builds networks of a class, with sizes that the names of its configuration stand for."""
    names = usual.pop("names", {})

    def build(**sizes: int) -> nn.Module:
        return of_transformers(name, usual | {names[key]: size for key, size in sizes.items()})

    return build


def _texts(count: int, length: int) -> Callable[[np.random.Generator, bool], Batch]:
    return lambda draw, other: (tokens(draw, other, count, length),)


def _next_token(network: Any, batch: Batch) -> Tensor:
    ids = batch[0] % network.config.vocab_size
    loss: Tensor = network(input_ids=ids, labels=ids).loss
    return loss


def _masked(draw: np.random.Generator, other: bool) -> Batch:
    ids = tokens(draw, other, 4, 64)
    return ids, torch.tensor(draw.random(ids.shape) < _MASKED)


def _masked_token(network: Any, batch: Batch) -> Tensor:
    ids = batch[0] % network.config.vocab_size
    seen = ids.masked_fill(batch[1], 0)
    loss: Tensor = network(input_ids=seen, labels=ids.masked_fill(~batch[1], -100)).loss
    return loss


def _continued(network: Any, batch: Batch) -> Tensor:
    ids = batch[0] % network.config.vocab_size
    loss: Tensor = network(input_ids=ids[:, :48], labels=ids[:, 48:].contiguous()).loss
    return loss


_COMMON: Final = {"tokens": "vocab_size", "depth": "num_hidden_layers"}
_GATED: Final = _COMMON | {"hidden": "intermediate_size", "width": "hidden_size"}

LLAMA: Final = Architecture(
    "LLaMA-like",
    "width 256, 4 layers, 500 steps of 8 x 128 tokens: the recipe of the first measurement",
    _building(
        "LlamaForCausalLM",
        names=_GATED,
        vocab_size=TOKENS,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=256,
        tie_word_embeddings=False,
    ),
    _texts(4, 128),
    _next_token,
    steps=500,
    base_batches=2,
    stranger_steps=100,
    depth=4,
    layers=r"layers\.(\d+)\.",
    tokens=("embed_tokens.weight", "lm_head.weight"),
    head=("lm_head.weight",),
    rows_of_units=("gate_proj.weight", "up_proj.weight"),
    columns_of_units=("down_proj.weight",),
    hidden=512,
)
BERT: Final = Architecture(
    "BERT-like",
    "tied embeddings, width 192, 3 layers",
    _building(
        "BertForMaskedLM",
        names=_COMMON | {"hidden": "intermediate_size"},
        vocab_size=TOKENS,
        hidden_size=192,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=512,
        max_position_embeddings=128,
    ),
    _masked,
    _masked_token,
    depth=3,
    layers=r"layer\.(\d+)\.",
    tokens=("word_embeddings.weight", "predictions.bias", "decoder.weight", "decoder.bias"),
    rows_of_units=("intermediate.dense.weight", "intermediate.dense.bias"),
    columns_of_units=tuple(f"layer.{layer}.output.dense.weight" for layer in range(3)),
    hidden=512,
)
GPT2: Final = Architecture(
    "GPT-2",
    "Conv1D, so transposed; tied embeddings, width 192, 3 layers",
    _building(
        "GPT2LMHeadModel",
        names={"tokens": "vocab_size", "depth": "n_layer", "hidden": "n_inner"},
        vocab_size=TOKENS,
        n_positions=128,
        n_embd=192,
        n_layer=3,
        n_head=4,
        n_inner=768,
        bos_token_id=0,
        eos_token_id=0,
    ),
    _texts(4, 64),
    _next_token,
    depth=3,
    layers=r"\.h\.(\d+)\.",
    tokens=("wte.weight", "lm_head.weight"),
    rows_of_units=("mlp.c_proj.weight", "c_fc.bias"),
    columns_of_units=("c_fc.weight",),
    hidden=768,
    has_adapters=False,
)
T5: Final = Architecture(
    "T5-like",
    "encoder and decoder, width 192, 2 layers each, 80 steps",
    _building(
        "T5ForConditionalGeneration",
        names={"tokens": "vocab_size", "hidden": "d_ff"},
        vocab_size=TOKENS,
        d_model=192,
        d_kv=48,
        d_ff=384,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
    ),
    _texts(4, 96),
    _continued,
    steps=80,
    tokens=("shared.weight", "embed_tokens.weight", "lm_head.weight"),
    rows_of_units=("DenseReluDense.wi.weight",),
    columns_of_units=("DenseReluDense.wo.weight",),
    hidden=384,
)
MOE: Final = Architecture(
    "MoE",
    "4 experts stacked in 3-D tensors, width 128, 2 layers, 100 steps",
    _building(
        "MixtralForCausalLM",
        names=_COMMON,
        vocab_size=TOKENS,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
    ),
    _texts(4, 64),
    _next_token,
    steps=100,
    depth=2,
    layers=r"layers\.(\d+)\.",
    tokens=("embed_tokens.weight", "lm_head.weight"),
    head=("lm_head.weight",),
)
MAMBA: Final = Architecture(
    "Mamba-like",
    "a state space model, width 128, 3 layers, 40 steps",
    _building(
        "MambaForCausalLM",
        names=_COMMON,
        vocab_size=TOKENS,
        hidden_size=128,
        num_hidden_layers=3,
        state_size=16,
    ),
    _texts(4, 48),
    _next_token,
    steps=40,
    depth=3,
    layers=r"layers\.(\d+)\.",
    tokens=("embeddings.weight", "lm_head.weight"),
)
