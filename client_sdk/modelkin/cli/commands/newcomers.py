"""The command ``assign``: the clusters that files would be in; no file is stored."""

from __future__ import annotations

import argparse

from modelkin.cli.blinding import add_blinding
from modelkin.cli.inputs import check_options
from modelkin.cli.options import FILE, add_selection, add_service
from modelkin.cli.output import Answer, fields_of, table
from modelkin.cli.questions import question
from modelkin.cli.texts import count_text, share_text, text_or_dash
from modelkin.client import Client
from modelkin.types.clusterings import Assignment

__all__ = ["assign", "assign_options", "placement_notes"]

_COLUMNS = ("FILE", "CLUSTER", "EXEMPLAR", "SIMILARITY", "MEAN", "WITHIN", "MARGIN")


def assign_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``assign``."""
    parser.add_argument("files", nargs="+", metavar="FILE|CHECKPOINT", help=FILE)
    add_service(parser)
    parser.add_argument(
        "--clustering",
        default="latest",
        metavar="ID",
        help="the clustering's id, as `clusters` shows it; default latest",
    )
    parser.add_argument(
        "--compare",
        choices=("classes", "whole"),
        help="how data subspaces are compared; by default as in the clustering",
    )
    parser.add_argument(
        "--exit-code", action="store_true", help="exit with 1 where a file is in no cluster"
    )
    add_blinding(parser)
    add_selection(parser)


def assign(arguments: argparse.Namespace) -> Answer:
    """``modelkin assign``: the cluster of each file, with the similarity of its members."""
    for path in arguments.files:
        check_options(arguments, path)
    placed: list[Assignment] = []
    notes: list[str] = []
    with Client(arguments.url, arguments.api_key) as client:
        space = client.spaces.get(arguments.space)
        for path in arguments.files:
            asked, said = question(client, arguments, path, space)
            found = client.clusterings.assign(
                arguments.space, asked, arguments.clustering, compare=arguments.compare
            )
            placed.append(found)
            notes += (*said, *(f"{path}: {note}" for note in placement_notes(found)))
    pairs = list(zip(arguments.files, placed, strict=True))
    return Answer(
        table(_COLUMNS, [_row(path, found) for path, found in pairs]),
        {"items": [{"file": path, **fields_of(found)} for path, found in pairs]},
        tuple(notes),
        code=int(arguments.exit_code and any(found.cluster < 0 for found in placed)),
    )


def placement_notes(placed: Assignment) -> tuple[str, ...]:
    """Reasons why a newcomer is in no cluster, or doubtful, in the words of the command line."""
    said = (placed.reason, placed.note)
    return tuple(note.replace("compare=whole", "--compare whole") for note in said if note)


def _row(path: str, placed: Assignment) -> tuple[str, ...]:
    return (
        path,
        count_text(None if placed.cluster < 0 else placed.cluster),
        text_or_dash(placed.exemplar),
        share_text(placed.similarity),
        share_text(placed.mean_similarity),
        share_text(placed.within),
        share_text(None if placed.cluster < 0 else placed.margin),
    )
