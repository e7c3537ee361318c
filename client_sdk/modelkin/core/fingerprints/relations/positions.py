"""The place of a tensor in its network, as far as its name tells: the stack, the layer, the kind.

``model.layers.3.mlp.experts.1.up_proj.weight`` is of the stack ``model.layers``, of its layer 3, of
the kind ``mlp.experts.up_proj``, and of expert 1. A name without a number has a kind alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

__all__ = ["Position", "position_of"]

_NUMBERED: Final = re.compile(r"(?i)(layers?|blocks?|blk|h|stages?)_?(\d{1,6})")
"""A layer whose number stands in one word with its name."""
_RECURRENT: Final = re.compile(r"(weight|bias)_(ih|hh|hr)_l(\d{1,6})(_reverse)?")
"""A layer of a recurrent network of torch."""
_EXPERTS: Final = re.compile(r"(?i)experts?")


@dataclass(frozen=True, order=True)
class Position:
    """Where a tensor stands.

    Attributes:
        stack: the name of what has the layers; empty without a layer.
        layer: its number there; None for tensors that are in no layer.
        kind: the rest of the name, without ``.weight`` at its end and the number of the expert.
        expert: the number of the expert; None for all others.
    """

    stack: str
    layer: int | None
    kind: str
    expert: int | None


@lru_cache(maxsize=1 << 16)
def position_of(name: str) -> Position:
    """The place that a name tells."""
    words = re.split(r"[./]", name)
    at, layer = _layer(words)
    if layer is None:
        return Position("", None, _kind(words), None)
    numbered = _NUMBERED.fullmatch(words[at])
    recurrent = _RECURRENT.fullmatch(words[at])
    stack, rest = words[:at], words[at + 1 :]
    if numbered:
        stack = [*stack, numbered[1]]
    elif recurrent:
        rest = ["_".join(recurrent.group(1, 2)) + (recurrent[4] or ""), *rest]
    expert = next(
        (i for i in range(1, len(rest)) if rest[i].isdecimal() and _EXPERTS.fullmatch(rest[i - 1])),
        None,
    )
    if expert is None:
        return Position(".".join(stack), layer, _kind(rest), None)
    kind = _kind(rest[:expert] + rest[expert + 1 :])
    return Position(".".join(stack), layer, kind, int(rest[expert]))


def _layer(words: list[str]) -> tuple[int, int | None]:
    """The first word with a number of a layer, and the number."""
    for at, word in enumerate(words):
        if _RECURRENT.fullmatch(word):  # a number behind it is that of a gate
            break
        if word.isdecimal() and len(word) <= 6 and at and not _EXPERTS.fullmatch(words[at - 1]):
            return at, int(word)
    for at, word in enumerate(words):
        if found := _NUMBERED.fullmatch(word):
            return at, int(found[2])
        if found := _RECURRENT.fullmatch(word):
            return at, int(found[3])
    return 0, None


def _kind(words: list[str]) -> str:
    """Those words as one; the last says nothing where it is what all matrices are called."""
    kept = words[:-1] if len(words) > 1 and words[-1] in ("weight", "kernel", "w") else words
    return ".".join(kept)
