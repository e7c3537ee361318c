"""The input file of a command: a support, a signature or a checkpoint, by its content."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TypeAlias

from modelkin import checkpoints
from modelkin.checkpoints import Checkpoint
from modelkin.cli.output import one_line
from modelkin.cli.progress import Bar
from modelkin.core.selection.rule import SelectionRule
from modelkin.core.sketching.signature import Signature
from modelkin.core.support import Support
from modelkin.errors import InvalidParameter

__all__ = [
    "Source",
    "base_of",
    "notes_of",
    "open_source",
    "rule_of",
    "support_of",
    "support_of_size",
    "pass_progress",
]

Source: TypeAlias = Support | Signature | Checkpoint

_SELECTION = ("base", "kind", "coverage", "k", "fraction", "k_max", "exclude")


def open_source(arguments: argparse.Namespace, path: str) -> Source:
    """Open an input file; of a checkpoint only the headers are read.

    Raises:
        InvalidSupport, InvalidSignature, InvalidCheckpoint: damaged, or another kind of file.
        InvalidParameter: options of a selection, although the file is a support or signature.
        OSError: it cannot be read.
    """
    magic = b""
    if Path(path).is_file():
        with open(path, "rb") as file:
            magic = file.read(4)
    if magic not in {b"MKSP", b"MKSG"}:
        return checkpoints.open_checkpoint(path, getattr(arguments, "exclude", ()))
    for name in _SELECTION:
        if getattr(arguments, name, None) not in (None, []):
            raise InvalidParameter(
                f"--{name.replace('_', '-')} is for checkpoints, and {path} is a finished "
                f"{'support' if magic == b'MKSP' else 'signature'}"
            )
    data = Path(path).read_bytes()
    return Support.from_bytes(data) if magic == b"MKSP" else Signature.from_bytes(data)


def base_of(arguments: argparse.Namespace) -> Checkpoint | None:
    """The base of a delta, None for weights.

    Raises:
        InvalidParameter: ``--kind`` and ``--base`` contradict each other.
    """
    if (arguments.kind or "weight") == "weight":
        if arguments.base is None:
            return None
        if arguments.kind:
            raise InvalidParameter("--kind weight needs no --base: leave one of them out")
    if arguments.base is None:
        raise InvalidParameter(
            "--kind delta needs --base CHECKPOINT: the model that it was made from"
        )
    return checkpoints.open_checkpoint(arguments.base, arguments.exclude)


def rule_of(arguments: argparse.Namespace, checkpoint: Checkpoint) -> SelectionRule:
    """The rule that chooses K; raises InvalidParameter as ``SelectionRule.of`` does."""
    return SelectionRule.of(
        checkpoint.num_parameters,
        k=arguments.k,
        fraction=arguments.fraction,
        coverage=arguments.coverage,
        k_max=arguments.k_max,
    )


def support_of(
    arguments: argparse.Namespace, source: Source
) -> tuple[Support | Signature, tuple[str, ...]]:
    """The support or signature to send, selected from a checkpoint if it is one, with notes."""
    if not isinstance(source, Checkpoint):
        return source, ()
    base, rule = base_of(arguments), rule_of(arguments, source)
    support = checkpoints.select_from_checkpoint(source, base, rule, pass_progress(source))
    return support, notes_of(source, base)


def support_of_size(arguments: argparse.Namespace, checkpoint: Checkpoint, k: int) -> Support:
    """The checkpoint's support of K indices."""
    rule = SelectionRule.of(checkpoint.num_parameters, k=k)
    return checkpoints.select_from_checkpoint(
        checkpoint, base_of(arguments), rule, pass_progress(checkpoint)
    )


def pass_progress(checkpoint: Checkpoint) -> Bar:
    """A progress bar for the passes over a checkpoint."""
    return Bar(f"reading {one_line(checkpoint.name)}", checkpoint.num_parameters)


def notes_of(checkpoint: Checkpoint, base: Checkpoint | None) -> tuple[str, ...]:
    """The checkpoint's own notes, and one if differences include rounding."""
    if base is None or base.dtypes.keys() == checkpoint.dtypes.keys():
        return checkpoint.notes
    mine, theirs = ", ".join(checkpoint.dtypes), ", ".join(base.dtypes)
    rounding = f"the base is {theirs}, the checkpoint {mine}: differences include rounding"
    return (*checkpoint.notes, rounding)
