"""The input file of a command: a support, a signature or a checkpoint, by its content.

A checkpoint for a space is read without the tensors that the space leaves out, and in the space's
order of tensors, before anything is selected.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeAlias

from modelkin import checkpoints
from modelkin._terminal_text import one_line
from modelkin.checkpoints import Adapter, Checkpoint
from modelkin.checkpoints.anatomies import is_fingerprint
from modelkin.checkpoints.importance import digest_of_base
from modelkin.checkpoints.pushes.plan import Plan
from modelkin.cli.differences import OTHER_SPACE, fitted_to
from modelkin.cli.progress import Bar
from modelkin.core.importance import Importance
from modelkin.core.layout import Layout
from modelkin.core.selection.rule import SelectionRule
from modelkin.core.sketching.signature import Signature
from modelkin.core.subspaces.subspace import Subspace
from modelkin.core.support import Support
from modelkin.errors import InvalidCheckpoint, InvalidParameter, SpaceMismatch
from modelkin.types.spaces import SpaceInfo

__all__ = [
    "Source",
    "check_kind",
    "check_options",
    "open_kept",
    "open_source",
    "pass_progress",
    "plan_of",
    "refuse_fingerprint",
    "refuse_selection",
    "sets_size",
    "whole_layout",
]

Source: TypeAlias = Support | Signature | Subspace | Checkpoint

_FINISHED = {b"MKSP": "support", b"MKSG": "signature", b"MKSB": "data subspace"}
"""The first bytes of modelkin's own files."""

_SELECTION = ("base", "kind", "coverage", "support_size", "fraction", "k_max", "exclude")


def open_source(arguments: argparse.Namespace, path: str, space: SpaceInfo | None = None) -> Source:
    """Open an input file; only the headers of a checkpoint are read.

    Args:
        arguments: the command's arguments.
        path: the file's path.
        space: the space that the file is for; a checkpoint then lacks the tensors that the space
            leaves out, and has the space's order.

    Raises:
        InvalidSupport, InvalidSignature, InvalidSubspace, InvalidCheckpoint: the file is damaged,
            or of another kind.
        InvalidParameter: options of a selection are given for a support or signature; or the file
            is a fingerprint, which belongs to no space.
        SpaceMismatch: the checkpoint has other tensors than the space; names the first.
        OSError: the file cannot be read.
    """
    magic = check_options(arguments, path)
    if magic not in _FINISHED:
        return _for_space(open_kept(arguments, path, space), space)
    if magic == b"MKSP":
        return Support.load(path)
    data = Path(path).read_bytes()
    return Signature.from_bytes(data) if magic == b"MKSG" else Subspace.from_bytes(data)


def check_options(arguments: argparse.Namespace, path: str) -> bytes:
    """Check the options of a selection, without a service; return the first bytes of the file.

    Raises:
        InvalidParameter: such an option is given for a finished file, or ``--kind`` and ``--base``
            contradict each other; or the file is a fingerprint, which belongs to no space.
        OSError: the file cannot be read.
    """
    refuse_fingerprint(path)
    magic = b""
    if Path(path).is_file():
        with open(path, "rb") as file:
            magic = file.read(4)
    if magic in _FINISHED:
        for name in _SELECTION:
            if getattr(arguments, name, None) not in (None, []):
                raise InvalidParameter(
                    f"--{name.replace('_', '-')} is for checkpoints, and {path} is a finished "
                    f"{_FINISHED[magic]}"
                )
    elif hasattr(arguments, "kind"):
        _check_base(arguments.kind, arguments.base)
    return magic


def refuse_fingerprint(path: str) -> None:
    """Refuse a fingerprint of a checkpoint where supports, signatures or subspaces are taken.

    Raises:
        InvalidParameter: the file is one.
        OSError: the file cannot be read.
    """
    if is_fingerprint(path):
        raise InvalidParameter(
            f"{path} is a fingerprint of a checkpoint, and belongs to no space: `modelkin anatomy` "
            f"compares it with other models, and `modelkin inspect` shows what it holds"
        )


def refuse_selection(arguments: argparse.Namespace) -> None:
    """Refuse the options of a selection where a stored model is asked about.

    Raises:
        InvalidParameter: such an option is given.
    """
    for name in _SELECTION:
        if getattr(arguments, name, None) not in (None, []):
            raise InvalidParameter(
                f"--{name.replace('_', '-')} is for --file CHECKPOINT, and --model is stored "
                f"already: leave it out"
            )


def _check_base(kind: str | None, base: str | None) -> None:
    if kind == "weight" and base is not None:
        raise InvalidParameter("--kind weight needs no --base: leave one of them out")
    if kind == "delta" and base is None:
        raise InvalidParameter(
            "--kind delta needs --base CHECKPOINT: the model that it was made from (an adapter is "
            "a delta without --kind)"
        )


