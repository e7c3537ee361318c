"""Words for layers, tensors and shares in sentences about a checkpoint."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Final

from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.fingerprints.places import ranges
from modelkin.core.fingerprints.relations.layer_maps import Layer, layers_of
from modelkin.core.fingerprints.relations.positions import position_of
from modelkin.core.quoting import quote

__all__ = ["counted", "listed", "percent", "plain", "runs_in_words", "tensors_in_words"]

_NAMED: Final = 6
"""Names that a sentence has at most."""


def plain(name: str) -> str:
    """A name of a stranger, in printable ASCII and not long."""
    return quote(name)[1:-1]


def percent(share: float) -> str:
    """A share, rounded down, so that 100% is all."""
    return "less than 1%" if share < 0.01 else f"{int(100 * share + 1e-9)}%"


def counted(count: int, noun: str) -> str:
    """A number with its noun, in the plural where it is not one."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def listed(parts: Sequence[str]) -> str:
    """Parts with commas; of many, the first, and how many more there are."""
    more = len(parts) - _NAMED
    return ", ".join(parts[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def runs_in_words(runs: Sequence[Sequence[Layer]], several: bool = False) -> str:
    """Layers that follow each other, as ``0-3 and 2-5``; of which stack where there are several."""
    words = [
        (str(run[0][1]) if len(run) == 1 else f"{run[0][1]}-{run[-1][1]}") + _of(run[0][0], several)
        for run in runs
    ]
    return " and ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)


def tensors_in_words(fingerprint: Fingerprint, numbers: Collection[int]) -> str:
    """Tensors by whole layers, by kinds of layers, and by name."""
    compared = [number for number, each in enumerate(fingerprint.tensors) if each.lines]
    layers, kinds = defaultdict[Layer, set[int]](set), defaultdict[tuple[str, str], set[int]](set)
    for number in compared:
        for layer in layers_of(fingerprint.tensors[number]):
            layers[layer].add(number)
            kinds[layer[0], position_of(fingerprint.tensors[number].name).kind].add(number)
    several = len({stack for stack, _ in layers}) > 1
    whole = {layer for layer, members in layers.items() if members <= set(numbers)}
    parts = [
        f"{'layer' if len(found) == 1 else 'layers'} {ranges(found)}{_of(stack, several)}"
        for stack in dict.fromkeys(stack for stack, _ in layers)
        if (found := [number for of, number in whole if of == stack])
    ]
    left = [
        number
        for number in numbers
        if not (places := layers_of(fingerprint.tensors[number])) or places - whole
    ]
    named = set[int]()
    for (stack, kind), members in kinds.items():
        inside = members & set(left)
        if len(members) > 1 and inside == members:
            parts.append(f"{plain(kind)} of every layer{_of(stack, several)}")
            named |= inside
    parts += [plain(fingerprint.tensors[n].name) for n in sorted(left) if n not in named]
    return listed(parts)


def _of(stack: str, several: bool) -> str:
    return f" of {plain(stack)}" if several else ""
