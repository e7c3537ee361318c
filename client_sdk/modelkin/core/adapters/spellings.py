"""The names of the modules that adapters target, whichever trainer wrote them.

kohya's trainers write ``lora_unet_down_blocks_0_attentions_0_...``, without dots. Where all words
of such a name are known, those of UNets and text encoders, it gets the dots back that it has in
diffusers. Blocks of UNets that are numbered as in Stable Diffusion's own code get diffusers'
numbers. All other names that lost their dots stay without.

Source: diffusers, ``loaders/lora_conversion_utils.py``, for the numbers of blocks and the prefixes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from modelkin.core.matching.names import WRAPPERS

__all__ = ["Module", "component_of", "component_of_blocks", "flat_name", "module_of"]

_PEFT: Final = "base_model.model."
_OUTER: Final = re.compile(r"(?:module\.|base_model\.model\.)+")
"""What DataParallel and PEFT put before names."""

_COMPONENTS: Final = {
    **{f"{name}.": name for name in ("unet", "prior")},
    **{f"{name}.": name for name in ("transformer", "transformer_2", "transformer_ref")},
    **{f"{name}.": name for name in ("text_encoder", "text_encoder_2", "text_encoder_3")},
    "model.diffusion_model.": "unet",
    "diffusion_model.": "unet",
    "text_encoders.clip_l.transformer.": "text_encoder",
    "text_encoders.clip_g.transformer.": "text_encoder_2",
}
"""The components of pipelines, by what stands before the names of their modules."""
_FLAT_COMPONENTS: Final = {
    "lora_unet_": "unet",
    "lora_transformer_": "transformer",
    "lora_prior_": "prior",
    "lora_te_": "text_encoder",
    "lora_te1_": "text_encoder",
    "lora_te2_": "text_encoder_2",
    "lora_te3_": "text_encoder_3",
}
"""The same of names without dots."""
_NATIVE: Final = ("model.diffusion_model.", "diffusion_model.")
"""What stands before the names that a model has in its authors' code."""
_BLOCKS: Final = {
    **{f"{name}.": "unet" for name in ("down_blocks", "mid_block", "up_blocks")},
    **{f"{name}.": "transformer" for name in ("transformer_blocks", "single_transformer_blocks")},
}
"""How the blocks of diffusers' UNets and transformers begin, where nothing stands before them."""
_OF_LYCORIS: Final = "lycoris_"
"""What LyCORIS puts before names without dots, whichever network it trains."""

_OF_CLIP: Final = "text_model."
"""What the names of CLIP's text encoders begin with, except in version 5 of transformers."""

_NO_COMPONENT: Final = "transformer.h."
"""How the blocks of GPT-2 and its like begin."""

_WORDS: Final = frozenset(
    {
        # of UNets and transformers of diffusers
        *("down_blocks", "up_blocks", "mid_block", "transformer_blocks"),
        *("single_transformer_blocks", "attentions", "resnets", "downsamplers", "upsamplers"),
        *("attn", "attn1", "attn2", "to_q", "to_k", "to_v", "to_out", "to_add_out"),
        *("add_q_proj", "add_k_proj", "add_v_proj", "proj_in", "proj_out", "proj_mlp", "ff"),
        *("ff_context", "net", "proj", "conv", "conv1", "conv2", "conv_in", "conv_out"),
        *("conv_shortcut", "time_emb_proj", "time_embedding", "add_embedding", "linear"),
        *("linear_1", "linear_2", "norm", "norm1", "norm2", "norm1_context", "norm_out"),
        *("context_embedder", "x_embedder", "time_text_embed", "timestep_embedder"),
        *("guidance_embedder", "text_embedder"),
        # of UNets in Stable Diffusion's own code
        *("input_blocks", "middle_block", "output_blocks", "in_layers", "out_layers"),
        *("emb_layers", "skip_connection", "op", "time_embed", "label_emb", "out"),
        # of text encoders, CLIP and T5
        *("text_model", "encoder", "layers", "self_attn", "q_proj", "k_proj", "v_proj"),
        *("out_proj", "mlp", "fc1", "fc2", "embeddings", "token_embedding"),
        *("position_embedding", "text_projection", "block", "layer", "SelfAttention"),
        *("DenseReluDense", "q", "k", "v", "o", "wi", "wo", "wi_0", "wi_1"),
    }
)
"""The parts of module names, of which some have underscores of their own."""
_LONGEST: Final = max(word.count("_") + 1 for word in _WORDS)

_LAYERS_A_BLOCK: Final = 3
"""Two layers and what follows them, in all UNets that Stable Diffusion was released with."""
_RESNET: Final = {
    "in_layers.0": "norm1",
    "in_layers.2": "conv1",
    "emb_layers.1": "time_emb_proj",
    "out_layers.0": "norm2",
    "out_layers.3": "conv2",
    "skip_connection": "conv_shortcut",
}
_SINGLE: Final = {
    "input_blocks.0.0": "conv_in",
    "time_embed.0": "time_embedding.linear_1",
    "time_embed.2": "time_embedding.linear_2",
    "label_emb.0.0": "add_embedding.linear_1",
    "label_emb.0.2": "add_embedding.linear_2",
    "out.2": "conv_out",
}
_MIDDLE: Final = {"0": "resnets.0", "1": "attentions.0", "2": "resnets.1"}
_NUMBERED: Final = re.compile(r"(input_blocks|output_blocks)\.(\d{1,3})\.([012])\.(.+)")
_IN_THE_MIDDLE: Final = re.compile(r"middle_block\.([012])\.(.+)")


