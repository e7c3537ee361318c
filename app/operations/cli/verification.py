"""``verify``: whether everything that the database names, or a backup, is there, and right."""

from __future__ import annotations

import argparse
import time
from contextlib import closing
from pathlib import Path
from typing import Final

from app.blob_stores import make_store, require_own_store
from app.infra.db.database import Database
from app.infra.db.migrations import require_current
from app.infra.errors import Unavailable, explain
from app.infra.storage.blobs import BlobStore
from app.infra.storage.encryption import Secrets
from app.models.spaces.repositories.spaces import all_spaces
from app.operations.cli.arguments import CommandParser
from app.operations.cli.output import Output
from app.operations.cli.running import require_file, run_command, show_progress
from app.operations.copies.backup_checks import BackupChecks
from app.operations.copies.records import Finding
from app.operations.copies.verification import Verification
from app.settings import Settings
from app.stores import open_buckets, open_redis
from app.tenancy.auth.tenants import store_token
from modelkin.errors import ModelkinError

__all__ = ["run"]

_REPAIRED: Final = "repaired"


def run(arguments: list[str]) -> int:
    """``verify [--deep] [--repair]`` or ``verify --backup FROM``.

    0 all is well, 1 it is not, 2 wrong settings.
    """
    parser = CommandParser.of(
        "verify",
        "Verify that the files of all supports are there, of the right length, that "
        "counts are right and no row names what does not exist, while services go on. One line on "
        "standard output is one finding.",
    )
    parser.add_argument(
        "--deep",
        action="store_true",
        help="read every support, compare its digest, and compute signatures, band values, counts "
        "by tensor and LSH buckets again",
    )
    parser.add_argument(
        "--repair",
        action="store_true",
        help="mend what can be computed from what is whole; with --deep more can be",
    )
    parser.add_argument(
        "--backup",
        type=Path,
        metavar="FROM",
        help="read a folder of backups instead, whole, and compare each file with its sum",
    )
    parser.runs(_verify)
    options = parser.parse_args(arguments)
    if options.backup is not None:
        if options.deep or options.repair:
            parser.error("a backup has sums alone: --deep and --repair are of an installation")
        options.run = _verify_backups
    return run_command(options)


def _verify_backups(options: argparse.Namespace, output: Output) -> int:
    began, found = time.monotonic(), list[dict[str, object]]()
    with show_progress("supports") as line:

        def progress(done: int, total: int) -> None:
            if line is not None:
                line(done, total, "compared")

        checks = BackupChecks(options.backup.absolute(), progress)
        for finding in checks.findings():
            found.append(_fields(finding))
            output.line(str(finding))
    took = time.monotonic() - began
    output.note(
        f"verified {checks.backups} backups with {checks.supports:,} supports in {took:.1f} s: "
        f"{len(found)} findings"
    )
    counts = {"backups": checks.backups, "supports": checks.supports}
    output.fields = {"findings": found, **counts, "seconds": round(took, 3)}
    return 1 if found else 0


def _verify(options: argparse.Namespace, output: Output) -> int:
    settings, began = Settings(), time.monotonic()
    require_file(settings)
    timeout = settings.database_timeout_seconds
    with closing(Database(settings.database_url, timeout=timeout)) as database:
        require_current(database)
        blobs = _blobs(settings, database)
        with (
            open_redis(settings) as server,
            open_buckets(database, server) as buckets,
            show_progress("all spaces") as progress,
        ):
            verification = Verification(
                *(database, blobs, buckets),
                secrets=_secrets(settings),
                deep=options.deep,
                progress=progress,
            )
            found, left = list[dict[str, object]](), 0
            for finding in verification.findings():
                outcome = _repair(finding) if options.repair else ""
                left += outcome != _REPAIRED
                found.append(_fields(finding) | {"repaired": outcome == _REPAIRED})
                output.line(f"{finding} ({outcome})" if outcome else str(finding))
    took = time.monotonic() - began
    mended = f", {len(found) - left} repaired" if options.repair else ""
    models = verification.models
    output.note(f"verified {models} models in {took:.1f} s: {len(found)} findings{mended}")
    output.fields = {"findings": found, "models": models, "seconds": round(took, 3)}
    return 1 if left else 0


def _blobs(settings: Settings, database: Database) -> BlobStore:
    """Open the store of supports; refuse a store without this database's supports."""
    with database.reading() as session:
        token = store_token(session)
        names_blobs = any(space.supports for space in all_spaces(session))
    folder = settings.blob_dir / token
    if settings.blob_bucket is None and not folder.is_dir() and names_blobs:
        raise Unavailable(
            f"there is no folder {folder}, where the supports of this database are: is "
            f"MODELKIN_BLOB_URL set as for the service?"
        )
    blobs = make_store(settings, token)
    require_own_store(settings, database, blobs)
    return blobs


def _secrets(settings: Settings) -> Secrets:
    """The keys that are there; none is made."""
    file = settings.encryption_key_file
    there = file if file is not None and file.exists() else None
    return Secrets(settings.encryption_key_list, there)


def _repair(finding: Finding) -> str:
    """Repair a finding, if that is possible; return the result in words."""
    if finding.repair is None:
        return "not repaired"
    try:
        finding.repair()
    except ModelkinError as error:
        return f"not repaired: {explain(error)}"
    return _REPAIRED


def _fields(finding: Finding) -> dict[str, object]:
    return {"subject": finding.subject, "problem": finding.problem}
