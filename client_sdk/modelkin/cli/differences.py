"""A checkpoint beside the layout of a space: all tensors that differ, and the option that helps."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Final

from modelkin.checkpoints import Checkpoint
from modelkin.core.layout import Layout
from modelkin.core.matching.correspondence import MIN_SHARE, Correspondence, correspond
from modelkin.core.matching.remedies import remedy_of
from modelkin.errors import SpaceMismatch

__all__ = ["OTHER_SPACE", "fitted_to"]

OTHER_SPACE: Final = "name a space of its own layout, which --create makes, or give --space auto"
"""What does for a file that fits no space of its name."""

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
    remedy = remedy_of(found)
    if remedy is None:
        return OTHER_SPACE
    shown = [f"--exclude {shlex.quote(pattern)}" for pattern in remedy.patterns]
    options = " ".join(shown[:_MAX_PATTERNS]) + " and so on" * (len(shown) > _MAX_PATTERNS)
    if not remedy.of_space:
        return f"leave out the tensors that are its own, {options}"
    return f"push it and models of that space to one without these tensors, --create {options}"
