"""``renew-secrets``: all stored secrets, with the first key."""

from __future__ import annotations

import argparse

from app.infra.db import secret_rotation
from app.infra.storage.encryption import Secrets
from app.operations.cli.arguments import CommandParser
from app.operations.cli.output import Output
from app.operations.cli.running import open_database, run_command
from app.settings import Settings

__all__ = ["run"]


def run(arguments: list[str]) -> int:
    """``renew-secrets``; 0 done, 1 failed, 2 wrong settings."""
    parser = CommandParser.of(
        "renew-secrets",
        "Encrypt all stored secrets again, with the first key of "
        "MODELKIN_ENCRYPTION_KEYS, so that the others can be removed; services go on.",
    )
    parser.runs(_renew_secrets)
    return run_command(parser.parse_args(arguments))


def _renew_secrets(_: argparse.Namespace, output: Output) -> int:
    settings = Settings()
    secrets = Secrets(settings.encryption_key_list, settings.encryption_key_file)
    with open_database(output) as database, database.writing() as session:
        renewed = secret_rotation.renew_secrets(session, secrets.renew)
    output.line(f"{renewed} secrets are encrypted with the first key")
    output.fields = {"renewed": renewed}
    return 0
