"""``backup TO`` and ``restore FROM``: copies of the database and of its supports."""

from __future__ import annotations

import argparse
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from app.blob_stores import make_store, require_own_store
from app.infra.db.database import Database
from app.infra.db.migrations import require_current
from app.infra.programs import service_command
from app.operations.cli.arguments import CommandParser
from app.operations.cli.output import Output
from app.operations.cli.running import require_file, run_command, show_progress
from app.operations.copies.backups import BackupService
from app.operations.copies.restoration import restore
from app.settings import Settings
from app.tenancy.auth.tenants import store_token

__all__ = ["back_up", "put_back"]

_KEPT = 7


def back_up(arguments: list[str]) -> int:
    """``backup TO [--keep N]``; 0 done, 1 failed or a support is missing, 2 wrong settings."""
    parser = CommandParser.of(
        "backup",
        "Copy the database, as of one moment, and the supports it names to a folder of "
        "backups, while services go on. Supports that the backup before has are not copied again.",
    )
    parser.add_argument("to", type=Path, metavar="TO", help="the folder of backups")
    parser.add_argument(
        "--keep",
        type=_at_least_one,
        default=_KEPT,
        help=f"backups that stay in the folder, this one included ({_KEPT})",
    )
    parser.runs(_back_up)
    return run_command(parser.parse_args(arguments))


def put_back(arguments: list[str]) -> int:
    """``restore FROM [--at NAME]``; 0 done, 1 failed or a support is missing, 2 wrong settings."""
    parser = CommandParser.of(
        "restore",
        "Restore a backup to the database and the folders that the settings name, "
        "where there is nothing yet. No service may run on them.",
    )
    parser.add_argument("source", type=Path, metavar="FROM", help="the folder of backups")
    parser.add_argument("--at", metavar="NAME", help="which backup (default: the newest)")
    parser.runs(_put_back)
    return run_command(parser.parse_args(arguments))


def _back_up(options: argparse.Namespace, output: Output) -> int:
    settings = Settings()
    require_file(settings)
    with closing(
        Database(settings.database_url, timeout=settings.database_timeout_seconds)
    ) as database:
        require_current(database)
        with database.reading() as session:
            token = store_token(session)
        # Also beside keys of the settings: older secrets may still be under the generated one.
        secret = settings.encryption_key_file
        blobs = make_store(settings, token)
        require_own_store(settings, database, blobs)
        with closing(blobs):
            service = BackupService(database, token, blobs, secret)
            made = service.make(options.to.absolute(), keep=options.keep)
    output.line(
        f"{made.path}: {made.supports:,} supports, {made.copied:,} of them copied now "
        f"({made.copied_bytes:,} bytes)"
    )
    output.fields = asdict(made)
    for key in made.missing:
        output.note(f"the support {key} is missing or damaged")
    if made.missing:
        output.note(
            f"`{service_command('verify')}` names the models. If it finds nothing, the supports "
            "were replaced meanwhile: make another backup"
        )
    return 1 if made.missing else 0


def _put_back(options: argparse.Namespace, output: Output) -> int:
    settings = Settings()
    with show_progress("supports") as line:

        def progress(done: int, total: int) -> None:
            if line is not None:
                line(done, total, "copied")

        manifest = restore(options.source.absolute(), options.at, settings, progress)
    output.line(f"restored {manifest.made_at}: {manifest.supports:,} supports")
    output.fields = manifest.model_dump(include={"made_at", "supports", "missing"})
    if manifest.missing:
        output.line(
            f"missing when it was made: {len(manifest.missing):,}; `{service_command('verify')}` "
            f"names their models"
        )
    return 1 if manifest.missing else 0


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"it is a number of 1 or more, not {text!r}")
    return int(text)
