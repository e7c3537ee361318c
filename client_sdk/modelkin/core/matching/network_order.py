"""``NetworkOrder``: the order in which people read the tensors of a layout."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final, TypeVar

__all__ = ["NetworkOrder"]

T = TypeVar("T")

_NUMBER: Final = re.compile("([0-9]+)")
_FIRST, _BODY, _DECODER, _NORM, _HEAD = range(5)
_PLACES: Final = (
    (_DECODER, r"^dec(oder)?(_|$)"),
    (_HEAD, r"^(un|de)embed|^embed_out$|classif"),
    (_FIRST, r"emb|tokens?$|^w[tp]e$|^shared$|stem|_in$|^pre_\w*norm|_pre$"),
    (_FIRST, r"^feature_|^vision_|^visual$|projector"),
    (_NORM, r"norm(_|$)|^ln_"),
    (_HEAD, r"head|^cls$|^fc$|^pooler$|^score$|logit|predict"),
    (_HEAD, r"(^|_)outs?(_|$)|^output(_layer|_proj\w*)?$|_outputs$"),
)
"""Where modules beside the layers stand, by their names; the first expression that fits counts."""


@dataclass(frozen=True, slots=True)
class NetworkOrder:
    """The order in which people read the tensors of a layout, which decides no index.

    A layout that a program gives has the order of its modules, which is that of the network.
    Readers of files sort names by code point, and so do the writers of most files: then the order
    of the network is not known. Names tell most of it. Numbers are read by their value, and beside
    the numbered layers embeddings come first, decoders after encoders, norms and heads last.

    Attributes:
        places: the place in the layout of each, in the order to read them.
        is_own: whether it is the order of the layout, which is that of the network.
    """

    places: tuple[int, ...]
    is_own: bool

    @classmethod
    def of(cls, names: Sequence[str]) -> NetworkOrder:
        """The order of tensors that a layout has in this order."""
        if any(before > after for before, after in pairwise(names)):
            return cls(tuple(range(len(names))), is_own=True)
        keys = [_by_module(name) for name in names]
        return cls(tuple(sorted(range(len(names)), key=keys.__getitem__)), is_own=False)

    def arrange(self, items: Sequence[T]) -> tuple[T, ...]:
        """One item for each tensor of the layout, in this order."""
        return tuple(items[place] for place in self.places)


def _by_module(name: str) -> list[tuple[int, list[tuple[int, str]]]]:
    """What sorts names module by module: by their places, then by text and numbers.

    Within a numbered layer names have no places, since the same words mean other things there.
    """
    modules = name.split(".")
    numbered = next((at for at, module in enumerate(modules) if module.isdecimal()), len(modules))
    return [
        (_place(module) if at < numbered else _BODY, [*_turns(module)])
        for at, module in enumerate(modules)
    ]


@lru_cache(maxsize=1024)
def _place(module: str) -> int:
    lowered = module.lower()
    return next((place for place, words in _PLACES if re.search(words, lowered)), _BODY)


def _turns(module: str) -> list[tuple[int, str]]:
    """Text and numbers by turns: a text begins with 0, a number with its digits.

    A number of thousands of digits costs no more than its text.
    """
    found = []
    for turn, part in enumerate(_NUMBER.split(module)):
        digits = part.lstrip("0") if turn % 2 else ""
        found.append((len(digits), digits) if turn % 2 else (0, part))
    return found
