"""``keys create|list|revoke|generate``: the API keys of a service."""

from __future__ import annotations

import argparse
import re
import sys
from datetime import UTC, datetime, timedelta

from app.auth.service import SCOPES, KeyService, generate
from app.cli.running import carried_out, opened
from app.infra.programs import service_command
from modelkin.errors import InvalidParameter

__all__ = ["run"]

_LINE = "{:12} {:16} {:8} {:20} {:10} {:10} {:14} {}"
_TITLES = "KEY", "TENANT", "STATE", "SCOPES", "CREATED", "EXPIRES", "LAST USE", "LABEL"
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


def run(arguments: list[str]) -> int:
    """``keys create|list|revoke|generate``; 0 done, 1 it could not be, 2 wrong settings."""
    return carried_out(_parser().parse_args(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=service_command("keys"), description="API keys.")
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
    create.set_defaults(run=_create)
    listed = commands.add_parser("list", help="list the keys, with the hour of their last use")
    listed.set_defaults(run=_list)
    revoke = commands.add_parser("revoke", help="make a key open nothing from now on")
    revoke.add_argument("prefix", help="the first characters of the key, as listed")
    revoke.set_defaults(run=_revoke)
    new = commands.add_parser("generate", help="print a new key without storing it")
    new.set_defaults(run=_generate)
    return parser


def _create(options: argparse.Namespace) -> int:
    with opened() as database, database.writing() as session:
        key = KeyService().create(
            session,
            options.tenant,
            label=options.label,
            scopes=options.scope or ("read", "write"),
            valid_for=_duration(options.valid_for),
        )
    print(key)
    print("Keep it: it is not stored, and not shown again.", file=sys.stderr)
    return 0


def _list(_: argparse.Namespace) -> int:
    with opened() as database, database.reading() as session:
        records = KeyService().list(session)
    now = datetime.now(UTC)
    print(_LINE.format(*_TITLES))
    for key in records:
        print(
            _LINE.format(
                key.prefix,
                key.tenant.name,
                key.state_at(now),
                ",".join(sorted(key.scopes)),
                _day(key.created_at),
                _day(key.expires_at),
                "-" if key.last_used_at is None else f"{key.last_used_at:%Y-%m-%d %H}h",
                key.label,
            ).rstrip()
        )
    return 0


def _day(moment: datetime | None) -> str:
    return "-" if moment is None else f"{moment:%Y-%m-%d}"


def _revoke(options: argparse.Namespace) -> int:
    with opened() as database, database.writing() as session:
        revoked = KeyService().revoke(session, options.prefix)
    if not revoked:
        print(f"modelkin: no good key begins with {options.prefix}", file=sys.stderr)
    return 0 if revoked else 1


def _generate(_: argparse.Namespace) -> int:
    print(generate())
    return 0


def _duration(text: str | None) -> timedelta | None:
    if text is None:
        return None
    found = re.fullmatch(r"([1-9]\d{0,4})([hdw])", text)
    if found is None:
        raise InvalidParameter(f"--valid-for is 12h, 90d or 52w, not {text!r}")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})
