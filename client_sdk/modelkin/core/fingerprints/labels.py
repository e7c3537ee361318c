"""Labels of tensors for people: ``layers 0-31 self_attn.q_proj`` for those of 32 layers.

``model.layers.3.self_attn.q_proj.weight`` is of the kind ``model.layers.*.self_attn.q_proj.weight``
and has the number 3. No verdict depends on a label; what relations read off names is in
``relations.positions``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

__all__ = ["Kind", "NumberedName", "label", "ranges", "short_kinds"]

Kind: TypeAlias = tuple[str, ...]
"""The parts of a name around its numbers."""

_NUMBER: Final = re.compile(r"(?<![^\W_])([0-9]{1,9})(?![^\W_])")
"""Digits that touch no letter and no other digit."""
_SEPARATORS: Final = "._/"
_USUAL: Final = ".weight"
"""An ending that says nothing, since most names have it."""


@dataclass(frozen=True)
class NumberedName:
    """A name as its numbers, and what stands around them.

    Attributes:
        kind: the parts around the numbers, one more than these.
        numbers: the first is mostly that of a layer, others of experts or blocks.
    """

    kind: Kind
    numbers: tuple[int, ...]

    @classmethod
    def of(cls, name: str) -> NumberedName:
        """The parts of a name."""
        parts = _NUMBER.split(name)
        return cls(tuple(parts[::2]), tuple(map(int, parts[1::2])))


def short_kinds(kinds: Iterable[Kind]) -> Mapping[Kind, Kind]:
    """Each kind without the words that tell it from no other one: for labels.

    Of the words before the first number the last one is left, and ``.weight`` goes.
    """
    distinct = list(dict.fromkeys(kinds))
    shortened = {kind: _shortened(kind) for kind in distinct}
    counts = Counter(shortened.values())
    return {kind: kind if counts[short] > 1 else short for kind, short in shortened.items()}


def _shortened(kind: Kind) -> Kind:
    first, *rest = kind
    if rest:
        last = rest[-1].removesuffix(_USUAL)
        word = first.rstrip(_SEPARATORS)
        first = word.rpartition(".")[2] + first[len(word) :]
        return (first, *rest[:-1], last if last or first else rest[-1])
    return (first.removesuffix(_USUAL),)


def label(kind: Kind, numbers: Sequence[Iterable[int]]) -> str:
    """A name for the tensors of a kind: ``layers 0-31 self_attn.q_proj``.

    A single tensor has the end of its own name.

    Args:
        kind: a whole one, or a short one.
        numbers: at each of its places the numbers that the tensors have.
    """
    each = [sorted(set(found)) for found in numbers]
    if all(len(found) == 1 for found in each):
        parts = zip(each, kind[1:], strict=True)
        return kind[0] + "".join(f"{number}{part}" for [number], part in parts)
    words = [kind[0].strip(_SEPARATORS)]
    for found, part in zip(each, kind[1:], strict=True):
        words += [ranges(found), part.strip(_SEPARATORS)]
    return " ".join(filter(None, words))


def ranges(numbers: Iterable[int]) -> str:
    """Numbers in as few words as there are gaps: ``0-3, 7``."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)
