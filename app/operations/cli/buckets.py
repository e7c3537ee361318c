"""``rebuild-buckets``: the LSH buckets, from the database."""

from __future__ import annotations

import argparse

from app.operations.cli.arguments import CommandParser
from app.operations.cli.output import Output
from app.operations.cli.running import chosen_spaces, open_database, run_command
from app.settings import Settings
from app.stores import open_buckets, open_redis

__all__ = ["run"]


def run(arguments: list[str]) -> int:
    """``rebuild-buckets [--space NAME]``; exit code 0 done, 1 failed, 2 wrong settings."""
    parser = CommandParser.of(
        "rebuild-buckets", "Rebuild the LSH buckets from the database, while services go on."
    )
    parser.add_argument("--space", help="only the spaces of this name (default: all)")
    parser.runs(_rebuild_buckets)
    return run_command(parser.parse_args(arguments))


def _rebuild_buckets(options: argparse.Namespace, output: Output) -> int:
    settings = Settings()
    output.fields = {"spaces": []}
    with open_database(output, settings) as database:
        chosen = chosen_spaces(database, options.space)
        with (
            open_redis(settings) as server,
            open_buckets(database, server) as buckets,
        ):
            for space in chosen:
                buckets.rebuild(space)
                output.line(f"{space.name}: {space.models} models, {space.banding}")
                output.fields["spaces"].append(
                    {
                        "space": space.name,
                        "space_id": space.id,
                        "models": space.models,
                        "bands": space.banding.bands,
                        "rows": space.banding.rows,
                    }
                )
    return 0
