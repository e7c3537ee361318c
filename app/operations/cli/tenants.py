"""``tenants list|set``: the usage and the quotas of each tenant."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.fingerprints.repositories.feeds import read_feed
from app.hubs.repositories.sources import count_sources
from app.hubs.sync_requests import BACKFILL, INGEST, POLL
from app.infra.db.database import Reader
from app.infra.errors import NotFound
from app.infra.programs import service_command
from app.jobs.repository import count_unfinished
from app.jobs.service import SERVICE
from app.kinship.findings.records import JOB_KIND as FINDINGS
from app.merges.phases import DEADLINE
from app.merges.repository import count_open
from app.models.spaces.repositories.spaces import count_spaces
from app.models.spaces.repositories.support_sizes import count_reporters
from app.operations.cli.arguments import CommandParser
from app.operations.cli.output import Output
from app.operations.cli.running import open_existing_database, run_command
from app.settings import Settings
from app.tenancy.auth.records import Tenant
from app.tenancy.auth.tenants import find_tenant, list_tenants
from app.tenancy.quotas import repository
from app.tenancy.quotas.records import QUOTAS, QuotaName, Quotas
from app.tenancy.quotas.service import QuotaService, default_quotas
from app.webhooks.outbox import JOB_KIND as EVENTS
from app.webhooks.repositories import deliveries as delivery_repository
from app.webhooks.repositories import events as event_repository
from app.webhooks.repositories.subscriptions import count_subscriptions
from modelkin.errors import InvalidParameter

__all__ = ["UNCOUNTED", "run"]

UNCOUNTED: Final = (EVENTS, FINDINGS, INGEST, POLL, BACKFILL, DEADLINE)
"""Kinds of a tenant's jobs that its quota of queued jobs leaves out."""
_OF_BYTES: Final = frozenset({"support_bytes", "fingerprint_bytes"})
_TITLES: Final = "TENANT", *(name.replace("_", "-").upper() for name in QUOTAS)
_UNITS: Final = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def run(arguments: list[str]) -> int:
    """``tenants list|set``; 0 done, 1 failed, 2 wrong settings."""
    return run_command(_parser().parse_args(arguments))


def _parser() -> CommandParser:
    parser = CommandParser.of("tenants", "Quotas of tenants, and what they use of them.")
    commands = parser.add_subparsers(required=True, metavar="list|set")
    listed = commands.add_parser("list", help="list what each tenant has, and may have")
    listed.add_argument("--tenant", help="only this one (default: all)")
    listed.runs(_list)
    change = commands.add_parser(
        "set",
        help="set quotas of one tenant, while services go on",
        description="Set quotas of one tenant. Each is a number (bytes also as 20GiB), `none` for "
        "no limit, or `default` for that of the settings again.",
    )
    change.add_argument("tenant", help="its name")
    for name in QUOTAS:
        change.add_argument(f"--{name.replace('_', '-')}", dest=name, metavar="N")
    change.runs(_set)
    return parser


def _list(options: argparse.Namespace, output: Output) -> int:
    settings = Settings()
    with open_existing_database(output, settings) as database, database.reading() as session:
        tenants = [
            tenant
            for tenant in list_tenants(session)
            if tenant.name != SERVICE and options.tenant in {None, tenant.name}
        ]
        if not tenants and options.tenant is not None:
            raise _unknown(options.tenant)
        found = [_holdings(session, settings, tenant) for tenant in tenants]
    output.table([_TITLES, *map(_row, found)])
    output.fields = {"items": [_fields(each) for each in found]}
    return 0


def _set(options: argparse.Namespace, output: Output) -> int:
    settings = Settings()
    given = {name: getattr(options, name) for name in QUOTAS}
    changes: dict[str, Any] = {
        name: _value(name, text) for name, text in given.items() if text is not None
    }
    if not changes:
        raise InvalidParameter("say which quotas, such as --models 5000 or --spaces default")
    with open_existing_database(output, settings) as database:
        with database.writing() as session:
            tenant = find_tenant(session, options.tenant)
            if tenant is None:
                raise _unknown(options.tenant)
            QuotaService(default_quotas(settings)).set(session, tenant.id, changes)
        with database.reading() as session:
            found = _holdings(session, settings, tenant)
    output.table([_TITLES, _row(found)])
    output.fields = _fields(found)
    return 0


def _unknown(name: str) -> NotFound:
    return NotFound(
        f"there is no tenant {name!r}: `{service_command('keys create --tenant', name)}` makes it "
        f"with its first key"
    )


@dataclass(frozen=True, slots=True)
class _Holdings:
    """The usage and the quotas of a tenant.

    Attributes:
        used: its usage of everything that has a quota.
        quotas: the most that it may have.
        own: the quotas that differ from the settings.
    """

    tenant: str
    used: Mapping[QuotaName, int]
    quotas: Quotas
    own: frozenset[str]


def _holdings(session: Reader, settings: Settings, tenant: Tenant) -> _Holdings:
    overrides = repository.overrides(session, tenant.id) or {}
    quotas = default_quotas(settings).with_overrides(overrides)
    return _Holdings(tenant.name, _used(session, tenant), quotas, frozenset(overrides))


def _row(found: _Holdings) -> tuple[str, ...]:
    return (found.tenant, *(_cell(name, found) for name in QUOTAS))


def _fields(found: _Holdings) -> dict[str, object]:
    """The usage and quotas of a tenant as JSON; no limit is null."""
    quotas = {
        name: {
            "used": found.used[name],
            "limit": found.quotas.of(name),
            "own": name in found.own,
        }
        for name in QUOTAS
    }
    return {"tenant": found.tenant, "quotas": quotas}


def _cell(name: QuotaName, found: _Holdings) -> str:
    quota = found.quotas.of(name)
    shown: Callable[[int], str] = _bytes if name in _OF_BYTES else "{:,}".format
    most = "-" if quota is None else shown(quota)
    return f"{shown(found.used[name])}/{most}{'*' if name in found.own else ''}"


def _used(session: Reader, tenant: Tenant) -> dict[QuotaName, int]:
    """Return the usage of everything that has a quota."""
    stored, feed = repository.read_usage(session, tenant.id), read_feed(session, tenant.id)
    return {
        "spaces": count_spaces(session, tenant.id),
        "models": stored.models,
        "support_bytes": stored.support_bytes,
        "fingerprints": feed.fingerprints,
        "fingerprint_bytes": feed.bytes,
        "queued_jobs": count_unfinished(session, tenant, but_for=UNCOUNTED),
        "sources": count_sources(session, tenant),
        "subscriptions": count_subscriptions(session, tenant),
        "merges": count_open(session, tenant),
        "reporters": count_reporters(session, tenant.id),
        "events": event_repository.count_of_tenant(session, tenant.id),
        "deliveries": delivery_repository.count_of_tenant(session, tenant.id),
    }


def _value(name: str, text: str) -> int | str | None:
    """A quota as it was given: a number, None for no limit, or ``default``."""
    if text == "default":
        return text
    if text == "none":
        return None
    found = re.fullmatch(r"(\d{1,18})(|KiB|MiB|GiB|TiB)", text.replace(",", ""))
    if found is None or (found[2] and name not in _OF_BYTES):
        flag = name.replace("_", "-")
        raise InvalidParameter(f"--{flag} is a number, `none` or `default`, not {text!r}")
    return int(found[1]) * _UNITS[found[2]]


def _bytes(size: int) -> str:
    fitting = [unit for unit in _UNITS if size >= _UNITS[unit]]
    unit = fitting[-1] if fitting else ""
    return f"{size / _UNITS[unit]:.4g}{unit}"
