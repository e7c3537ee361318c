"""``check``: settings, stores, data folder, secret key, workers, and extras that are absent.

The command reads settings, files and the revision of the database, and asks Redis. Nothing that it
writes stays: the file that tests a folder is gone before it ends, and so is the object that shows
what a bucket allows.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Final

from pydantic import ValidationError
from sqlalchemy.engine import make_url

from app.infra.extras import absent_extras
from app.infra.misfits import REMEDY, misfit
from app.infra.programs import workers_command
from app.operations.cli.arguments import CommandParser
from app.operations.cli.output import Output
from app.operations.cli.store_checks import store_checks
from app.setting_messages import unknown_variables, validation_messages
from app.settings import Settings
from modelkin._diagnosis import Check

__all__ = ["run"]

_MIN_FREE_BYTES: Final = 5 << 30


def run(arguments: list[str]) -> int:
    """``check``; 0 nothing fails, 1 something does."""
    parser = CommandParser.of(
        "check",
        "Inspect the settings of this shell, the data folder, the database, the bucket, Redis, the "
        "secret key and who carries out jobs. It changes nothing, and a service may run meanwhile.",
    )
    parser.runs(_check)
    options = parser.parse_args(arguments)
    output = Output(as_json=options.json)
    code = _check(options, output)
    output.finish()
    return code


def _check(_: argparse.Namespace, output: Output) -> int:
    checks = list(_checks())
    output.fields = {"checks": [asdict(check) for check in checks]}
    for check in checks:
        output.line(f"{check.state:4}  {check.check:11}  {check.detail}")
        if check.remedy:
            output.line(f"{' ' * 19}to do: {check.remedy}")
    return 1 if any(check.state == "fail" for check in checks) else 0


def _checks() -> Iterator[Check]:
    yield from _packages()
    try:
        settings = Settings()
    except ValidationError as error:
        found = "; ".join(validation_messages(error))
        yield Check("settings", "fail", found, "correct this variable of the service")
        return
    if unknown := unknown_variables():
        yield Check(
            "settings", "warn", "; ".join(unknown), "correct or unset what is not a setting"
        )
    folders = _data(settings)
    yield folders
    if folders.state != "fail":  # a database that cannot be written is named already
        yield from store_checks(settings)
    yield _secret_key(settings)
    if not settings.runs_embedded_worker:
        why = "the service takes no jobs itself, since MODELKIN_EMBEDDED_WORKER or Postgres say so"
        yield Check("worker", "ok", f"{why}; `{workers_command()}` does")
    for absent in absent_extras():  # nothing is wrong: who installs less has chosen it
        yield Check(absent.extra, "ok", f"not installed: {absent.effect}; {absent.command}")


def _packages() -> Iterator[Check]:
    try:
        import_module("app.main")  # only the service itself needs it
    except ImportError as error:
        yield Check("packages", "fail", misfit(error) or str(error), REMEDY)


def _data(settings: Settings) -> Check:
    if (fault := _write_fault(settings)) is not None:
        remedy = "let the service's user write there, or name another place in the settings"
        return Check("data folder", "fail", fault, remedy)
    free = {folder: shutil.disk_usage(_existing(folder)).free for folder in _data_folders(settings)}
    found = "; ".join(f"{size / 1e9:,.1f} GB free for {folder}" for folder, size in free.items())
    if min(free.values()) >= _MIN_FREE_BYTES:
        return Check("data folder", "ok", found)
    return Check("data folder", "warn", found, "free some, or move the data folder")


def _data_folders(settings: Settings) -> list[Path]:
    """The folders of SQLite's file and of the supports; with a bucket, of the fetched supports."""
    if make_url(settings.database_url).get_backend_name() != "sqlite":
        return [settings.blob_dir]
    if settings.blob_dir.is_relative_to(settings.data_dir):
        return [settings.data_dir]
    return [settings.data_dir, settings.blob_dir]


def _write_fault(settings: Settings) -> str | None:
    """Say why the database or a folder of the service cannot be written, if so.

    Root passes over the bits of permissions, and a file system may be read-only: only writing says.
    """
    folders = [settings.blob_dir, settings.sketch_dir, settings.checkpoint_dir]
    url = make_url(settings.database_url)
    if url.get_backend_name() == "sqlite" and url.database is not None:
        file = Path(url.database).absolute()
        folders.insert(0, file.parent)
        try:
            if file.exists():
                file.open("r+b").close()
        except OSError as error:
            return f"{file} cannot be written: {error.strerror}"
    return next(filter(None, map(_probe, dict.fromkeys(folders))), None)


def _probe(folder: Path) -> str | None:
    """Say why a folder, or its nearest existing parent, cannot be written; None if it can."""
    tried = folder
    try:
        tried = _existing(folder)
        with tempfile.TemporaryFile(dir=tried) as file:
            file.write(b"probe")
    except OSError as error:
        whose = "" if tried == folder else f", which is to hold {folder}"
        return f"{tried} cannot be written{whose}: {error.strerror}"
    return None


def _existing(folder: Path) -> Path:
    """Return the folder, or the nearest existing folder above it."""
    return next(each for each in (folder, *folder.parents) if each.exists())


def _secret_key(settings: Settings) -> Check:
    if settings.encryption_key_list:
        return Check("secret key", "ok", "from MODELKIN_ENCRYPTION_KEYS")
    file = settings.encryption_key_file
    if file is None:
        remedy = "set MODELKIN_ENCRYPTION_KEYS to 32 random characters or more"
        found = "none: the service can keep no secret of a source or subscription"
        return Check("secret key", "fail", found, remedy)
    if not file.exists():
        return Check("secret key", "ok", f"{file}, which is made with the first secret to keep")
    if file.stat().st_mode & 0o077:
        return Check("secret key", "warn", f"others can read {file}", f"chmod 600 {file}")
    return Check("secret key", "ok", str(file))
