"""A checkpoint beside the layout of a space: all tensors that differ, and the option that helps."""

from __future__ import annotations

import glob
import shlex
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from modelkin.checkpoints import Checkpoint
from modelkin.core.layout import Layout
from modelkin.core.matching.correspondence import (
    MIN_PART,
    MIN_SHARE,
    Correspondence,
    correspond,
)
from modelkin.errors import SpaceMismatch

__all__ = ["fitted_to"]

_SHOWN: Final = 100
"""Tensors that are named; others are counted."""
_MAX_PATTERNS: Final = 10


def fitted_to(checkpoint: Checkpoint, layout: Layout, space: str) -> Checkpoint:
    """The tensors, or parts of them, that a space has, in its order, with a remark on all others.

    Raises:
        SpaceMismatch: it has too little of the space; names the tensors, and what would do.
    """
    found = correspond(checkpoint.layout, layout)
    if not found.fits:
        differing = found.difference("the file", "the space", shown=_SHOWN)
        raise SpaceMismatch(
            f"{checkpoint.name} has other tensors than space {space!r}: {differing}. It is "
            f"compared over a part that is {MIN_SHARE:.0%} of the space or more, and half of the "
            f"file: {_remedy(found)}"
        )
    fitted, remark = checkpoint.fitted(layout), found.remark(shown=_SHOWN)
    if remark is None:
        return fitted
    return replace(fitted, remarks=(*checkpoint.remarks, remark))


def _remedy(found: Correspondence) -> str:
    """The option by which the file is compared with the models of the space."""
    common = [found.source.tensors[piece.source].name for piece in found.pieces]
    if found.share >= MIN_SHARE:
        own = _patterns((spec.name for spec in found.beyond), common)
        return f"leave out the tensors that are its own, {_options(own)}"
    if found.covered >= MIN_PART * found.source.num_parameters:
        cropped = {spec.name for pair in found.cropped for spec in pair}
        both = (spec.name for spec in (*found.missing, *found.beyond))
        lacking = [*cropped, *_patterns(both, common)]
        return (
            f"push it and models of that space to one without these tensors, --create "
            f"{_options(sorted(lacking))}"
        )
    return "name a space of its own layout, which --create makes"


def _options(patterns: list[str]) -> str:
    shown = " ".join(f"--exclude {shlex.quote(pattern)}" for pattern in patterns[:_MAX_PATTERNS])
    return f"{shown} and so on" if len(patterns) > _MAX_PATTERNS else shown


def _patterns(names: Iterable[str], kept: Iterable[str]) -> list[str]:
    """The fewest parts of names that match these names, and none of others."""
    shared = {part for name in kept for part in _parts(name)}
    found: dict[str, None] = {}
    for name in names:
        own = next((part for part in _parts(name) if part not in shared), name)
        found[glob.escape(own) + ("" if own == name else ".*")] = None
    return list(found)


def _parts(name: str) -> list[str]:
    """A name's beginnings up to each dot, the shortest first, and the name."""
    parts = name.split(".")
    return [".".join(parts[: at + 1]) for at in range(len(parts))]
