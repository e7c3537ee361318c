"""The command ``fingerprint``: write the sampled line keys of a checkpoint to a file."""

from __future__ import annotations

import argparse
from pathlib import Path

from modelkin._terminal_text import one_line
from modelkin._whole_files import require_ordinary
from modelkin.checkpoints import Checkpoint
from modelkin.checkpoints.anatomies import fingerprint_of, is_fingerprint
from modelkin.cli.inputs import open_kept
from modelkin.cli.options import WEIGHTS
from modelkin.cli.output import Answer, quantity
from modelkin.cli.progress import ShareLine
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.fingerprints.rows import left_out
from modelkin.errors import InvalidParameter

__all__ = ["add_scale", "fingerprint", "fingerprint_options", "made_of"]


def fingerprint_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``fingerprint``."""
    parser.add_argument("checkpoint", help=WEIGHTS)
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="FILE",
        help="the file to write; - for standard output",
    )
    parser.set_defaults(inputs=("checkpoint",), outputs=("output",))
    add_scale(parser)
    parser.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="PATTERN",
        help="leave out tensors named like this, 'lm_head.*' for one; repeats",
    )


def add_scale(parser: argparse.ArgumentParser) -> None:
    """Add ``--scale``, which says how many lines are sampled."""
    parser.add_argument(
        "--scale",
        type=int,
        metavar="NUMBER",
        help="keep one line in so many, a power of two; by default the least that leaves 4,096 "
        "lines at most, or 32 a tensor where these are more",
    )


def fingerprint(arguments: argparse.Namespace) -> Answer:
    """``modelkin fingerprint``: write a checkpoint's fingerprint to a file."""
    if is_fingerprint(arguments.checkpoint):
        raise InvalidParameter(
            f"{arguments.checkpoint} is a finished fingerprint: give the checkpoint that it is of"
        )
    checkpoint = open_kept(arguments, arguments.checkpoint)
    _check_target(Path(arguments.output), checkpoint)
    made = made_of(checkpoint, arguments.scale)
    made.save(arguments.output)
    size = Path(arguments.output).stat().st_size
    lines = sum(made.lines.values())
    not_compared = left_out(made.tensors)
    return Answer(
        text="\n".join(
            [
                f"{arguments.output}: {made.distinct.size:,} of {quantity(lines, 'line')} at scale "
                f"{made.scale:,}, {size:,} bytes",
                *(f"not compared: {each.sentence}" for each in not_compared),
            ]
        ),
        fields={
            "file": arguments.output,
            "bytes": size,
            "digest": made.digest,
            "scale": made.scale,
            "keys": int(made.distinct.size),
            "lines": lines,
            "tensors": len(made.tensors),
            "not_comparable": {each.reason.value: each.count for each in not_compared},
        },
        notes=checkpoint.notes,
    )


def made_of(checkpoint: Checkpoint, scale: int | None) -> Fingerprint:
    """The fingerprint of a checkpoint, with a bar on a terminal while it is read."""
    with ShareLine(f"reading {one_line(checkpoint.name)}") as line:
        return fingerprint_of(
            checkpoint, scale, lambda done, total: line.draw(done / max(total, 1))
        )


def _check_target(target: Path, checkpoint: Checkpoint) -> None:
    """Refuse, before a large file is read, to replace what cannot or must not be replaced."""
    require_ordinary(target)
    if not target.parent.is_dir():
        raise InvalidParameter(f"{target}: there is no folder {target.parent}", field="-o")
    sources = {tensor.path for tensor in checkpoint.tensors}
    if target.exists() and any(target.samefile(source) for source in sources):
        raise InvalidParameter(f"{target} is the checkpoint itself: give another name", field="-o")