def plan_of(
    arguments: argparse.Namespace,
    checkpoint: Checkpoint,
    space: SpaceInfo | None = None,
    *,
    digest: bool = True,
) -> Plan:
    """Return the plan that a command's options make for a checkpoint.

    Args:
        arguments: the command's arguments.
        checkpoint: the model.
        space: the space that the support is for.
        digest: whether to compute the digest of a base's weights, which a service compares; of a
            support for a file it never is.

    Raises:
        InvalidParameter: options contradict each other, or are out of range.
        SpaceMismatch: the base has other tensors, or the space is of another kind or base.
    """
    _check_base(arguments.kind, arguments.base)
    if isinstance(checkpoint, Adapter) and arguments.kind == "weight":
        raise InvalidParameter(
            f"--kind weight is for weights, and {checkpoint.name} is an adapter, whose kind is "
            f"delta: leave --kind out"
        )
    base = _base_of(arguments, () if space is None else space.exclude)
    kind = checkpoint.kind if base is None else "delta"
    if sets_size(arguments) or arguments.k_max is not None:
        rule = SelectionRule.of(
            checkpoint.num_parameters,
            k=arguments.support_size,
            fraction=arguments.fraction,
            coverage=arguments.coverage,
            k_max=arguments.k_max,
        )
    else:
        rule = checkpoints.default_rule(checkpoint, base)
    check_kind(Importance.of(kind), space, base)
    layout = None if space is None else space.layout
    importance = Importance.of(kind, note=checkpoint.origin_note)
    plan = Plan(checkpoint, base, importance, rule, layout, pass_progress(checkpoint))
    if base is None or not digest or getattr(arguments, "space", None) is None:
        return plan
    plan = plan.against(digest_of_base(base, checkpoint, layout))
    check_kind(plan.importance, space, base)
    return plan


def sets_size(arguments: argparse.Namespace) -> bool:
    """Whether the command line sets the size of a support."""
    return not (
        arguments.support_size is None and arguments.fraction is None and arguments.coverage is None
    )


def whole_layout(
    arguments: argparse.Namespace, checkpoint: Checkpoint
) -> tuple[Layout, tuple[str, ...]]:
    """The layout for a new space, with the tensors that ``--exclude`` leaves out, and its patterns.

    A pattern that matches only integer tensors is omitted, since a layout has none of these. If an
    excluded tensor cannot be read, the layout lacks the excluded tensors and there are no patterns.
    """
    try:
        layout = checkpoints.open_checkpoint(checkpoint.path).layout
    except InvalidCheckpoint:
        return checkpoint.layout, ()
    return layout, layout.matching(arguments.exclude)


def pass_progress(checkpoint: Checkpoint) -> Bar:
    """A progress bar for the passes over a checkpoint."""
    return Bar(f"reading {one_line(checkpoint.name)}", checkpoint.num_parameters)


def open_kept(
    arguments: argparse.Namespace, path: str, space: SpaceInfo | None = None
) -> Checkpoint:
    """The checkpoint without the tensors that the command line and the space leave out.

    Raises:
        InvalidParameter: without a space, no pattern matches a tensor.
    """
    mine, others = tuple(getattr(arguments, "exclude", ())), () if space is None else space.exclude
    found = checkpoints.open_checkpoint(path, (*mine, *others), unmatched_ok=True)
    if mine and space is None and not found.excluded:
        return checkpoints.open_checkpoint(path, mine)
    unmatched = [
        f"--exclude: no tensor name of {path} matches {pattern!r}"
        for pattern in mine
        if not any(fnmatchcase(name, pattern) for name in found.excluded)
    ]
    return replace(found, remarks=(*found.remarks, *unmatched))


def _for_space(checkpoint: Checkpoint, space: SpaceInfo | None) -> Checkpoint:
    """The checkpoint with its tensors in the order of the space."""
    if space is None or space.layout is None:
        return checkpoint
    if not isinstance(checkpoint, Adapter):
        return fitted_to(checkpoint, space.layout, space.name)
    try:
        return checkpoint.in_order(space.layout)
    except SpaceMismatch as error:
        raise SpaceMismatch(
            f"{checkpoint.name} has other tensors than space {space.name!r}: "
            + str(error).replace("the layout", "the space")
            + f": {OTHER_SPACE}"
        ) from None


def _base_of(arguments: argparse.Namespace, exclude: tuple[str, ...]) -> Checkpoint | None:
    """The checkpoint to compare the model with, None for weights; it may lack excluded tensors."""
    if arguments.base is None:
        return None
    return checkpoints.open_checkpoint(
        arguments.base, (*arguments.exclude, *exclude), unmatched_ok=True
    )


def check_kind(importance: Importance, space: SpaceInfo | None, base: Checkpoint | None) -> None:
    """Refuse a kind that the service would refuse, before a large file is read."""
    if space is not None and not space.importance.fits(importance):
        remedy = "name another space"
        if base is not None:
            of_weights = space.importance.kind == "weight"
            remedy += ", or leave --base out" if of_weights else ", or another --base"
        raise SpaceMismatch(
            f"space {space.name!r} holds supports by {space.importance}, and this one is by "
            f"{importance}: {remedy}"
        )
