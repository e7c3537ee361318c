"""Embeddings of textual inversion, which are words for a text encoder and no model.

Source: Gal et al., An Image is Worth One Word (2022). They are saved alone: by diffusers under the
word itself, by other programs under ``emb_params``, or under the names of two text encoders.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from modelkin.checkpoints.header import bad_checkpoint
from modelkin.checkpoints.tensors import StoredTensor
from modelkin.core.quoting import quote

__all__ = ["refuse_embedding"]

_NAMES: Final = re.compile(r"emb_params|clip_[lg]|<[^<>]*>|\*")
_FILE: Final = "learned_embeds"
"""How diffusers' files of embeddings begin."""
_WIDTHS: Final = frozenset({768, 1024, 1280, 4096})
"""The widths of the text encoders of Stable Diffusion and its successors."""
_MAX_ROWS: Final = 77
"""The words that such an encoder reads."""


def refuse_embedding(source: Path, named: Mapping[str, StoredTensor]) -> None:
    """Refuse a file that holds an embedding of textual inversion and nothing else.

    Raises:
        InvalidCheckpoint: it does, by the names and shapes of its tensors.
    """
    if not named or not all(map(_is_of_words, named.values())):
        return
    plain = len(named) == 1 and all("." not in name for name in named)
    told = source.name.startswith(_FILE) or all(map(_NAMES.fullmatch, named))
    if told or (plain and next(iter(named.values())).shape[-1] in _WIDTHS):
        raise bad_checkpoint(
            source.name,
            f"it holds {quote(next(iter(named)))} alone, an embedding of textual inversion: a word "
            f"for a text encoder, and no model or adapter that could be compared",
        )


def _is_of_words(tensor: StoredTensor) -> bool:
    """Whether a tensor is a few vectors."""
    if len(tensor.shape) == 1:
        return tensor.size > 0
    return len(tensor.shape) == 2 and 0 < tensor.shape[0] <= _MAX_ROWS and tensor.shape[1] > 1
