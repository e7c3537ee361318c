"""``python -m studies lines``: train small networks, and find what was made of them by its lines.

Exit status: 0 where each gate is met, 1 where one is missed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import torch

from studies.cells import FOLDER, Figures
from studies.lines.cells.hiding import hiding_figures
from studies.lines.cells.rotations import rotation_figures
from studies.lines.cells.savings import savings_figures
from studies.lines.cells.wide import wide_figures
from studies.lines.comparing import fingerprints_of, found, meeting, of_strangers
from studies.lines.derivatives import Derivative
from studies.lines.gates import gates_of_lines
from studies.lines.guises import simple
from studies.lines.hub import hub_figures
from studies.lines.layouts import layouts
from studies.lines.llama import guises, rounded_as_published
from studies.lines.merges import merge_figures
from studies.lines.networks.architecture import Architecture
from studies.lines.networks.catalogue import ARCHITECTURES
from studies.lines.networks.texts import LLAMA
from studies.lines.results import (
    HIDING,
    HUB,
    MERGES,
    ONE_SEED,
    ROTATIONS,
    SAVINGS,
    STRANGERS,
    WIDE,
    WORDS,
    held,
    is_held,
    keep,
)
from studies.lines.trained import Trained
from studies.lines.upcycled import upcycled
from studies.lines.words.answers import word_figures
from studies.lines.zoo import CACHE, Zoo
from studies.processes import shared

__all__ = ["NAMES", "figures_of", "measure"]

_SCALE_OF_STRANGERS: Final = 8


def measure(
    names: Sequence[str] = (), folder: Path = FOLDER, cache: Path = CACHE, processes: int = 1
) -> int:
    """Make the cells that there are not, and print all gates.

    Args:
        names: of the cells; none for all.
        folder: for cells.
        cache: for trained weights.
        processes: how many make cells.

    Returns:
        The exit status.
    """
    left = [name for name in names or NAMES if not is_held(name, folder)]
    make = partial(_make, folder=folder, cache=cache)
    for group in (_OF_ONE, _OF_ALL):  # the first train what the others read
        for line in shared(make, [name for name in left if name in group], processes):
            print(line, flush=True)
    gates = gates_of_lines(held(NAMES, folder))
    for gate in gates:
        print(gate)
    return 0 if all(gate.met for gate in gates) else 1


def _make(name: str, folder: Path, cache: Path) -> str:
    torch.set_num_threads(1)  # so sums have one order, and figures are the same again
    began = time.process_time()
    keep(name, _MAKERS[name](Zoo(cache)), folder)
    return f"lines, {name}: {time.process_time() - began:.0f} s"


def figures_of(trained: Trained) -> Figures:
    """The figures of one architecture: each derivative, and a stranger beside chance."""
    own, other = (fingerprints_of(trained.base(seed)) for seed in (0, 1))
    figures: Figures = {}
    for each in _derivatives(trained):
        figures[each.name] = found(each, own, {"stranger": other})
    if trained.architecture is LLAMA:
        begun = fingerprints_of(trained.initial())
        same = trained.same_weights()
        figures[same.name] = found(same, begun, {"stranger": other})
    keys, expected = meeting(own.whole, other.whole)
    figures["stranger"] = {"keys": keys, "lambda": expected, "of": own.whole.distinct.size}
    return figures


def _derivatives(trained: Trained) -> Iterator[Derivative]:
    base, architecture = trained.base(), trained.architecture
    yield from trained.children()
    if architecture is LLAMA:
        yield from upcycled(trained)
    else:
        yield trained.same_seed()
    yield from simple(base, architecture)
    if architecture is LLAMA:
        yield from guises(base, 0)
        yield from rounded_as_published(base)
    yield from layouts(base, architecture)


def _strangers(zoo: Zoo) -> Figures:
    """Every two networks of two seeds, and of one seed and two architectures: these are no kin by
    training, and begin with equal values where their first layers are alike.
    """
    models = {
        (name, f"seed {seed}"): fingerprints_of(Trained(architecture, zoo).base(seed)).whole
        for name, architecture in ARCHITECTURES.items()
        for seed in (0, 1)
    }
    of_seeds = [(seed, whole) for (_, seed), whole in models.items()]
    coarse = [(seed, whole.at(_SCALE_OF_STRANGERS)) for seed, whole in of_seeds]
    of_one = [(name, whole) for (name, seed), whole in models.items() if seed == "seed 0"]
    return {
        "two seeds, all keys": of_strangers(of_seeds),
        "two seeds, one key in 8": of_strangers(coarse),
        ONE_SEED: of_strangers(of_one),
    }


def _of(architecture: Architecture) -> Callable[[Zoo], Figures]:
    return lambda zoo: figures_of(Trained(architecture, zoo))


_OF_ONE: Final[dict[str, Callable[[Zoo], Figures]]] = {
    name: _of(architecture) for name, architecture in ARCHITECTURES.items()
}
_OF_ALL: Final[dict[str, Callable[[Zoo], Figures]]] = {
    HUB: lambda zoo: hub_figures(Trained(LLAMA, zoo)),
    MERGES: lambda zoo: merge_figures(Trained(LLAMA, zoo)),
    STRANGERS: _strangers,
    WIDE: lambda _: wide_figures(),
    ROTATIONS: rotation_figures,
    SAVINGS: savings_figures,
    HIDING: hiding_figures,
    WORDS: lambda zoo: word_figures(zoo, _derivatives),
}
_MAKERS: Final = _OF_ONE | _OF_ALL
NAMES: Final = tuple(_MAKERS)
"""The names of all cells."""
