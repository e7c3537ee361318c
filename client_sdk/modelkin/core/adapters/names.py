"""The names of an adapter's tensors: which module each is of, and what it is there.

The spellings are those of PEFT, diffusers, kohya's trainers and LyCORIS. What belongs to an adapter
and is read by none of them is recognised, so that it is refused as what it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from modelkin.core.adapters.spellings import Module, module_of

__all__ = ["Algorithm", "PartName", "has_factors", "is_of_adapter", "part_of", "reason_against"]

Algorithm = Literal["LoRA", "LoHa", "LoKr"]

ALPHA: Final = "alpha"

_SIDES: Final = {"A": "A", "B": "B", "down": "A", "up": "B"}
_PEFT: Final = re.compile(r"(.+)\.(lora_(A|B))(?:\.([^.]+))?\.weight")
_EMBEDDING: Final = re.compile(r"(.+)\.(lora_embedding_(A|B))(?:\.([^.]+))?")
_KOHYA: Final = re.compile(r"(.+)\.((?:lora_|lora\.|lora_linear_layer\.)(down|up))\.weight")
_PROCESSOR: Final = re.compile(r"(.+)\.(to_\w+|add_\w+)(_lora\.(down|up))\.weight")
_LYCORIS: Final = re.compile(r"(.+)\.((hada|lokr)_(w[12](?:_[ab])?))(?:\.([^.]+))?")
_ALPHA: Final = re.compile(r"(.+?)(?:_lora|\.lora|\.lora_linear_layer)?\.alpha")
_OF_TEXT: Final = {"to_q": "q_proj", "to_k": "k_proj", "to_v": "v_proj", "to_out": "out_proj"}
"""The layers of text encoders, by the names that diffusers' processors gave to their factors."""

_ANY: Final = re.compile(
    r"(?:^|\.)(?:lora_(?:A|B|a|b|E|down|up|mid|embedding_[AB]|magnitude_vector|linear_layer)(?:\.|$)"
    r"|hada_[wt]|lokr_[wt]|dora_scale|boft_[RrSs]|oft_(?:blocks|diag|[RrSs]$|[RrSs]\.)|ia3_l"
    r"|vera_lambda_|hra_u|fourierft_|randlora_|vblora_|gralora_|delora_|tinylora_|waveft_)"
    r"|[._]lora\d?\.(?:down|up)\."
    r"|^(?:module\.)?(?:lora_(?:unet|transformer|prior|te[123]?)|lycoris)_|^lora_controlnet$"
)
"""What is in the name of a tensor of an adapter, and of no tensor of a model."""

_OTHERS: Final = {
    "lora_magnitude_vector": "it is of DoRA (use_dora), whose differences are not BA",
    "dora_scale": "it is of DoRA, whose differences are not BA",
    ".lora_B.": "the factors have biases (lora_bias)",
    ".modules_to_save.": "it is of a module that was trained whole (modules_to_save)",
    "lora_mid": "it is a core of a Tucker decomposition (LoCon with use_tucker or use_cp)",
    "hada_t": "it is a core of a Tucker decomposition (LoHa with use_tucker, use_effective_conv2d)",
    "lokr_t": "it is a core of a Tucker decomposition (LoKr with use_tucker, use_effective_conv2d)",
    "oft_": "it is of OFT, which multiplies the base's weights",
    "ia3_l": "it is of IA3, which multiplies the base's weights",
    "lora_controlnet": "it is a Control-LoRA, whose factors lie beside whole tensors",
    ".base_layer.": "it is a tensor of the base, a copy of which PEFT saves with embeddings "
    "(save_embedding_layers=False leaves it out)",
    ".lora_a": "it is a factor as mlx-lm names it, which has no configuration of PEFT",
    ".lora_b": "it is a factor as mlx-lm names it, which has no configuration of PEFT",
    "_lora1.": "it is a factor as XLabs names it, of layers that are fused",
    "_lora2.": "it is a factor as XLabs names it, of layers that are fused",
    ".on_input": "it is of IA3, which multiplies the base's weights",
    ".a1.": "it is a factor of GLoRA, which multiplies the base's weights",
    ".b1.": "it is a factor of GLoRA, which multiplies the base's weights",
    ".diff": "it is a difference of a whole tensor, as LyCORIS saves it",
}
"""What tensors that are no factors are, by a part of their names."""


@dataclass(frozen=True, slots=True)
class PartName:
    """The parts of the name of a factor, or of an alpha.

    Attributes:
        module: the module.
        role: ``"A"`` or ``"B"``, ``"w1"``, ``"w1_a"`` and so on, or ``"alpha"``.
        word: the role as the file names it, such as ``"lora_down"``.
        algorithm: what it is a factor of; None for an alpha.
        embedding: whether it is of an embedding.
        adapter: the name of the adapter, which PEFT leaves out of files.
        configured: whether PEFT names factors so, and says their scale in a configuration.
    """

    module: Module
    role: str
    word: str
    algorithm: Algorithm | None
    embedding: bool = False
    adapter: str | None = None
    configured: bool = False


def part_of(name: str) -> PartName | None:
    """Read the name of a tensor as that of a factor or an alpha; None if it is neither.

    Args:
        name: as a file has it, or as a model of PEFT, with the adapter's name in it.
    """
    for expression, embedding in ((_PEFT, False), (_EMBEDDING, True)):
        if found := expression.fullmatch(name):
            spelled, word, side, adapter = found.groups()
            return PartName(module_of(spelled), side, word, "LoRA", embedding, adapter, True)
    if found := _KOHYA.fullmatch(name):
        spelled, word, side = found.groups()
        return PartName(module_of(_without_processor(spelled)), _SIDES[side], word, "LoRA")
    if found := _PROCESSOR.fullmatch(name):
        outer, layer, word, side = found.groups()
        return PartName(_layer_of_processor(outer, layer), _SIDES[side], word, "LoRA")
    if found := _LYCORIS.fullmatch(name):
        spelled, word, kind, role, adapter = found.groups()
        algorithm: Algorithm = "LoHa" if kind == "hada" else "LoKr"
        return PartName(module_of(spelled), role, word, algorithm, False, adapter, True)
    if found := _ALPHA.fullmatch(name):
        outer, _, layer = found[1].rpartition(".")
        if name.endswith("_lora.alpha") and outer:
            return PartName(_layer_of_processor(outer, layer), ALPHA, ALPHA, None)
        return PartName(module_of(_without_processor(found[1])), ALPHA, ALPHA, None)
    return None


def is_of_adapter(name: str) -> bool:
    """Whether a tensor is of an adapter, read here or not, by its name."""
    return _ANY.search(name) is not None


def has_factors(names: Iterable[str]) -> bool:
    """Whether a tensor among these is of an adapter."""
    return any(map(is_of_adapter, names))


def reason_against(name: str) -> str | None:
    """What a tensor is that is not read as a factor; None if its name does not tell."""
    if name.endswith((".lora_A", ".lora_B")):
        return "it is a factor as loralib names it, whose scale no file says"
    return next((why for part, why in _OTHERS.items() if part in name), None)


def _without_processor(spelled: str) -> str:
    return spelled.replace(".processor.", ".")


def _layer_of_processor(outer: str, layer: str) -> Module:
    """The layer that a factor of an attention's processor is of."""
    outer = _without_processor(f"{outer}.").removesuffix(".")
    if outer.endswith("self_attn"):
        return module_of(f"{outer}.{_OF_TEXT.get(layer, layer)}")
    return module_of(f"{outer}.{'to_out.0' if layer == 'to_out' else layer}")
