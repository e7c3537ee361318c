"""Names that mean the same: the table by which tensors of two layouts are recognised.

Frameworks wrap networks, libraries move modules from version to version, and a tied tensor is saved
under any of its names. A canonical name is only compared: layouts keep the names that they have.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

__all__ = ["HARMLESS", "PREFIXES", "TIED", "WRAPPERS", "canonical_name", "expert_of", "plain_names"]

WRAPPERS: Final = (
    *("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_forward_module."),
)
"""What ``torch.compile``, FSDP, activation checkpointing and Lightning put into names, anywhere."""

_PARALLEL: Final = "module."
"""What DataParallel puts before all names."""

PREFIXES: Final = (
    # wrappers of whole networks: DataParallel, Opacus, PEFT, networks with a head or several parts
    *(_PARALLEL, "_module.", "base_model.model.", "model.", "transformer.", "language_model."),
    "vlm.",
    # the body of a network in transformers, which a headless checkpoint saves without it
    *("albert.", "bert.", "deberta.", "distilbert.", "electra.", "gpt_neox.", "roberta."),
    *("beit.", "deit.", "dinov2.", "swin.", "vit.", "wav2vec2.", "backbone."),
)
"""What may stand before the names of a whole network, several times and in any order."""

_MOVED: Final = tuple(
    (re.compile(before), after)
    for before, after in (
        # layer norms of TensorFlow
        (r"\.gamma$", ".weight"),
        (r"\.beta$", ".bias"),
        # GPT-NeoX's head
        (r"^embed_out\.", "lm_head."),
        # vision transformers, before and after version 5 of transformers
        (r"encoder\.layer\.", "layers."),
        (r"\.attention\.(?:attention|self)\.query\.", ".attention.q_proj."),
        (r"\.attention\.(?:attention|self)\.key\.", ".attention.k_proj."),
        (r"\.attention\.(?:attention|self)\.value\.", ".attention.v_proj."),
        (r"\.attention\.output\.dense\.", ".attention.o_proj."),
        (
            r"\.attention\.self\.relative_position_bias_table$",
            ".attention.relative_position_bias.relative_position_bias_table",
        ),
        (r"(?<!attention)\.intermediate\.dense\.", ".mlp.fc1."),
        (r"(?<!attention)\.output\.dense\.", ".mlp.fc2."),
        (r"\.swin\.", "."),
        # SegFormer
        (r"(?:^|(?<=\.))encoder\.(patch_embeddings|layer_norm)\.(\d+)\.", r"stages.\2.\1."),
        (r"(?:^|(?<=\.))encoder\.block\.(\d+)\.(?=\d)", r"stages.\1.blocks."),
        (r"\.attention\.self\.layer_norm\.", ".attention.sequence_reduction.layer_norm."),
        (r"\.attention\.self\.sr\.", ".attention.sequence_reduction.sequence_reduction."),
        (r"\.mlp\.dense([12])\.", r".mlp.fc\1."),
        (r"\.layer_norm_1\.", ".layernorm_before."),
        (r"\.layer_norm_2\.", ".layernorm_after."),
        (r"\.linear_c\.", ".linear_projections."),
        # mixtures of experts
        (r"\.block_sparse_moe\.", ".mlp."),
        (r"\.mlp\.input_linear\.weight$", ".mlp.experts.gate_up_proj"),
        (r"\.mlp\.output_linear\.weight$", ".mlp.experts.down_proj"),
        (r"\.mlp\.router\.layer\.", ".mlp.router."),
        (r"(\.experts\.\d+)\.w1\.", r"\1.gate_proj."),
        (r"(\.experts\.\d+)\.w3\.", r"\1.up_proj."),
        (r"(\.experts\.\d+)\.w2\.", r"\1.down_proj."),
    )
)
"""Names that modules had, and those that they have now."""

TIED: Final = frozenset(
    {
        *("lm_head.weight", "proj_out.weight", "output.weight", "vocab_projector.weight"),
        *("cls.predictions.decoder.weight", "lm_head.decoder.weight", "generator_lm_head.weight"),
        *("shared.weight", "wte.weight", "embed_in.weight", "embed_tokens.weight"),
        *("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "tok_embeddings.weight"),
        *("word_embeddings.weight", "embeddings.word_embeddings.weight", "embeddings.weight"),
    }
)
"""Canonical names of a network's tables of words. Of those that are tied, any one may be saved."""

HARMLESS: Final = re.compile(r"(?:^|\.)(?:final_logits_bias|inv_freq|masked_bias)$")
"""The end of the name of a buffer that some versions save, and no network trains."""

_EXPERT: Final = re.compile(r"(.*\.experts)\.(\d{1,9})\.(gate_proj|up_proj|down_proj)\.weight")
_STACKS: Final = {
    "gate_proj": ("gate_up_proj", 0),
    "up_proj": ("gate_up_proj", 1),
    "down_proj": ("down_proj", 0),
}
"""The stack that has a matrix of each expert, and its place in what the stack has of an expert."""


def plain_names(names: Sequence[str]) -> list[str]:
    """The names of a network's tensors without the marks of what wraps it.

    Names that would be equal then stay as they are, all of them.
    """
    plain = [_unwrapped(name) for name in names]
    if all(name.startswith(_PARALLEL) for name in plain):
        plain = [name.removeprefix(_PARALLEL) for name in plain]
    return plain if len(set(plain)) == len(plain) else list(names)


@lru_cache(maxsize=1 << 16)
def canonical_name(name: str) -> str:
    """The name that all spellings of a tensor's name share."""
    name = _unwrapped(name)
    while prefix := next((p for p in PREFIXES if name.startswith(p)), None):
        name = name[len(prefix) :]
    for before, after in _MOVED:
        name = before.sub(after, name)
    return name


def expert_of(name: str) -> tuple[str, int, int] | None:
    """The place of an expert's matrix in the stack of all experts, by its canonical name.

    Returns:
        The canonical name of the stack, the expert, and whether the matrix is the first or the
        second of what the stack has of an expert; None for other names.
    """
    found = _EXPERT.fullmatch(name)
    if found is None:
        return None
    stack, place = _STACKS[found[3]]
    return f"{found[1]}.{stack}", int(found[2]), place


def _unwrapped(name: str) -> str:
    for wrapper in WRAPPERS:
        name = name.replace(wrapper, "")
    return name
