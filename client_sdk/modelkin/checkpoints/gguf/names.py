"""The names of Hugging Face's files for the tensors of a GGUF file, by the package's tables."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

from modelkin.checkpoints.gguf.architectures import ARCHITECTURES, USUAL, Architecture
from modelkin.checkpoints.gguf.types import load_gguf

__all__ = ["EXPERT", "forms", "hf_name"]

EXPERT: Final = "{expert}"
"""The place of an expert's number in the names of stacked ones."""

_BLOCK: Final = re.compile(r"(.*\bblk\.)([0-9]{1,9})(\..*)")
_SUFFIX: Final = re.compile(r"(.+?)(\.weight|\.bias|\.scale)?")
_JOINED: Final = {"e_score_correction.bias": "e_score_correction_bias"}
"""Names that the converters take apart before they look them up."""


def hf_name(name: str, architecture: str) -> str | None:
    """The name of a tensor in Hugging Face's files; None if the tables have none.

    Args:
        name: GGUF's name, such as ``blk.3.attn_q.weight``.
        architecture: as ``general.architecture`` states it.

    Returns:
        The name, with :data:`EXPERT` for the number of an expert where experts are stacked.
    """
    known = ARCHITECTURES.get(architecture)
    if known is None or name.endswith(known.left):
        return None
    found = _SUFFIX.fullmatch(name)
    block = _BLOCK.fullmatch(name)
    if found is None:
        return None
    stem, suffix = found[1], found[2] or ""
    if block is not None:
        stem = f"{block[1]}{{bid}}{block[3]}".removesuffix(suffix)
    template = _templates(architecture).get(stem)
    if template is None:
        return None
    full = template + suffix
    for apart, joined in _JOINED.items():
        full = full.removesuffix(apart) + joined if full.endswith(apart) else full
    full = full.replace(".experts.", f".experts.{EXPERT}.")
    return full if block is None else full.replace("{bid}", block[2])


@cache
def forms() -> dict[str, dict[str, Any]]:
    """What is known of each architecture, as JSON, for readers in other languages.

    Each has ``names``, by GGUF's and without suffixes, and the fields of :class:`Architecture` that
    say how values are put back: ``rotary``, ``grouped``, ``shifted``, ``transposed``, ``left``.

    Raises:
        MissingExtra: the package ``gguf`` is not installed.
    """
    return {
        name: {
            "names": _templates(name),
            "rotary": known.rotary,
            "grouped": known.grouped,
            "shifted": list(known.shifted),
            "transposed": list(known.transposed),
            "left": list(known.left),
        }
        for name, known in ARCHITECTURES.items()
    }


@cache
def _templates(architecture: str) -> dict[str, str]:
    """The names of an architecture by GGUF's, without suffixes, with ``{bid}`` for a block."""
    package = load_gguf()
    kinds = {name: kind for kind, name in package.MODEL_ARCH_NAMES.items()}
    kind = kinds.get(architecture)
    if kind is None:
        return {}
    tables = package.TensorNameMap
    listed = {
        **tables.mappings_cfg,
        **tables.block_mappings_cfg,
        **tables.arch_block_mappings_cfg.get(kind, {}),
    }
    found: dict[str, list[str]] = {}
    for tensor in package.MODEL_TENSORS[kind]:
        found.setdefault(package.TENSOR_NAMES[tensor], []).extend(listed.get(tensor, ()))
    chosen = {name: _choose(names, ARCHITECTURES[architecture]) for name, names in found.items()}
    return {name: one for name, one in chosen.items() if one is not None}


def _choose(names: list[str], architecture: Architecture) -> str | None:
    """The name that is the architecture's own among those of all models."""
    own = [name for name in names if name.startswith(architecture.roots)]
    for ending in (*architecture.endings, *USUAL):
        for name in own:
            if name.endswith(ending):
                return name
    return own[0] if own else None
