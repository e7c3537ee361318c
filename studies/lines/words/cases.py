"""Derivatives as files: their bits a parameter, what is declared, and what may be said of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from studies.lines.derivatives import Derivative
from studies.lines.guises import noisy, rounded
from studies.lines.merges import linear
from studies.lines.rounding import ROUNDED, ZEROED, each_matrix
from studies.lines.trained import Trained
from studies.lines.zoo import Tensors

__all__ = ["Case", "cases"]

_FLOAT: Final = 16.0
_BITS: Final = {
    "Q8_0": 8.5,
    "Q6_K": 6.6,
    "Q5_0": 5.5,
    "Q4_K": 4.5,
    "Q4_0": 4.5,
    "Q3_K": 3.4,
    "Q2_K": 2.6,
    "int8": 8.1,
    "FP8": 8.0,
    "int4": 4.25,
    "nf4": 4.5,
}
"""The bits a parameter of formats, with the scales of their blocks."""
_RIGHT: Final = (
    ("same seed|same initial", "changed"),
    ("tokens more|of 2,048 tokens", "vocabulary_resized changed"),
    ("half of the tokens", "vocabulary_resized part"),
    ("new head", "head_changed changed"),
    ("deeper", "depth_up_scaled changed"),
    ("up-scaled", "depth_up_scaled"),
    ("fewer layers", "pruned changed"),
    ("hidden units|places of the stream", "pruned changed"),
    ("mixture of experts", "upcycled changed"),
    ("four equal experts", "upcycled"),
    ("one expert of four|^shard", "pruned part vocabulary_resized layout"),
    ("with the names and order of GGUF", "layout changed quantised quantised_copy"),
    ("transposed$|flipped signs|channels last|experts apart|gates in another order", "layout copy"),
    ("units of one layer", "layout changed"),
    ("fused and renamed|split|permuted", "layout"),
    ("folded", "layout changed"),
)
"""The words that may be said, by what the name of a derivative has. Of the others, those of few
bits are quantised, and the rest are changed. Both sides of a recurrent matrix have another order if
its units have one, so that its lines are changed."""
_PACKED: Final = ("Q8_0", "int8", "Q4_0")
"""The formats that trained weights are stored in."""
_SLIGHT: Final = ("float16", "noise of 0.001 sigma", "average of 0.9 of the base and the light")
"""Changes so small that a hundredth of the lines differ or fewer: by lines these are copies."""


@dataclass(frozen=True)
class Case:
    """A derivative as a file.

    Attributes:
        name: what was done.
        tensors: its weights.
        bits: a parameter of the file.
        right: all words that may be said of it beside its base, and do not leave it open.
        declared: what is declared that it is of its base.
    """

    name: str
    tensors: Tensors
    bits: float
    right: frozenset[str]
    declared: str | None = None


def cases(trained: Trained, made: Iterable[Derivative]) -> Iterator[Case]:
    """All derivatives of an architecture, and those that may be taken for others.

    Args:
        trained: its networks.
        made: what is made of them.
    """
    for each in made:
        bits = _bits(each.name)
        yield Case(each.name, each.tensors, bits, _right(each.name, bits))
        if each.name in ("LoRA", "fine-tune"):
            words = {"changed", "adapter_merged"} if each.name == "LoRA" else {"changed"}
            name = f"{each.name}, called an adapter"
            yield Case(name, each.tensors, _FLOAT, frozenset(words), "adapter")
    yield from _packed(trained)
    for name, tensors in _floats(trained):
        right = {"changed", "copy"} if name in _SLIGHT else {"changed"}
        yield Case(f"{name}, in 16 bits", tensors, _FLOAT, frozenset(right))
    yield from _in_half(trained)


def _right(name: str, bits: float) -> frozenset[str]:
    found = next((words for pattern, words in _RIGHT if re.search(pattern, name)), None)
    if found is not None:
        return frozenset(found.split())
    return frozenset({"quantised", "quantised_copy"} if bits < _FLOAT else {"changed"})


def _bits(name: str) -> float:
    """The bits of a format; what leaves the tables of tokens as they are has a format beside it."""
    packed = next((bits for format_, bits in _BITS.items() if name.startswith(format_)), _FLOAT)
    return _FLOAT if name.endswith("not of tokens") else packed


def _packed(trained: Trained) -> Iterator[Case]:
    """Trained weights in few bits: no copies of the base, whatever is left of its lines."""
    for child in _children(trained):
        for name in _PACKED:
            tensors = rounded(child.tensors, name).tensors
            yield Case(f"{child.name}, then {name}", tensors, _BITS[name], frozenset({"quantised"}))


def _floats(trained: Trained) -> Iterator[tuple[str, Tensors]]:
    """What is stored in as many bits as the base, and was trained, rounded, averaged or neither."""
    base, draw = trained.base(), np.random.default_rng(8)
    for name in ROUNDED:
        yield name, rounded(base, name).tensors
    yield "float16", each_matrix(base, lambda values: values.astype(np.float16))
    for child in _children(trained):
        yield f"{child.name}, then bfloat16", rounded(child.tensors, "bfloat16").tensors
        for share in (0.5, 0.9):
            merged = linear(base, child.tensors, share)
            yield f"average of {share} of the base and the {child.name}", merged
    yield "average of 0.9 of the base and a stranger", linear(base, trained.base(1), 0.9)
    for sigmas in (0.001, 0.05, 0.2):
        yield f"noise of {sigmas} sigma", noisy(base, sigmas, draw).tensors


def _in_half(trained: Trained) -> Iterator[Case]:
    """The last half of the layers changed, and the others of the base: trained, or not."""
    base, own = trained.base(), trained.architecture
    if own.depth < 2:
        return
    draw = np.random.default_rng(9)
    trainings = {child.name: child.tensors for child in _children(trained)}
    others = {
        "Q4_0": rounded(base, "Q4_0").tensors,
        "bfloat16": rounded(base, "bfloat16").tensors,
        "noise": noisy(base, 0.05, draw).tensors,
        "80% zeros": each_matrix(base, ZEROED["80% zeros"]),
        "an average with the fine-tune": linear(base, trainings["fine-tune"], 0.5),
    }
    for name, tensors in (trainings | others).items():
        right = {"changed", "fine_tuned"} if name in trainings else {"changed"}
        right |= {"copy"} if name == "bfloat16" else set()
        half = _last_half(base, tensors, own.layers, own.depth)
        yield Case(f"{name} in the last half", half, _FLOAT, frozenset(right))


def _last_half(base: Tensors, changed: Tensors, layers: str, depth: int) -> Tensors:
    tensors = dict(base)
    for name in base:
        found = re.search(layers, name)
        if found is not None and int(found[1]) >= depth // 2:
            tensors[name] = changed[name]
    return tensors


def _children(trained: Trained) -> list[Derivative]:
    """The light and the usual fine-tune."""
    return [each for each in trained.children() if each.name in ("light", "fine-tune")]
