"""``stop-lists``: the indices that most models of a space hold."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from app.cli.arguments import CommandParser
from app.cli.output import Output, problem
from app.cli.running import carried_out, chosen_spaces, drawn, opened
from app.errors import Conflict, SpaceNotFound, SupportMissing
from app.maintenance.stop_lists import DEFAULT_SHARE, StopListService
from app.settings import Settings
from app.spaces.records import SpaceRecord, StopList
from app.stores import open_reader

__all__ = ["run"]


def run(arguments: list[str]) -> int:
    """``stop-lists [--space NAME] [--share S | --drop]``; 0 done, 1 it could not be, 2 wrong
    settings.
    """
    parser = CommandParser.of(
        "stop-lists",
        "Find the indices that most models of a space hold, and leave them out of its "
        "LSH buckets, while services go on.",
    )
    parser.add_argument("--space", help="only the spaces of this name (default: all)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--share",
        type=float,
        default=DEFAULT_SHARE,
        help="of the supports, how many must hold an index that is left out (0.5)",
    )
    what.add_argument("--drop", action="store_true", help="go back to buckets of all indices")
    parser.runs(_drop_stop_lists if "--drop" in arguments else _make_stop_lists)
    return carried_out(parser.parse_args(arguments))


def _make_stop_lists(options: argparse.Namespace, output: Output) -> int:
    settings = Settings()
    refused = 0
    output.fields = {"spaces": []}
    with opened(output, settings) as database:
        service = StopListService(database, open_reader(settings, database))
        for space in chosen_spaces(database, options.space):
            try:
                with drawn(space.name) as progress:
                    made = service.make(space, share=options.share, progress=progress)
            except SupportMissing as error:
                if options.space is not None:
                    raise
                output.line(f"{space.name}: {error}")
                output.fields["spaces"].append(_fields(space, error=problem(error)))
            except (Conflict, SpaceNotFound) as error:  # another process handles this space
                refused = 1
                output.warn(str(error))
                output.fields["spaces"].append(_fields(space, error=problem(error)))
            else:
                output.line(f"{space.name}: {_summary(made, options.share)}")
                output.fields["spaces"].append(_fields(space, stop_list=made and asdict(made)))
    return refused


def _drop_stop_lists(options: argparse.Namespace, output: Output) -> int:
    settings = Settings()
    output.fields = {"spaces": []}
    with opened(output, settings) as database:
        service = StopListService(database, open_reader(settings, database))
        for space in chosen_spaces(database, options.space):
            dropped = service.drop(space)
            outcome = "no stop-list" if dropped is None else f"stop-list {dropped.version} dropped"
            output.line(f"{space.name}: {outcome}")
            output.fields["spaces"].append(_fields(space, dropped=dropped and asdict(dropped)))
    return 0


def _fields(space: SpaceRecord, **outcome: object) -> dict[str, object]:
    """The result in one space, for programs."""
    return {"space": space.name, "space_id": space.id, **outcome}


def _summary(made: StopList | None, share: float) -> str:
    if made is None:
        return f"no index is in {share:.0%} of the supports, hence no stop-list"
    recall = {s: made.recall_at(s) for s in (0.3, 0.5, 0.7, 0.9)}
    found = ", ".join(f"{'?' if r is None else f'{r:.2f}'} at S = {s}" for s, r in recall.items())
    return (
        f"stop-list {made.version}, {made.size} indices in {share:.0%} or more of {made.models} "
        f"supports; buckets find {found}"
    )
