"""Parts that all commands share: exit codes, the database, the chosen spaces, a progress line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pydantic import ValidationError
from sqlalchemy.engine import make_url

from app.infra.db.database import Database
from app.infra.db.migrations import migrate
from app.infra.errors import NotFound, SpaceNotFound, WrongKind, explain
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories.spaces import all_spaces
from app.operations.cli.arguments import Command
from app.operations.cli.output import Output
from app.setting_messages import unknown_variables, validation_messages
from app.settings import Settings
from modelkin._progress_bar import ProgressLine, is_terminal
from modelkin.errors import ModelkinError

__all__ = [
    "run_command",
    "chosen_spaces",
    "show_progress",
    "open_database",
    "open_existing_database",
    "require_file",
]

Progress = Callable[[int, int, str], None]
"""A function of the work done, the work in all, and the name of the work."""

_FAILED: Final = 1
_INTERRUPTED: Final = 130
"""128 and SIGINT, as in shells."""


def run_command(options: argparse.Namespace) -> int:
    """Run the command; print its error in the operator's words, and return the exit code."""
    run: Command = options.run
    output = Output(as_json=options.json)
    for line in unknown_variables():
        output.warn(line)
    try:
        code = run(options, output)
        output.finish()
        return code
    except ValidationError as error:
        output.fail("Wrong settings", "invalid_settings", validation_messages(error))
        return 2
    except KeyboardInterrupt:
        output.fail("Interrupted", "interrupted", ["interrupted"])
        return _INTERRUPTED
    except BrokenPipeError:  # the reader has closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        detail = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        output.fail("File or system error", "os_error", [detail])
    except ModelkinError as error:
        output.fail(type(error).__name__, error.code, [explain(error)])
    return _FAILED


@contextmanager
def open_database(output: Output, settings: Settings | None = None) -> Iterator[Database]:
    """Open the database and migrate it; warn if this creates one.

    Before the first start a new database is right: an operator makes the first key in it. But a
    running service reads another one: the command lacks its settings, or runs in another folder.
    """
    settings = settings or Settings()
    missing = _missing_file(settings)
    database = Database(settings.database_url, timeout=settings.database_timeout_seconds)
    try:
        migrate(database)
        yield database
    finally:
        database.close()
    if missing is not None:
        output.warn(
            f"this made a new database, {missing}: for a service that runs already, set its "
            f"MODELKIN_DATABASE_URL"
        )


@contextmanager
def open_existing_database(output: Output, settings: Settings | None = None) -> Iterator[Database]:
    """Open the database as :func:`open_database` does, but only an existing one.

    Raises:
        NotFound: SQLite has no file for the database: the URL is mistyped, or means another folder.
    """
    settings = settings or Settings()
    require_file(settings)
    with open_database(output, settings) as database:
        yield database


def require_file(settings: Settings) -> None:
    """Raise :class:`NotFound` where SQLite has no file for this database."""
    if (file := _missing_file(settings)) is not None:
        raise NotFound(
            f"there is no database at {file}: is MODELKIN_DATABASE_URL set as for the service?"
        )


def _missing_file(settings: Settings) -> Path | None:
    """The absolute path of SQLite's file where there is none yet; None for Postgres."""
    url = make_url(settings.database_url)
    if url.get_backend_name() != "sqlite" or url.database is None:
        return None
    file = Path(url.database).absolute()
    return None if file.exists() else file


def chosen_spaces(database: Database, name: str | None) -> Sequence[SpaceRecord]:
    """The spaces of supports of this name, of every tenant; all where none is given."""
    with database.reading() as session:
        found = all_spaces(session, name)
    if not found and name is not None:
        raise SpaceNotFound(f"there is no space {name!r}")
    chosen = [each for each in found if each.kind == "supports"]
    if not chosen and found and name is not None:
        raise WrongKind(f"space {name!r} holds data subspaces: it has no buckets")
    return chosen


@contextmanager
def show_progress(space: str) -> Iterator[Progress | None]:
    """A progress line, on a terminal."""
    if not is_terminal():
        yield None
        return
    line = ProgressLine()
    try:
        yield lambda done, total, stage: line.draw(f"{space}: {stage}", done / max(total, 1))
    finally:
        line.wipe()
