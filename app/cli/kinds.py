"""``split-kinds``: the weights and the deltas that sources have stored in one space."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from app.cli.arguments import CommandParser
from app.cli.output import Output, problem
from app.cli.running import carried_out, chosen_spaces, drawn, opened
from app.errors import Conflict, SpaceNotFound, Unavailable
from app.hubs.kind_split import KindSplit, KindSplitService
from app.settings import Settings
from app.spaces.records import SpaceRecord
from app.spaces.service import SpaceService
from app.stores import open_reader, open_writer

__all__ = ["run"]


def run(arguments: list[str]) -> int:
    """``split-kinds [--space NAME]``; 0 done, 1 it could not be, 2 wrong settings."""
    parser = CommandParser.of(
        "split-kinds",
        "Part the weights and the deltas that sources have stored in one space: deltas "
        "move to a space for each base, while services go on. It may be repeated.",
    )
    parser.add_argument("--space", help="only the spaces of this name (default: all)")
    parser.runs(_split_kinds)
    return carried_out(parser.parse_args(arguments))


def _split_kinds(options: argparse.Namespace, output: Output) -> int:
    settings = Settings()
    refused = 0
    output.fields = {"spaces": []}
    with opened(output, settings) as database, open_writer(settings, database) as writer:
        reader = open_reader(settings, database)
        service = KindSplitService(database, SpaceService(), reader, writer)
        for space in chosen_spaces(database, options.space):
            try:
                with drawn(space.name) as progress:
                    result = service.split(space, progress)
            except (Conflict, SpaceNotFound, Unavailable) as error:
                refused = 1
                output.warn(f"{space.name}: {error}")
                output.fields["spaces"].append(_named(space) | {"error": problem(error)})
            else:
                output.line(f"{space.name}: {_parted(space, result)}")
                output.fields["spaces"].append(_named(space) | _fields(result))
    return refused


def _named(space: SpaceRecord) -> dict[str, object]:
    return {"space": space.name, "space_id": space.id}


def _fields(result: KindSplit) -> dict[str, object]:
    """The result of a split, for programs."""
    return {
        "importance": asdict(result.importance),
        "moved": result.moved,
        "taken": result.taken,
        "weights": result.weights,
        "unrecorded": result.unrecorded,
    }


def _parted(space: SpaceRecord, result: KindSplit) -> str:
    """The result of a split, in a line."""
    if space.importance.is_stated:
        return f"states {space.importance} already"
    facts = [f"{count} deltas moved to {name}" for name, count in sorted(result.moved.items())]
    if result.importance.is_stated:
        return "; ".join([*facts, f"states {result.importance} for {result.weights} models"])
    if result.unrecorded:
        facts.append(f"what {result.unrecorded} models were selected by is not recorded")
    if result.taken:
        facts.append(
            f"{len(result.taken)} deltas stay, since the space of deltas has their names, such as "
            f"{result.taken[0]!r}"
        )
    return "; ".join([*(facts or ["no models"]), "states no kind"])
