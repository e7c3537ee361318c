"""``open_named`` and ``read_for_space``: a checkpoint by its headers, and read for a space."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from modelkin._validation import check_model_name
from modelkin.checkpoints.adapters import Adapter
from modelkin.checkpoints.catalogues.statements import (
    Statements,
    statements_of,
    tags_of,
    unread_base_of,
)
from modelkin.checkpoints.files import Checkpoint
from modelkin.checkpoints.importance import default_rule
from modelkin.checkpoints.opening import open_checkpoint
from modelkin.checkpoints.pushes.folders import is_inside
from modelkin.checkpoints.pushes.gathering import NamedCheckpoint
from modelkin.checkpoints.pushes.plan import Plan
from modelkin.checkpoints.pushes.pushed_file import PushedFile
from modelkin.core.importance import Importance
from modelkin.core.layout import Layout
from modelkin.core.matching.correspondence import correspond
from modelkin.errors import InvalidCheckpoint, InvalidName, SpaceMismatch

__all__ = [
    "OpenedCheckpoint",
    "check_fit",
    "fit_note",
    "open_named",
    "other_tensors",
    "read_for_space",
]


@dataclass(frozen=True, slots=True)
class OpenedCheckpoint:
    """What the headers of a checkpoint say; nothing of it is open.

    Attributes:
        named: its path and name.
        layout: all of its tensors that are read.
        kind: the kind of importance that its values have by themselves.
        is_adapter: whether it is one.
        said: what is said of it, by the person who pushes or else by its files.
        tags: those that it is to have; None where nobody says any, and it keeps its own.
        size: the bytes of its files.
        state: changes where one of its files does.
        note: why a base that its card declares is not read; None if all is.
    """

    named: NamedCheckpoint
    layout: Layout
    kind: str
    is_adapter: bool
    said: Statements
    tags: tuple[str, ...] | None
    size: int
    state: str
    note: str | None = None


def open_named(named: NamedCheckpoint, exclude: Sequence[str] = ()) -> OpenedCheckpoint:
    """Read the headers of a checkpoint.

    Args:
        named: the checkpoint.
        exclude: patterns of tensors that are left out, where they cannot be read.

    Raises:
        InvalidCheckpoint: it is none that is read, or a file of it lies elsewhere.
        MissingExtra: it is GGUF, and the package ``gguf`` is not installed.
        OSError: a file cannot be read.
    """
    try:
        checkpoint = open_checkpoint(named.path)
    except InvalidCheckpoint:
        if not exclude:
            raise
        checkpoint = open_checkpoint(named.path, exclude, unmatched_ok=True)
    paths = sorted({tensor.path for tensor in checkpoint.stored})
    for path in paths:
        if named.root is not None and not is_inside(path, named.root):
            raise InvalidCheckpoint(f"{path.name} is a link that leads out of the folder")
    states = [(path.name, os.stat(path)) for path in paths]
    return OpenedCheckpoint(
        named,
        checkpoint.layout,
        checkpoint.kind,
        isinstance(checkpoint, Adapter),
        _said(named, _found(checkpoint, named.has_card)),
        _tags(named, checkpoint),
        sum(stat.st_size for _, stat in states),
        ";".join(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in states),
        None if named.base_model else unread_base_of(checkpoint, has_card=named.has_card),
    )


def check_fit(opened: OpenedCheckpoint, layout: Layout, exclude: Sequence[str]) -> None:
    """Check the tensors of a checkpoint by its headers, before any value is read.

    Args:
        opened: the checkpoint.
        layout: that of the space.
        exclude: patterns of the tensors that are left out.

    Raises:
        SpaceMismatch: :func:`read_for_space` would refuse it; names the tensors that differ.
    """
    own = opened.layout.without(exclude, unmatched_ok=True)
    if own.digest == layout.digest:
        return
    found = correspond(own, layout)
    require = found.require_equal if opened.is_adapter else found.require_part
    require("the file", "the layout")


def fit_note(opened: OpenedCheckpoint, layout: Layout, exclude: Sequence[str]) -> str | None:
    """What :func:`read_for_space` will say of other tensors; arguments as for :func:`check_fit`."""
    own = opened.layout.without(exclude, unmatched_ok=True)
    return None if own.digest == layout.digest else correspond(own, layout).note


def other_tensors(space: str, error: SpaceMismatch) -> SpaceMismatch:
    """What :func:`check_fit` and :func:`read_for_space` say, about the space, with the remedy."""
    differing = str(error).replace("the layout", "the space")
    return SpaceMismatch(
        f"it has other tensors than space {space!r}, so give the space 'auto', which is one that "
        f"it fits: {differing}"
    )


def read_for_space(
    opened: OpenedCheckpoint,
    layout: Layout | None,
    exclude: Sequence[str],
    *,
    fixed: int | None,
    lines: bool,
    own_exclude: Sequence[str] = (),
    threads: int | None = None,
) -> PushedFile:
    """Read a checkpoint once, for all that is sent of it.

    Args:
        opened: the checkpoint.
        layout: that of the space; None for a space without one.
        exclude: patterns of the tensors that are left out, by the space or the caller.
        fixed: the K that the space fixes.
        lines: whether a fingerprint is wanted.
        own_exclude: those of the caller, which a fingerprint goes without, too.
        threads: that read lines beside the rest.

    Raises:
        InvalidCheckpoint: a weight is not finite, or a file ends early.
        SpaceMismatch: it has other tensors than the layout.
        OSError: a file cannot be read.
    """
    checkpoint: Checkpoint = open_checkpoint(opened.named.path, exclude, unmatched_ok=True)
    if layout is not None:
        own = isinstance(checkpoint, Adapter)
        checkpoint = checkpoint.in_order(layout) if own else checkpoint.fitted(layout)
    importance = Importance.of(checkpoint.kind, note=checkpoint.origin_note)
    plan = Plan(checkpoint, None, importance, default_rule(checkpoint, None), layout)
    wanted = lines and not opened.is_adapter
    return PushedFile(plan, fixed, lines=wanted, exclude=own_exclude, threads=threads)


def _found(checkpoint: Checkpoint, has_card: bool) -> Statements:
    """What its files say; the configuration of an adapter names its base, too."""
    found = statements_of(checkpoint, has_card=has_card)
    if not found.base_models and isinstance(checkpoint, Adapter) and checkpoint.base_name:
        with suppress(InvalidName):
            return replace(found, base_models=(check_model_name(checkpoint.base_name),))
    return found


def _said(named: NamedCheckpoint, found: Statements) -> Statements:
    """What a person says counts before what the files say."""
    if named.base_model is not None and (named.base_model,) != found.base_models:
        return replace(found, base_models=(named.base_model,), base_relation=None)
    return found


def _tags(named: NamedCheckpoint, checkpoint: Checkpoint) -> tuple[str, ...] | None:
    """Those that a person names, or else those of the card, if it has any."""
    if named.tags is not None:
        return named.tags
    return (tags_of(checkpoint) or None) if named.has_card else None
