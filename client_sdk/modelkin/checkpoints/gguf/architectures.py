"""How llama.cpp's converters write the models of each architecture, to read them back.

Source: the converters of llama.cpp (https://github.com/ggml-org/llama.cpp, ``conversion/``): which
models have their rows of q and k in another order, their norms shifted, their experts stacked. The
names of Hugging Face's files are among those of the package's ``TensorNameMap``, which lists those
of all models for a tensor: an architecture says by endings which of these are its own.

Only architectures whose files were compared with those that transformers saves are listed. Tensors
of others, and forms that are not put back, keep the names and values of GGUF.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["ARCHITECTURES", "USUAL", "Architecture"]

_MODEL: Final = ("model.", "lm_head")
USUAL: Final = ("self_attn.q_norm", "self_attn.k_norm", "mlp.gate")
_MIXTRAL: Final = (
    "block_sparse_moe.gate",
    "block_sparse_moe.experts.w1",
    "block_sparse_moe.experts.w2",
    "block_sparse_moe.experts.w3",
)
_SHARED: Final = (
    "mlp.shared_experts.gate_proj",
    "mlp.shared_experts.up_proj",
    "mlp.shared_experts.down_proj",
)


@dataclass(frozen=True, slots=True)
class Architecture:
    """The form of an architecture's tensors in Hugging Face's files.

    Attributes:
        roots: what the names of its tensors begin with there.
        endings: the endings of names that are its own, where several are possible.
        rotary: whether rows of q and k, in pairs there, are interleaved in GGUF.
        grouped: whether rows of a fused q, k and v, head by head there, are q, k, v in GGUF.
        shifted: endings of the names of GGUF's tensors that have 1 added, as (1 + w) is computed.
        transposed: endings of the names of tensors that are transposed in GGUF.
        left: endings of GGUF's names whose tensors are not put back.
    """

    roots: tuple[str, ...] = _MODEL
    endings: tuple[str, ...] = ()
    rotary: bool = False
    grouped: bool = False
    shifted: tuple[str, ...] = ()
    transposed: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


_NORMS: Final = ("_norm.weight",)
_PHI: Final = ("final_layernorm", "mlp.fc1", "mlp.fc2", "self_attn.dense")
_CONV1D: Final = (
    "attn_qkv.weight",
    "attn_output.weight",
    "ffn_up.weight",
    "ffn_down.weight",
)
_FALCON: Final = (
    "transformer.word_embeddings",
    "input_layernorm",
    "self_attention.query_key_value",
    "self_attention.dense",
    "mlp.dense_h_to_4h",
    "mlp.dense_4h_to_h",
)
_BERT: Final = ("embeddings.", "encoder.layer.", "pooler.", "classifier")

ARCHITECTURES: Final[dict[str, Architecture]] = {
    "llama": Architecture(endings=_MIXTRAL, rotary=True),
    "llama-embed": Architecture(rotary=True),
    "mistral3": Architecture(rotary=True),
    "arcee": Architecture(rotary=True),
    "smollm3": Architecture(rotary=True),
    "minicpm": Architecture(rotary=True),
    "olmo": Architecture(rotary=True),
    "deepseek": Architecture(endings=_SHARED, rotary=True),
    "granite": Architecture(rotary=True),
    "granitemoe": Architecture(
        endings=("router.layer", "block_sparse_moe.output_linear"),
        rotary=True,
        left=("ffn_gate_exps.weight", "ffn_up_exps.weight"),  # one tensor in Hugging Face's files
    ),
    "qwen2": Architecture(),
    "qwen2moe": Architecture(),
    "qwen2vl": Architecture(),
    "qwen3": Architecture(),
    "qwen3moe": Architecture(),
    "qwen3vl": Architecture(),
    "olmo2": Architecture(),
    "olmoe": Architecture(),
    "gemma": Architecture(shifted=_NORMS),
    "gemma2": Architecture(shifted=_NORMS),
    "gemma3": Architecture(shifted=_NORMS),
    "gemma-embedding": Architecture(roots=("layers.", "embed_tokens", "norm"), shifted=_NORMS),
    "phi2": Architecture(endings=_PHI),
    "phi3": Architecture(endings=("mlp.gate_up_proj", "self_attn.qkv_proj")),
    "phimoe": Architecture(endings=_MIXTRAL),
    "stablelm": Architecture(left=("attn_q_norm.weight", "attn_k_norm.weight")),  # stacked heads
    "starcoder2": Architecture(endings=("mlp.c_fc", "mlp.c_proj")),
    "starcoder": Architecture(roots=("transformer.", "lm_head")),
    "gpt2": Architecture(roots=("transformer.", "lm_head"), transposed=_CONV1D),
    "command-r": Architecture(),
    "cohere2": Architecture(),
    "gptneox": Architecture(roots=("gpt_neox.", "embed_out"), grouped=True),
    "bloom": Architecture(roots=("h.", "word_embeddings", "ln_f"), grouped=True),
    "falcon": Architecture(
        roots=("transformer.", "lm_head"), endings=_FALCON, left=("attn_qkv.weight",)
    ),
    "bert": Architecture(roots=_BERT),
    "modern-bert": Architecture(
        roots=("embeddings.", "layers.", "final_norm", "head.", "classifier"),
        endings=(
            "tok_embeddings",
            "embeddings.norm",
            ".attn_norm",
            ".mlp_norm",
            "attn.Wo",
            "mlp.Wi",
            "mlp.Wo",
        ),
    ),
    "nomic-bert": Architecture(
        roots=("encoder.layers.", "embeddings.", "emb_ln"), endings=("emb_ln", "fc11", "fc12")
    ),
    "t5": Architecture(roots=("shared", "encoder.", "decoder.", "lm_head"), endings=("wi_1",)),
    "t5encoder": Architecture(roots=("shared", "encoder."), endings=("wi_1",)),
    "deepseek2": Architecture(endings=_SHARED, left=("attn_k_b.weight", "attn_v_b.weight")),
    "dots1": Architecture(endings=_SHARED),
    "glm4": Architecture(
        endings=("mlp.gate_up_proj", "post_mlp_layernorm", "post_self_attn_layernorm")
    ),
    "glm4moe": Architecture(endings=_SHARED),
    "seed_oss": Architecture(),
    "exaone4": Architecture(),
    "ernie4_5": Architecture(),
    "ernie4_5-moe": Architecture(endings=(*_SHARED, "moe_statics.e_score_correction")),
    "hunyuan-dense": Architecture(endings=("key_layernorm", "query_layernorm")),
    "hunyuan-moe": Architecture(
        endings=(
            "key_layernorm",
            "query_layernorm",
            "mlp.gate.wg",
            "shared_mlp.gate_proj",
            "shared_mlp.up_proj",
            "shared_mlp.down_proj",
        )
    ),
    "nemotron": Architecture(shifted=_NORMS),
    "apertus": Architecture(endings=(".attention_layernorm", ".feedforward_layernorm")),
    "minimax-m2": Architecture(endings=(*_MIXTRAL, "block_sparse_moe.e_score_correction")),
}
"""By ``general.architecture``."""
