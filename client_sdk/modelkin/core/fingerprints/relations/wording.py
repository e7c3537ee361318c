"""Words for layers, tensors and shares in sentences about a checkpoint."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Final

from modelkin._terminal_text import one_line
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.fingerprints.labels import ranges
from modelkin.core.fingerprints.relations.layer_maps import Layer, layers_of
from modelkin.core.fingerprints.relations.positions import position_of

__all__ = ["counted", "listed", "percent", "plain", "runs_in_words", "tensors_in_words"]

_MAX_LENGTH: Final = 80
_NAMED: Final = 6
"""Names that a sentence has at most."""


def plain(name: str) -> str:
    """A name of a stranger, in printable letters of any script and not long.

    What is not seen, as a mark that turns the direction of text, is escaped.
    """
    cut = name if len(name) <= _MAX_LENGTH else f"{name[: _MAX_LENGTH - 3]}..."
    return one_line(cut)


def percent(share: float) -> str:
    """A share, rounded as tables round it, but 100% is all alone."""
    if share < 0.01:
        return "less than 1%"
    return f"{100 if share > 1 - 1e-9 else min(round(100 * share), 99)}%"


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
    """Tensors by whole layers, by kinds in the same layers, and by name."""
    chosen, tensors = set(numbers), fingerprint.tensors
    layers = defaultdict[Layer, set[int]](set)
    for number, tensor in enumerate(tensors):
        for layer in layers_of(tensor) if tensor.lines else ():
            layers[layer].add(number)
    stacks = list(dict.fromkeys(stack for stack, _ in layers))
    several = len(stacks) > 1
    whole = {layer for layer, members in layers.items() if members <= chosen}
    parts = [
        f"{_layers([n for of, n in whole if of == stack])}{_of(stack, several)}"
        for stack in stacks
        if any(of == stack for of, _ in whole)
    ]
    for (stack, numbers_of_layers), kinds in _kinds(fingerprint, chosen, whole).items():
        is_every = {(stack, n) for n in numbers_of_layers} >= {x for x in layers if x[0] == stack}
        where = "every layer" if is_every else _layers(numbers_of_layers)
        parts.append(f"{listed(kinds)} of {where}{_of(stack, several)}")
    parts += [plain(tensors[n].name) for n in sorted(chosen) if not layers_of(tensors[n])]
    return listed(parts)


def _kinds(
    fingerprint: Fingerprint, chosen: Collection[int], whole: Collection[Layer]
) -> dict[tuple[str, tuple[int, ...]], list[str]]:
    """The kinds that some layers have among chosen tensors, by their stack and these layers."""
    found = defaultdict[tuple[str, str], set[int]](set)
    for number in sorted(chosen):
        tensor = fingerprint.tensors[number]
        for stack, layer in layers_of(tensor):
            if (stack, layer) not in whole:
                found[stack, position_of(tensor.name).kind].add(layer)
    kinds = defaultdict[tuple[str, tuple[int, ...]], list[str]](list)
    for (stack, kind), layers in found.items():
        kinds[stack, tuple(sorted(layers))].append(plain(kind))
    return kinds


def _layers(numbers: Sequence[int]) -> str:
    return f"{'layer' if len(numbers) == 1 else 'layers'} {ranges(numbers)}"


def _of(stack: str, several: bool) -> str:
    return f" of {plain(stack)}" if several else ""
