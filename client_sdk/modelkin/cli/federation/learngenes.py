"""The commands ``learngene cut`` and ``learngene average``: files of layers to start from."""

from __future__ import annotations

import argparse
from typing import Any

from modelkin import checkpoints
from modelkin._terminal_text import one_line
from modelkin.cli.output import Answer, quantity
from modelkin.cli.progress import ShareLine
from modelkin.errors import InvalidParameter

__all__ = ["average", "average_options", "cut", "cut_options"]

_CHECKPOINT = "a .safetensors file, the index of a sharded one, or a folder that holds one"


def cut_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``learngene cut``."""
    parser.add_argument("checkpoint", help=_CHECKPOINT)
    _add_choice(parser)


def average_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``learngene average``."""
    parser.add_argument("checkpoints", nargs="+", metavar="CHECKPOINT", help=_CHECKPOINT)
    parser.add_argument(
        "--examples",
        action="append",
        type=int,
        metavar="COUNT",
        help="the weight of a checkpoint, once for each in their order; by default all are equal",
    )
    parser.add_argument(
        "--before",
        metavar="FILE",
        help="the last learngene, whose values stay where too few checkpoints have a tensor",
    )
    parser.add_argument(
        "--min-members",
        type=int,
        default=3,
        metavar="COUNT",
        help="checkpoints that must have a tensor; default 3",
    )
    _add_choice(parser)


def _add_choice(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the file to write")
    group = parser.add_argument_group("which layers, each of them whole")
    which = group.add_mutually_exclusive_group()
    which.add_argument(
        "--tensor",
        action="append",
        metavar="PATTERN",
        help="the tensors named like this, 'encoder.*' for one; repeats",
    )
    which.add_argument(
        "--depth",
        type=int,
        metavar="COUNT",
        help="this number of layers from the input on; with --order",
    )
    which.add_argument(
        "--share",
        type=float,
        metavar="SHARE",
        help="the layers from the input on that fit into this share of all bytes; with --order",
    )
    group.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="PATTERN",
        help="leave out tensors named like this, 'head.*' for one; repeats",
    )
    group.add_argument(
        "--order",
        action="append",
        default=[],
        metavar="LAYER",
        help="names or patterns of layers from the input on; repeats; others come last",
    )
    group.add_argument(
        "--buffers",
        action="store_true",
        help="take running_mean and running_var along, which are private",
    )


def cut(arguments: argparse.Namespace) -> Answer:
    """``modelkin learngene cut``: some layers of a checkpoint, written to a file."""
    checkpoint = checkpoints.open_checkpoint(arguments.checkpoint)
    with ShareLine(f"cutting {one_line(checkpoint.name)}") as line:
        made = checkpoints.cut_checkpoint(
            checkpoint, arguments.output, **_choice(arguments), on_progress=line.draw
        )
    text = (
        f"{arguments.output}: {quantity(len(made.layers), 'layer')} with {made.share:.1%} of all "
        f"weights, {made.size:,} bytes, {made.digest}"
    )
    fields = {
        "file": arguments.output,
        "bytes": made.size,
        "digest": made.digest,
        "share": made.share,
        "layers": made.layers,
        "tensors": made.tensors,
    }
    return Answer(text, fields)


def average(arguments: argparse.Namespace) -> Answer:
    """``modelkin learngene average``: the mean of checkpoints, tensor by tensor."""
    paths: list[str] = arguments.checkpoints
    repeated = sorted({path for path in paths if paths.count(path) > 1})
    if repeated:
        raise InvalidParameter(f"{repeated[0]} is given twice: a member counts once")
    if arguments.examples is not None and len(arguments.examples) != len(paths):
        raise InvalidParameter(
            f"--examples is given {quantity(len(arguments.examples), 'time')} for "
            f"{quantity(len(paths), 'checkpoint')}: give it once for each",
            field="examples",
        )
    given = arguments.examples
    before = None if arguments.before is None else checkpoints.open_checkpoint(arguments.before)
    members = {path: checkpoints.open_checkpoint(path) for path in paths}
    with ShareLine(f"averaging {quantity(len(paths), 'checkpoint')}") as line:
        made = checkpoints.average_checkpoints(
            members,
            arguments.output,
            examples=None if given is None else dict(zip(paths, given, strict=True)),
            before=before,
            min_members=arguments.min_members,
            **_choice(arguments),
            on_progress=line.draw,
        )
    least, most = min(made.members.values()), max(made.members.values())
    of = quantity(most, "checkpoint") if least == most else f"{least:,} to {most:,} checkpoints"
    text = (
        f"{arguments.output}: {quantity(len(made.layers), 'layer')}, the mean of {of}, "
        f"{made.size:,} bytes, {made.digest}"
    )
    fields = {
        "file": arguments.output,
        "bytes": made.size,
        "digest": made.digest,
        "layers": made.layers,
        "members": made.members,
        "kept": made.kept,
        "left_out": made.left_out,
    }
    return Answer(text, fields, _notes(made))


def _notes(made: checkpoints.AveragedLearngene) -> tuple[str, ...]:
    notes = []
    if made.kept:
        notes.append(
            f"{quantity(len(made.kept), 'tensor')} of too few checkpoints keep their old values, "
            f"such as {made.kept[0]}"
        )
    if made.left_out:
        notes.append(
            f"{quantity(len(made.left_out), 'layer')} of too few checkpoints are left out, such as "
            f"{made.left_out[0]}: lower --min-members, or give --before"
        )
    return tuple(notes)


def _choice(arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "depth": arguments.depth,
        "share": arguments.share,
        "tensors": arguments.tensor,
        "exclude": arguments.exclude,
        "order": arguments.order,
        "buffers": arguments.buffers,
    }
