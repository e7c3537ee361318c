"""The command ``support``: write the most salient parameters of a checkpoint to a file."""

from __future__ import annotations

import argparse

from modelkin import checkpoints
from modelkin.checkpoints import Adapter
from modelkin.cli.inputs import open_kept, pass_progress, plan_of
from modelkin.cli.options import CHECKPOINT, add_selection
from modelkin.cli.output import Answer
from modelkin.core.importance import Origin
from modelkin.core.support_files import write_origin

__all__ = ["support", "support_options"]


def support_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``support``."""
    parser.add_argument("checkpoint", help=CHECKPOINT)
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="FILE",
        help="the file to write; - for standard output",
    )
    parser.set_defaults(inputs=("checkpoint",), outputs=("output",))
    add_selection(parser)


def support(arguments: argparse.Namespace) -> Answer:
    """``modelkin support``: write a checkpoint's support to a file."""
    checkpoint = open_kept(arguments, arguments.checkpoint)
    plan = plan_of(arguments, checkpoint)
    base = plan.base
    written = checkpoints.write_support(
        arguments.output, checkpoint, base, plan.rule, pass_progress(checkpoint)
    )
    origin = Origin(plan.importance, checkpoint.layout)
    write_origin(arguments.output, written.digest, origin)
    density = written.k / written.num_parameters
    kind = "|w|" if base is None else "|w - base|"
    if isinstance(checkpoint, Adapter):
        kind = checkpoint.measure
    return Answer(
        text=(
            f"{arguments.output}: {written.k:,} of {written.num_parameters:,} parameters "
            f"({density:.2%}) with {written.coverage:.1%} of all {kind}, {written.size:,} bytes"
        ),
        fields={
            "file": arguments.output,
            "bytes": written.size,
            "kind": plan.importance.kind,
            "num_parameters": written.num_parameters,
            "support_size": written.k,
            "density": density,
            "coverage": written.coverage,
            "digest": written.digest,
        },
        notes=plan.notes,
    )
