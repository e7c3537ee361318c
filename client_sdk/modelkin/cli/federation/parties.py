"""What the commands of merges share, of the hub's and of those in a bucket."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from modelkin import checkpoints
from modelkin._progress_bar import ProgressLine, is_terminal
from modelkin.checkpoints import CheckpointSink, CheckpointValues
from modelkin.cli.output import Answer, fields_of, pairs, table
from modelkin.cli.texts import text_or_dash
from modelkin.core.layout import Layout
from modelkin.errors import InvalidParameter
from modelkin.federation.shards.plan import MIN_MEMBERS, Plan
from modelkin.types.merges import Merge, Merged

__all__ = [
    "Line",
    "check_files",
    "end_of",
    "files_of",
    "part_of",
    "party_options",
    "secret_of",
    "shown",
]


def party_options(parser: argparse.ArgumentParser) -> None:
    """The options of a party that joins."""
    parser.add_argument(
        "checkpoint",
        nargs="?",
        help="the model's checkpoint; of a neutral party one whose tensors the output has",
    )
    parser.add_argument("--merge", required=True, metavar="NAME", help="the name of the merge")
    parser.add_argument(
        "--model", required=True, metavar="NAME", help="the name of this party's model"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="the file that the average goes to")
    parser.add_argument("--base", metavar="CHECKPOINT", help="the base, in a merge of differences")
    parser.add_argument(
        "--examples",
        type=int,
        metavar="COUNT",
        help="the examples trained on, which are the weight",
    )
    parser.add_argument(
        "--neutral", action="store_true", help="aggregate alone, without values in the average"
    )
    parser.add_argument(
        "--no-aggregation", action="store_true", help="let other parties hold the shards"
    )
    parser.add_argument(
        "--group-secret-file",
        metavar="FILE",
        help="a file of 16 bytes or more that all parties have, and no carrier has",
    )
    parser.add_argument(
        "--state",
        metavar="FILE",
        help="the file that lets a new process go on; by default beside the output",
    )
    parser.add_argument(
        "--plain",
        action="store_true",
        help="take part also where aggregators see this member's shards, in place of sums",
    )
    parser.add_argument(
        "--min-members",
        type=int,
        default=MIN_MEMBERS,
        metavar="COUNT",
        help="refuse a merge that may average fewer; default 3",
    )
    parser.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="how long to wait; by default without end"
    )


def check_files(arguments: argparse.Namespace) -> None:
    """Check that a member has a checkpoint, and names the file for the average.

    Raises:
        InvalidParameter: one of them is missing.
    """
    if arguments.checkpoint is None and not arguments.neutral:
        raise InvalidParameter("give the checkpoint of the model, or --neutral")
    if arguments.output is None and not arguments.neutral:
        raise InvalidParameter("say where the average goes: -o FILE")


def shown(merge: Merge) -> Answer:
    """A merge and its parties."""
    summary = {
        "merge": f"{merge.name}, {merge.state}",
        "parameters": _plan_text(merge.plan),
        "awaited": ", ".join(merge.awaited) or "nothing",
    }
    if merge.digest is not None:
        summary["roster"] = merge.digest
    if merge.failure is not None:
        summary["failure"] = merge.failure
    rows = [
        (
            party.name,
            "neutral" if party.neutral else "-" if party.weight is None else f"{party.weight:.6g}",
            "joined" if party.joined else "awaited",
            text_or_dash(party.left_out),
        )
        for party in merge.parties
    ]
    columns = ("PARTY", "WEIGHT", "", "LEFT OUT")
    return Answer(pairs(summary) + "\n\n" + table(columns, rows), fields_of(merge))


def files_of(
    arguments: argparse.Namespace, layout: Layout | None, exclude: Sequence[str] = ()
) -> tuple[CheckpointValues | None, CheckpointSink | None]:
    """The checkpoint of the values, and the file for the average."""
    if arguments.checkpoint is None:
        return None, None
    model = checkpoints.open_checkpoint(arguments.checkpoint, exclude, unmatched_ok=True)
    base = None
    if arguments.base is not None:
        base = checkpoints.open_checkpoint(arguments.base, exclude, unmatched_ok=True)
    values = None if arguments.neutral else CheckpointValues(model, layout, base)
    if arguments.output is None:
        return values, None
    excluded = set(model.excluded)
    whole = checkpoints.open_checkpoint(arguments.checkpoint)
    beside = [t for t in (*whole.tensors, *whole.skipped) if t.name in excluded]
    return values, CheckpointSink(arguments.output, model, layout, base, beside)


def end_of(merged: Merged, output: str | None) -> Answer:
    """The end of a merge for a party."""
    summary = {
        "merge": merged.merge.name,
        "members": ", ".join(merged.members),
        "roster": merged.digest,
        "written": output or "nothing: a neutral party without an output",
    }
    fields = {"merge": merged.merge.name, "digest": merged.digest, "members": merged.members}
    return Answer(pairs(summary), {**fields, "output": output})


def part_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """How a party takes part: arguments of a merge's ``join``, of any carrier."""
    state = arguments.state
    if state is None and arguments.output is not None:
        state = f"{arguments.output}.merge"
    return {
        "examples": arguments.examples,
        "may_aggregate": not arguments.no_aggregation,
        "conceal": not arguments.plain,
        "min_members": arguments.min_members,
        "state": state,
        "timeout": arguments.timeout,
    }


def secret_of(path: str | None) -> bytes | None:
    """The group's secret, of a file."""
    return None if path is None else Path(path).read_bytes().strip()


def _plan_text(fields: Mapping[str, Any]) -> str:
    try:
        made = Plan.from_json(dict(fields))
    except InvalidParameter as error:
        return f"a plan that this version does not know: {error}"
    return f"{made.num_parameters:,} in {made.shards} shards"


class Line:
    """The state of a merge on one line of a terminal."""

    def __init__(self) -> None:
        self._line = ProgressLine()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if is_terminal():
            self._line.wipe()

    def draw(self, merge: Merge) -> None:
        """Show the members that the merge waits for."""
        if is_terminal():
            waits = f", waits for {', '.join(merge.awaited)}" if merge.awaited else ""
            self._line.draw(f"{merge.name} is {merge.state}{waits}", None)
