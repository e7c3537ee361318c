"""``keys create|list|revoke|generate``: the API keys of a service."""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime, timedelta

from app.operations.cli.arguments import CommandParser
from app.operations.cli.output import Output
from app.operations.cli.running import open_database, open_existing_database, run_command
from app.tenancy.auth.records import KeyRecord
from app.tenancy.auth.service import SCOPES, KeyService, generate
from modelkin.errors import InvalidParameter

__all__ = ["run"]

_TITLES = "KEY", "TENANT", "STATE", "SCOPES", "CREATED", "EXPIRES", "LAST USE", "LABEL"
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


def run(arguments: list[str]) -> int:
    """``keys create|list|revoke|generate``; 0 done, 1 failed, 2 wrong settings."""
    return run_command(_parser().parse_args(arguments))


def _parser() -> CommandParser:
    parser = CommandParser.of("keys", "API keys.")
    commands = parser.add_subparsers(required=True, metavar="create|list|revoke|generate")
    create = commands.add_parser("create", help="store a new key and print it, this once")
    create.add_argument("--tenant", default="default", help="whose data it opens (default)")
    create.add_argument("--label", default="", help="what it is for, for the list")
    create.add_argument(
        "--scope",
        action="append",
        choices=SCOPES,
        help="what it may do; repeat for several (default: read and write)",
    )
    create.add_argument("--valid-for", help="how long it opens anything: 12h, 90d, 52w")
    create.runs(_create)
    listed = commands.add_parser("list", help="list the keys, with the hour of their last use")
    listed.runs(_list)
    revoke = commands.add_parser("revoke", help="make a key open nothing from now on")
    revoke.add_argument("prefix", help="the first 11 characters of the key, as listed")
    revoke.runs(_revoke)
    new = commands.add_parser("generate", help="print a new key without storing it")
    new.runs(_generate)
    return parser


def _create(options: argparse.Namespace, output: Output) -> int:
    service = KeyService()
    with open_database(output) as database, database.writing() as session:
        key = service.create(
            session,
            options.tenant,
            label=options.label,
            scopes=options.scope or ("read", "write"),
            valid_for=_duration(options.valid_for),
        )
        record = service.check(session, key)
    output.line(key)
    output.note("Keep it: it is not stored, and not shown again.")
    output.fields = {"key": key, **_fields(record)}
    return 0


def _list(_: argparse.Namespace, output: Output) -> int:
    with open_existing_database(output) as database, database.reading() as session:
        records = KeyService().list(session)
    output.fields = {"items": [_fields(key) for key in records]}
    output.table([_TITLES, *(_row(key) for key in records)])
    return 0


def _row(key: KeyRecord) -> tuple[str, ...]:
    return (
        key.prefix,
        key.tenant.name,
        key.state_at(datetime.now(UTC)),
        ",".join(sorted(key.scopes)),
        _day(key.created_at),
        _day(key.expires_at),
        "-" if key.last_used_at is None else f"{key.last_used_at:%Y-%m-%d %H}h",
        key.label,
    )


def _fields(key: KeyRecord) -> dict[str, object]:
    """A key as the HTTP API shows it, and its tenant."""
    return {
        "prefix": key.prefix,
        "tenant": key.tenant.name,
        "label": key.label,
        "scopes": sorted(key.scopes),
        "state": key.state_at(datetime.now(UTC)),
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
        "last_used_at": key.last_used_at,
    }


def _day(moment: datetime | None) -> str:
    return "-" if moment is None else f"{moment:%Y-%m-%d}"


def _revoke(options: argparse.Namespace, output: Output) -> int:
    with open_existing_database(output) as database, database.writing() as session:
        revoked = KeyService().revoke(session, options.prefix)
    output.line(f"{revoked}: revoked")
    output.fields = {"key": revoked}
    return 0


def _generate(_: argparse.Namespace, output: Output) -> int:
    output.fields = {"key": generate()}
    output.line(output.fields["key"])
    return 0


def _duration(text: str | None) -> timedelta | None:
    if text is None:
        return None
    found = re.fullmatch(r"([1-9]\d{0,4})([hdw])", text)
    if found is None:
        raise InvalidParameter(f"--valid-for is 12h, 90d or 52w, not {text!r}")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})
