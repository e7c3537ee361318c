"""Patterns of module names, by which a configuration gives modules ranks and alphas of their own.

PEFT takes them as regular expressions. They come from strangers here, and some expressions take
longer than a lifetime, so a part of their language is read: names, ``.``, escapes, classes of
characters, ``*``, ``+`` and ``?`` behind one of these, and groups of alternatives.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

__all__ = ["MAX_STEPS", "ModulePattern", "steps_of"]

MAX_STEPS: Final = 20_000_000
"""The most comparisons that all patterns may take on all modules, a few seconds."""
_MAX_LENGTH: Final = 500

_CHARACTER = r"(?:\\[.dw\-]|[\w.\-])"
_TOKEN: Final = re.compile(
    rf"(?P<group>\((?:\?:)?{_CHARACTER}+(?:\|{_CHARACTER}+)*\))"
    rf"|(?:{_CHARACTER}|\[(?:\w-\w|\w)+\])(?P<repeat>[*+?])?"
)


@dataclass(frozen=True, slots=True)
class ModulePattern:
    """A pattern that names modules by the whole name, or by its end after a dot.

    Attributes:
        text: the pattern in the words of the configuration.
        anchored: whether the pattern takes whole names alone.
        repeats: how many of its characters may repeat.
        alternatives: the product of those of its groups.
        length: the length of the names that the pattern takes, if all have the same.
        expression: the compiled expression for the name after the dot.
    """

    text: str
    anchored: bool
    repeats: int
    alternatives: int
    length: int | None
    expression: re.Pattern[str]

    @classmethod
    def of(cls, text: str) -> ModulePattern:
        """A pattern from its text; raises ValueError if it is outside of the language above."""
        body = text.removeprefix("^").removesuffix("$")
        if not 0 < len(body) <= _MAX_LENGTH:
            raise ValueError(f"it has {len(body)} characters, not 1 to {_MAX_LENGTH}")
        at, tokens, repeats, alternatives = 0, 0, 0, 1
        while at < len(body):
            token = _TOKEN.match(body, at)
            if token is None:
                raise ValueError(f"{body[at]!a} at character {at + 1} is not understood here")
            repeats += token["repeat"] is not None
            alternatives *= (token["group"] or "").count("|") + 1
            at, tokens = token.end(), tokens + 1
        plain = repeats == 0 and "(" not in body
        try:
            expression = re.compile(body)
        except re.error as error:  # such as a class of characters that runs backwards
            raise ValueError(str(error)) from None
        return cls(
            text, text.startswith("^"), repeats, alternatives, tokens if plain else None, expression
        )

    def matches(self, module: str) -> bool:
        """Whether the pattern names a module."""
        if self.length is not None:
            begin = len(module) - self.length
            starts = [begin] if begin == 0 or (begin > 0 and module[begin - 1] == ".") else []
        else:
            starts = [0, *(dot.end() for dot in re.finditer(r"\.", module))]
        if self.anchored:
            starts = [begin for begin in starts if begin == 0]
        return any(self.expression.fullmatch(module, begin) for begin in starts)

    def steps(self, module: str) -> float:
        """A bound on the comparisons that the pattern takes on one module."""
        if self.length is not None:
            return 1
        starts = 1 if self.anchored else module.count(".") + 1
        return starts * self.alternatives * float(len(module)) ** min(self.repeats, 50)


def steps_of(patterns: Iterable[ModulePattern], modules: Iterable[str]) -> float:
    """A bound on the comparisons of all patterns with all modules."""
    names = list(modules)
    return math.fsum(pattern.steps(name) for pattern in patterns for name in names)
