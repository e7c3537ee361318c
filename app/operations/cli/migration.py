"""``migrate``: the database at this version, before any service of it starts."""

from __future__ import annotations

import argparse
from contextlib import closing

from app.infra.db.database import Database
from app.infra.db.migrations import migrate, revision_of
from app.operations.cli.arguments import CommandParser
from app.operations.cli.output import Output
from app.operations.cli.running import run_command
from app.settings import Settings

__all__ = ["run"]


def run(arguments: list[str]) -> int:
    """``migrate``; 0 the database is at this version, 1 failed, 2 wrong settings."""
    parser = CommandParser.of(
        "migrate",
        "Migrate the database to this version and exit; an empty one gets its tables. "
        "Services with --no-migrate start only after it.",
    )
    parser.runs(_migrate)
    return run_command(parser.parse_args(arguments))


def _migrate(_: argparse.Namespace, output: Output) -> int:
    settings = Settings()
    timeout = settings.database_timeout_seconds
    with closing(Database(settings.database_url, timeout=timeout)) as database:
        before = revision_of(database)
        migrate(database)
        after = revision_of(database)
    if before == after:
        output.line(f"the database is at {after} already")
    else:
        output.line(f"the database is at {after}, and was {f'at {before}' if before else 'empty'}")
    output.fields = {"before": before or None, "after": after}
    return 0