class Module(NamedTuple):
    """A module that an adapter targets.

    Attributes:
        name: its name in the base, behind the component of a pipeline if the file tells one.
        component: that component; None where PEFT has saved the adapter of one model.
        inner: its name within the component, as the file has it.
    """

    name: str
    component: str | None
    inner: str

    def within(self, component: str | None) -> Module:
        """The module by its name in a pipeline, of this component if its name tells none."""
        if component is None or component_of(self.name) is not None:
            return self
        return self._replace(name=f"{component}.{self.name}")


def module_of(spelled: str) -> Module:
    """The module of this name in a file, without the name of the factor behind it."""
    bare = _without_wrappers(spelled)
    outer = _OUTER.match(bare)
    name = bare[outer.end() :] if outer else bare
    of_peft = outer is not None and _PEFT in outer[0]
    if name.startswith(_OF_LYCORIS) and "." not in name:
        rest = name.removeprefix(_OF_LYCORIS)
        name = _with_dots(rest) or rest
    flat = next((p for p in _FLAT_COMPONENTS if name.startswith(p) and "." not in name), None)
    if flat is not None:
        component, rest = _FLAT_COMPONENTS[flat], name.removeprefix(flat)
        return Module(_in_pipeline(component, _with_dots(rest) or rest), component, rest)
    if block := _component_of_block(name):
        return Module(f"{block}.{name}", None if of_peft else block, name)
    prefix = next((p for p in _COMPONENTS if name.startswith(p)), None)
    if prefix is None or name.startswith(_NO_COMPONENT):
        return Module(name, None, name)
    component, rest = _COMPONENTS[prefix], name.removeprefix(prefix)
    if of_peft:
        return Module(_in_pipeline(component, rest), None, name)
    inner = rest
    if prefix in _NATIVE:  # kohya's names of the same modules have no dots
        rest = rest if _with_dots(flat_name(rest)) == rest else flat_name(rest)
    return Module(_in_pipeline(component, rest), component, inner)


def component_of_blocks(modules: Iterable[Module]) -> str | None:
    """The component whose blocks are among these modules; None for none, or for several.

    Modules whose names tell no component, such as ``proj_out``, are of this one, too.
    """
    found = {_component_of_block(module.inner) for module in modules} - {None}
    return found.pop() if len(found) == 1 else None


def component_of(name: str) -> str | None:
    """The component of a pipeline that the name of a module in the base begins with."""
    first, dot, _ = name.partition(".")
    return first if dot and f"{first}." in _COMPONENTS else None


def flat_name(name: str) -> str:
    """A name without its dots, in which all spellings of a module agree."""
    return name.replace(".", "_")


def _component_of_block(name: str) -> str | None:
    """The component that a name begins a block of, without a prefix."""
    return next((_BLOCKS[begin] for begin in _BLOCKS if name.startswith(begin)), None)


def _in_pipeline(component: str, name: str) -> str:
    """A module of a component by the name that all spellings share."""
    if component.startswith("text_encoder"):
        return f"{component}.{name.removeprefix(_OF_CLIP)}"
    return f"{component}.{_as_in_diffusers(name)}"


def _without_wrappers(name: str) -> str:
    for wrapper in WRAPPERS:
        name = name.replace(wrapper, "")
    return name.replace("__orig_mod_", "_")  # as kohya's trainers write that of torch.compile


def _with_dots(flat: str) -> str | None:
    """A name with its dots, the longest known words first; None if a word is not known."""
    pieces, words, at = flat.split("_"), [], 0
    while at < len(pieces):
        for end in range(min(at + _LONGEST, len(pieces)), at, -1):
            word = "_".join(pieces[at:end])
            if word in _WORDS or word.isdecimal():
                break
        else:
            return None
        words.append(word)
        at = end
    return ".".join(words)


def _as_in_diffusers(name: str) -> str:
    """A module of a UNet with the number that its block has in diffusers."""
    if name in _SINGLE:
        return _SINGLE[name]
    if found := _IN_THE_MIDDLE.fullmatch(name):
        return f"mid_block.{_MIDDLE[found[1]]}.{_RESNET.get(found[2], found[2])}"
    if found := _NUMBERED.fullmatch(name):
        return _RENUMBERED[found[1]](int(found[2]), found[3], found[4])
    return name


def _down(number: int, inner: str, rest: str) -> str:
    block, layer = divmod(number - 1, _LAYERS_A_BLOCK)
    if rest == "op":
        return f"down_blocks.{block}.downsamplers.0.conv"
    kind = "resnets" if inner == "0" else "attentions"
    return f"down_blocks.{block}.{kind}.{layer}.{_RESNET.get(rest, rest)}"


def _up(number: int, inner: str, rest: str) -> str:
    block, layer = divmod(number, _LAYERS_A_BLOCK)
    if rest == "conv":
        return f"up_blocks.{block}.upsamplers.0.conv"
    kind = "resnets" if inner == "0" else "attentions"
    return f"up_blocks.{block}.{kind}.{layer}.{_RESNET.get(rest, rest)}"


_RENUMBERED: Final[dict[str, Callable[[int, str, str], str]]] = {
    "input_blocks": _down,
    "output_blocks": _up,
}
