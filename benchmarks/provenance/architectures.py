"""Architectures of transformers, and where in each the parts of a layer are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["HEADS", "LAYERS", "MADE", "MINILM", "WIDTH", "Architecture"]

WIDTH: Final = 256
LAYERS: Final = 4
HEADS: Final = 4
POSITIONS: Final = 128


@dataclass(frozen=True)
class Architecture:
    """What is known of an architecture.

    Attributes:
        kind: its ``model_type``.
        layer: the prefix of a layer, with its number.
        vocabulary: the tensors that have a row for each token.
        units: parts of a layer's MLP with an axis of hidden units, and that axis.
        streams: the axes of the residual stream of square parts, and of vectors beside it.
        renamed: how another library names tensors: parts of names, and what replaces them.
        settings: of the configuration, but for the tokens.
        width: of the residual stream.
        together: parts that other libraries put into one, by its name.
        apart: the part that others take apart into q, k and v, and how its rows are ordered.
        depth: how its configuration names the number of layers.
        hidden: how it names the number of hidden units.
    """

    kind: str
    layer: str
    vocabulary: tuple[str, ...]
    units: Mapping[str, int]
    streams: Mapping[str, tuple[int, ...]]
    renamed: Mapping[str, str]
    settings: Mapping[str, Any] = field(default_factory=dict)
    width: int = WIDTH
    together: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    apart: tuple[str, str] | None = None
    depth: str = "num_hidden_layers"
    hidden: str = "intermediate_size"

    def layer_of(self, name: str) -> tuple[int, str] | None:
        """The layer of a tensor, and its name within; None of a tensor beside the layers."""
        before, after = self.layer.split("{}")
        found = re.fullmatch(f"{re.escape(before)}(\\d+){re.escape(after)}(.+)", name)
        return (int(found[1]), found[2]) if found else None


_SIZES: Final = {
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "max_position_embeddings": POSITIONS,
}
_LLAMA: Final = Architecture(
    "llama",
    "model.layers.{}.",
    ("model.embed_tokens.weight", "lm_head.weight"),
    {"mlp.gate_proj.weight": 0, "mlp.up_proj.weight": 0, "mlp.down_proj.weight": 1},
    {
        "self_attn.q_proj.weight": (1,),
        "self_attn.k_proj.weight": (1,),
        "self_attn.v_proj.weight": (1,),
        "self_attn.o_proj.weight": (0,),
    },
    {  # as Meta's own files have them
        "model.embed_tokens": "tok_embeddings",
        "model.norm": "norm",
        "model.layers": "layers",
        "lm_head": "output",
        "self_attn.q_proj": "attention.wq",
        "self_attn.k_proj": "attention.wk",
        "self_attn.v_proj": "attention.wv",
        "self_attn.o_proj": "attention.wo",
        "mlp.gate_proj": "feed_forward.w1",
        "mlp.down_proj": "feed_forward.w2",
        "mlp.up_proj": "feed_forward.w3",
        "input_layernorm": "attention_norm",
        "post_attention_layernorm": "ffn_norm",
    },
    {**_SIZES, "intermediate_size": 2 * WIDTH, "num_key_value_heads": HEADS},
    together={  # as in Phi-3
        "self_attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
    },
)
_BERT_STREAMS: Final = {
    "attention.self.query.weight": (1,),
    "attention.self.query.bias": (),
    "attention.self.key.weight": (1,),
    "attention.self.key.bias": (),
    "attention.self.value.weight": (1,),
    "attention.self.value.bias": (),
    "attention.output.dense.weight": (0,),
    "pooler.dense.weight": (1,),
    "pooler.dense.bias": (),
}
_BERT_UNITS: Final = {
    "intermediate.dense.weight": 0,
    "intermediate.dense.bias": 0,
    "output.dense.weight": 1,
}
_BERT_NAMES: Final = {  # as in its first files, without the prefix
    "bert.": "",
    "LayerNorm.weight": "LayerNorm.gamma",
    "LayerNorm.bias": "LayerNorm.beta",
    "attention.self": "attn",
    "encoder.layer": "transformer.blocks",
}
_BERT_TOGETHER: Final = {
    "attention.Wqkv": ("attention.self.query", "attention.self.key", "attention.self.value")
}
_BERT: Final = Architecture(
    "bert",
    "bert.encoder.layer.{}.",
    ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias"),
    _BERT_UNITS,
    _BERT_STREAMS,
    _BERT_NAMES,
    {**_SIZES, "intermediate_size": 4 * WIDTH},
    together=_BERT_TOGETHER,
)
MINILM: Final = Architecture(
    "bert",
    "encoder.layer.{}.",
    ("embeddings.word_embeddings.weight",),
    _BERT_UNITS,
    _BERT_STREAMS,
    {**_BERT_NAMES, "embeddings.": "embed.", "pooler": "pool"},
    width=384,
    together=_BERT_TOGETHER,
)
"""A sentence model of BERT's architecture, as its package has it."""
_GPT2: Final = Architecture(
    "gpt2",
    "transformer.h.{}.",
    ("transformer.wte.weight",),
    {"mlp.c_fc.weight": 1, "mlp.c_fc.bias": 0, "mlp.c_proj.weight": 0},
    {"attn.c_proj.weight": (1,)},
    {  # as in OpenAI's own files
        "transformer.": "model/",
        "c_attn.weight": "c_attn/w",
        "c_proj.weight": "c_proj/w",
        "c_fc.weight": "c_fc/w",
        "ln_": "norm_",
    },
    {
        "n_embd": WIDTH,
        "n_layer": LAYERS,
        "n_head": HEADS,
        "n_positions": POSITIONS,
        "bos_token_id": 2,
        "eos_token_id": 3,
    },
    apart=("attn.c_attn", "columns"),
    depth="n_layer",
    hidden="n_inner",
)
_NEOX: Final = Architecture(
    "gpt_neox",
    "gpt_neox.layers.{}.",
    ("gpt_neox.embed_in.weight", "embed_out.weight"),
    {"mlp.dense_h_to_4h.weight": 0, "mlp.dense_h_to_4h.bias": 0, "mlp.dense_4h_to_h.weight": 1},
    {"attention.dense.weight": (0,)},
    {  # as Megatron has them
        "gpt_neox.embed_in": "word_embeddings",
        "gpt_neox.layers": "sequential",
        "attention.query_key_value": "self_attention.qkv",
        "dense_h_to_4h": "fc_in",
        "dense_4h_to_h": "fc_out",
        "embed_out": "final_linear",
    },
    {**_SIZES, "intermediate_size": 4 * WIDTH},
    apart=("attention.query_key_value", "heads"),
)
MADE: Final = (_LLAMA, _BERT, _GPT2, _NEOX)
"""Those of which models are trained here."""
